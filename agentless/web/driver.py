"""Textual's driver for a browser, of an app that ends when its server has died."""

from __future__ import annotations

import os
import threading

from textual.drivers.web_driver import WebDriver

_LAST_WORDS = 2.0
"""Seconds for an app to end by itself."""


class Driver(WebDriver):
    """Named to the app by `TEXTUAL_DRIVER`; runs in the app's process."""

    def run_input_thread(self) -> None:
        """Read what the server sends until the app ends; where the server ends first, end the app.

        Textual's own driver only stops reading then, and the app would go on for nobody.
        """
        super().run_input_thread()
        if not self.exit_event.is_set():
            self.on_meta("quit", {})
            end = threading.Timer(_LAST_WORDS, os._exit, (1,))
            end.daemon = True
            end.start()
