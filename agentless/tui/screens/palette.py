"""The command palette."""

from __future__ import annotations

from typing import Any

from textual.command import CommandPalette
from textual.worker import Worker


class Palette(CommandPalette):
    """Textual's palette, which looks for commands even after Esc has closed it: that search fails, without an end."""

    def run_worker(self, work: Any, *args: Any, **options: Any) -> Worker[Any]:
        """Let a failed search not end the dashboard."""
        return super().run_worker(work, *args, **{**options, "exit_on_error": False})
