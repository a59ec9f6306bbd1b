"""torch itself as a framework that can be patched."""

from typing import Any

from onehop.integrations.framework import TORCH
from onehop.integrations.rows import Row
from onehop.integrations.settings import OFF, Settings
from onehop.integrations.torch import dropout, linear


class Torch:
    """The functions of torch that are replaced, as the settings ask."""

    name = TORCH

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self._settings = OFF

    def layers(self) -> tuple[str, ...]:
        """None: functions are chosen by settings."""
        return ()

    def install(self, settings: Settings) -> None:
        """Puts in place what the settings ask for; again does nothing."""
        if settings != self._settings:
            self.remove()
            self._settings = settings
            self._rows = _rows(settings)
            for row in self._rows:
                row.install()

    def remove(self) -> None:
        """Puts theirs back."""
        for row in reversed(self._rows):
            row.restore()
        self._rows, self._settings = [], OFF

    def replaced(self) -> list[str]:
        """The dotted names of everything that is ours now."""
        return [row.name for row in self._rows]

    def silence(self, module: Any) -> str | None:
        """Return None: no module is a layer of torch's in the sense of the patch."""
        return None


def _rows(settings: Settings) -> list[Row]:
    rows: list[Row] = []
    if settings.dropout:
        rows += dropout.rows()
    if settings.products:
        rows.append(linear.row())
    return rows
