"""torch itself as a framework that can be patched."""

from typing import Any

from onehop.integrations.rows import Row
from onehop.integrations.session import OFF, TORCH, Framework, Settings
from onehop.integrations.torch import dropout, linear


class Torch(Framework):
    """The functions of torch that are replaced, as chosen by the settings."""

    name = TORCH

    def __init__(self) -> None:
        super().__init__()
        self._settings = OFF

    def layers(self) -> tuple[str, ...]:
        """No names: functions are chosen by settings."""
        return ()

    def rows(self, settings: Settings) -> list[Row]:
        """The rows of the patch table for these settings."""
        return [
            *(dropout.rows() if settings.dropout else ()),
            *([linear.row()] if settings.products else ()),
        ]

    def install(self, settings: Settings) -> None:
        """Installs the rows for these settings instead of those for others."""
        if settings != self._settings:
            self.remove()
            self._settings = settings
            super().install(settings)

    def remove(self) -> None:
        """Restores what the rows replaced."""
        super().remove()
        self._settings = OFF

    def silence(self, module: Any) -> None:
        """Return None: torch has no layers over edges."""
