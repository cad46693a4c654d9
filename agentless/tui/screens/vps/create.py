"""The form to create a VPS."""

from __future__ import annotations

import os
from typing import ClassVar

from textual.binding import Binding, BindingType

from agentless.tui.data.cluster import Row
from agentless.tui.data.form import VPS, FormKind
from agentless.tui.screens.submit import SubmitForm


class VpsForm(SubmitForm):
    """The submit form with other fields, sent elsewhere."""

    KIND: ClassVar[FormKind] = VPS
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+s", "submit", "Create", tooltip="create the VPS")]

    def _send(self, request: Row) -> list[Row]:
        """Send the request; what became of the VPS."""
        return [self._client.post("/v1/vps", {**request, "request": os.urandom(8).hex()})]
