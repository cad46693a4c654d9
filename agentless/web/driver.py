"""Textual's driver for a browser; it can give away its terminal, and ends with its server."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from codecs import getincrementaldecoder
from typing import Any

from textual import events
from textual._xterm_parser import XTermParser
from textual.drivers._byte_stream import ByteStream
from textual.drivers.web_driver import WebDriver
from textual.geometry import Size as AppSize

from agentless.client.terminal import Window
from agentless.model.terminal import Size

_LAST_WORDS = 2.0
"""Seconds for an app to end by itself."""
_LEND = "\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?2004l\x1b[?1049l\x1b[?25h"
"""No mouse, no bracketed paste, the normal screen, a cursor: as a program expects a terminal."""
_TAKE_BACK = "\x1b[0m\x1b[?1049h\x1b[?25l\x1b[?1000h\x1b[?1003h\x1b[?1015h\x1b[?1006h\x1b[?2004h"


class Driver(WebDriver):
    """Runs in the app's process, which finds it by `TEXTUAL_DRIVER`.

    While the app is suspended, `window` is the browser: its keys arrive as they are typed, and output is shown.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.window: Window | None = None
        self._keys: int | None = None
        self._lending = threading.Lock()

    # --------------------------------------------------------------- suspended

    @property
    def can_suspend(self) -> bool:
        """Unlike Textual's own driver."""
        return True

    def suspend_application_mode(self) -> None:
        """Give the terminal away."""
        self.write(_LEND)
        keys, self._keys = os.pipe()
        self.window = Window(keys, _Screen(self), _Screen(self), self._measure)

    def resume_application_mode(self) -> None:
        """Take the terminal back, and draw everything."""
        if self.window:
            os.close(self.window.keys)  # first, so that a writer does not block
            self.window = None
        self._hang_up()
        self.write(_TAKE_BACK)
        size = AppSize(*self._measured)
        self._app.post_message(events.Resize(size, size))

    @property
    def _measured(self) -> tuple[int, int]:
        return self._size or (80, 24)

    def _measure(self) -> Size:
        return Size(*self._measured)

    def _hang_up(self) -> None:
        """Close the keys of the program that has the terminal."""
        with self._lending:
            keys, self._keys = self._keys, None
        if keys is not None:
            os.close(keys)

    # ------------------------------------------------------------------- input

    def run_input_thread(self) -> None:
        """Read what the server sends until the app ends; if the server ends first, end the app.

        Textual's own driver only stops reading then, and the app would run on without a user.
        """
        parser, decode = XTermParser(), getincrementaldecoder("utf-8")("replace").decode
        packets = ByteStream()
        for data in self._input_reader:
            for kind, payload in packets.feed(data) if data else ():  # empty data would be taken for the end
                if kind != "D":
                    self._on_meta(kind, payload)
                elif not self._borrowed(payload):
                    for event in parser.feed(decode(payload)):
                        self.process_message(event)
            for event in parser.tick():
                self.process_message(event)
        if not self.exit_event.is_set():
            self.on_meta("quit", {})
            end = threading.Timer(_LAST_WORDS, os._exit, (1,))
            end.daemon = True
            end.start()

    def _borrowed(self, keys: bytes) -> bool:
        """Pass keys on to the program that has the terminal; whether there is one."""
        with self._lending:
            if self._keys is None:
                return False
            with contextlib.suppress(BrokenPipeError):
                os.write(self._keys, keys)
            return True

    def on_meta(self, packet_type: str, payload: dict[str, object]) -> None:
        """Go to the place of the page's address. A new size, or the end, is also for a program with the terminal."""
        super().on_meta(packet_type, payload)
        match payload:
            case {"type": "place", "path": str(path)} if self._keys is None:
                self._app.call_later(self._app.go_to, path)  # type: ignore[attr-defined]
        if packet_type == "resize" and self._keys is not None:
            signal.raise_signal(signal.SIGWINCH)
        elif packet_type == "quit":
            self._hang_up()


class _Screen:
    """A file whose content the browser shows."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def write(self, data: bytes) -> None:
        rest = b"D%b%b" % (len(data).to_bytes(4, "big"), data)
        while rest:  # a signal may cut a write short
            rest = rest[os.write(self._driver.fileno, rest) :]

    def flush(self) -> None:
        """Nothing is buffered."""
