"""The dashboard itself over recorded rows, for tests of its page: `python -m tests.fleet.web_dashboard FOLDER`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from agentless.client.client import Client
from agentless.errors import AgentlessError
from agentless.tui.app import Dashboard
from agentless.tui.data.feed import Feed
from agentless.tui.data.incoming import Incoming

RECORDED = json.loads((Path(__file__).parents[1] / "pure" / "data" / "dashboard" / "board.json").read_text())


class Recorded(Dashboard):
    """Gets its rows after the first drawing, as from a controller."""

    def on_mount(self) -> None:
        super().on_mount()
        (Path(sys.argv[1]) / str(os.getpid())).touch()
        self.client.get = self.answer
        self.call_after_refresh(self.receive)

    def receive(self) -> None:
        self.incoming.begin()
        for event in RECORDED["events"]:
            self.incoming.take_event(event)
        self.incoming.take(RECORDED["line"])

    def answer(self, path: str, **_: object) -> object:
        if path == "/v1/history":
            return {"gpus": [], "nodes": [], "at": RECORDED["line"]["now"], "step": 10.0}
        raise AgentlessError(f"no answer to {path}")


if __name__ == "__main__":
    os.environ["XDG_CONFIG_HOME"] = sys.argv[1]
    Feed.start = Incoming.tick = lambda _: None
    Recorded(Client(Path("/nowhere"), None), place=os.environ["AGENTLESS_PLACE"]).run()
