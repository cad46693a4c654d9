"""The web server with an app of the tests: `python -m tests.fleet.web_server FOLDER VISITORS HEARTBEAT [APP]`."""

from __future__ import annotations

import sys

from agentless.web import server

if __name__ == "__main__":
    folder, visitors, heartbeat, *named = sys.argv[1:]
    app = [sys.executable, "-m", *(named or ["tests.fleet.web_app"]), folder]
    server.run(app, 0, visitors=int(visitors), heartbeat=float(heartbeat))
