"""The backends that exist, and the one function that picks."""

import itertools
import weakref
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from onehop.backends.base import Backend
from onehop.backends.cpu import CpuBackend
from onehop.backends.machine import MachineBackend
from onehop.backends.reference import ReferenceBackend
from onehop.backends.triton import TritonBackend
from onehop.calls import name_of
from onehop.errors import ArgumentError, BackendError
from onehop.graph import Graph
from onehop.machines.base import Machine
from onehop.machines.common.ledger import Ledger


def _near_bank() -> Machine:
    from onehop.machines import pim

    return pim.Machine()


_CPU = CpuBackend()
# In the order in which they are tried.
_BACKENDS: dict[str, Backend] = {
    backend.name: backend
    for backend in (_CPU, TritonBackend(), ReferenceBackend(), MachineBackend("pim", _near_bank))
}
# Used by name alone.
_BY_NAME = ("reference", "pim")
# Machines of patches, as long as a session, a handle or a recorded operator holds them: a backward pass may
# come after the patch was taken back.
_PATCHED: weakref.WeakValueDictionary[str, MachineBackend] = weakref.WeakValueDictionary()
_numbers = itertools.count(1)


def backends() -> dict[str, Backend]:
    """Every backend by its name, in the order in which they are tried."""
    return dict(_BACKENDS)


def register_machine(machine: Machine, ledger: Ledger) -> MachineBackend:
    """Makes a backend of a machine, which its name finds as long as somebody holds it.

    Args:
        machine: Where aggregation is to run.
        ledger: Where its runs are written down.

    Returns:
        The backend. With "/LABEL" behind its name, runs are written down under that label.
    """
    name = f"machine-{next(_numbers)}"
    made = _PATCHED[name] = MachineBackend(name, lambda: machine, ledger)
    return made


def runner_of(name: str) -> MachineBackend | None:
    """The backend of a patch's machine, for whoever needs it later; None for any other.

    Args:
        name: The backend, with "/LABEL" behind it or without.
    """
    return _PATCHED.get(name.partition("/")[0])


def is_machine(name: str) -> bool:
    """Return whether a backend of that name came from :func:`register_machine`."""
    return name in _PATCHED


def machine_of(name: str) -> Machine:
    """The machine behind a backend.

    Args:
        name: That of a backend of :func:`register_machine`.
    """
    return _PATCHED[name].machine


def ledger_of(name: str) -> Ledger | None:
    """The ledger of a machine's backend; None for a machine that writes nothing down.

    Args:
        name: That of a backend of :func:`register_machine`.
    """
    return _PATCHED[name].ledger


def refusal(name: str, device: torch.device, dtype: torch.dtype) -> str | None:
    """The reason why a backend cannot run on such tensors; None if it can.

    Args:
        name: The backend; empty means any that is picked without being named, and one with "/LABEL" behind
            it is the machine before that.
        device: Where the tensors are.
        dtype: Of the features.

    Raises:
        ArgumentError: No backend has that name.
    """
    if not name:
        return _refusal_of_all(device, dtype)
    return _named(name.partition("/")[0]).refuse(device, dtype)


def backend_for(device: torch.device, dtype: torch.dtype, name: str = "") -> Backend:
    """The backend that runs on such tensors.

    Args:
        device: Where the tensors are.
        dtype: Of the features.
        name: The wanted backend; empty means the first that can.

    Raises:
        ArgumentError: No backend has that name.
        BackendError: The named backend refuses, or all do; the message says why.
    """
    if not name:
        return _first_of(device, dtype)
    if (patched := _PATCHED.get(name.partition("/")[0])) is not None:
        return _willing([patched.on_behalf_of(name.partition("/")[2])], device, dtype)
    return _willing([_named(name)], device, dtype)


def run(graph: Graph, call: Any, like: Tensor) -> Any:
    """Runs a call on the backend that it names, or on the best that can.

    Args:
        graph: The graph that the call names.
        call: One of :mod:`onehop.calls`.
        like: The operand whose device and dtype decide.

    Raises:
        ArgumentError: No backend has that name.
        BackendError: The named backend refuses, or does not have the operator, or all refuse.
    """
    name = call.backend
    backend = backend_for(like.device, like.dtype, name) if name else _first_of(like.device, like.dtype)
    if type(call) not in backend.operators:
        runs = ", ".join(sorted(name_of(kind) for kind in backend.operators))
        raise BackendError(
            f"backend: {name_of(type(call))} is not among what {backend.name} runs, which is {runs}; "
            "omit backend."
        )
    return backend.run(graph, call)


def _named(name: str) -> Backend:
    if (patched := _PATCHED.get(name)) is not None:
        return patched
    if name not in _BACKENDS:
        raise ArgumentError(f"backend: {name!r} is unknown; there are {', '.join(_BACKENDS)}.")
    return _BACKENDS[name]


@lru_cache(maxsize=256)
def _first_of(device: torch.device, dtype: torch.dtype) -> Backend:
    """The first backend that can; remembered, because every call needs it."""
    return _willing(_unnamed(), device, dtype)


@lru_cache(maxsize=256)
def _refusal_of_all(device: torch.device, dtype: torch.dtype) -> str | None:
    reasons = [(backend.name, backend.refuse(device, dtype)) for backend in _unnamed()]
    if any(reason is None for _, reason in reasons):
        return None
    return "; ".join(f"{name} {reason}" for name, reason in reasons)


def _unnamed() -> list[Backend]:
    return [backend for backend in _BACKENDS.values() if backend.name not in _BY_NAME]


def _willing(candidates: list[Backend], device: torch.device, dtype: torch.dtype) -> Backend:
    reasons = []
    for backend in candidates:
        reason = backend.refuse(device, dtype)
        if reason is None:
            return backend
        reasons.append(f"{backend.name} {reason}")
    raise BackendError(
        f"backend: nothing can run on {device} tensors of {dtype}: {'; '.join(reasons)}. "
        f"Move the tensors to the CPU, or ask for backend='reference', which is slow and runs anywhere."
    )
