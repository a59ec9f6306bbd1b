"""Backends, which run operators: each describes itself, may refuse tensors, and prepares and runs calls."""

from onehop.backends.base import Backend
from onehop.backends.registry import (
    backend_for,
    backends,
    is_machine,
    ledger_of,
    machine_of,
    refusal,
    register_machine,
    run,
    runner_of,
)

__all__ = [
    "Backend",
    "backend_for",
    "backends",
    "is_machine",
    "ledger_of",
    "machine_of",
    "refusal",
    "register_machine",
    "run",
    "runner_of",
]
