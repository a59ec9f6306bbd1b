"""Simulated machines that compute in or near memory: each returns the true result and a report of the run."""

import importlib
from typing import TYPE_CHECKING, Any

from onehop.machines.base import Machine
from onehop.machines.common.ledger import Entry, Ledger
from onehop.machines.common.report import Report
from onehop.machines.common.trace import Span, Trace

if TYPE_CHECKING:
    from onehop.machines import dram, gpu, ndp, pim

__all__ = ["Entry", "Ledger", "Machine", "Report", "Span", "Trace", "dram", "gpu", "ndp", "pim"]


def __dir__() -> list[str]:
    """Return the public names, also the machines that are not imported yet."""
    return __all__


if not TYPE_CHECKING:  # A checker would take every name for an attribute.

    def __getattr__(name: str) -> Any:
        """Import and return a machine that is not imported yet."""
        if name not in ("dram", "gpu", "ndp", "pim"):
            raise AttributeError(f"module 'onehop.machines' has no attribute {name!r}")
        return importlib.import_module(f"onehop.machines.{name}")
