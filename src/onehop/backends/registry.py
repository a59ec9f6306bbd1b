"""The registry of backends, and the function that selects one of them."""

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
# Used only if they are named.
_BY_NAME = ("reference", "pim")
# Machines of patches, kept while a session, a handle or a recorded operator holds them, because a backward
# pass may come after the patch was removed.
_PATCHED: weakref.WeakValueDictionary[str, MachineBackend] = weakref.WeakValueDictionary()
_numbers = itertools.count(1)


def backends() -> dict[str, Backend]:
    """Return every backend by its name, in the order in which they are tried."""
    return dict(_BACKENDS)


def register_machine(machine: Machine, ledger: Ledger) -> MachineBackend:
    """Create a backend for a machine; it can be found by its name while something holds a reference to it.

    Args:
        machine: The machine on which aggregation will run.
        ledger: The ledger that records its runs.

    Returns:
        The backend. If "/LABEL" is appended to its name, runs are recorded under this label.
    """
    name = f"machine-{next(_numbers)}"
    made = _PATCHED[name] = MachineBackend(name, lambda: machine, ledger)
    return made


def runner_of(name: str) -> MachineBackend | None:
    """Return the backend of a patch's machine, so that a caller can hold it; None for any other name.

    Args:
        name: The backend's name, with or without "/LABEL".
    """
    return _PATCHED.get(name.partition("/")[0])


def is_machine(name: str) -> bool:
    """Return whether a backend of this name came from :func:`register_machine`."""
    return name in _PATCHED


def machine_of(name: str) -> Machine:
    """Return the machine of a backend.

    Args:
        name: The name of a backend of :func:`register_machine`.
    """
    return _PATCHED[name].machine


def ledger_of(name: str) -> Ledger | None:
    """Return the ledger of a machine's backend; None if the machine's runs are not recorded.

    Args:
        name: The name of a backend of :func:`register_machine`.
    """
    return _PATCHED[name].ledger


def refusal(name: str, device: torch.device, dtype: torch.dtype) -> str | None:
    """Return why a backend cannot run on tensors of this device and dtype; None if it can.

    Args:
        name: The backend's name. Empty means any backend that can be selected without a name; a name with
            "/LABEL" means the machine before it.
        device: Device of the tensors.
        dtype: Dtype of the features.

    Raises:
        ArgumentError: No backend has this name.
    """
    if not name:
        return _refusal_of_all(device, dtype)
    return _named(name.partition("/")[0]).refuse(device, dtype)


def backend_for(device: torch.device, dtype: torch.dtype, name: str = "") -> Backend:
    """Return the backend that runs on tensors of this device and dtype.

    Args:
        device: Device of the tensors.
        dtype: Dtype of the features.
        name: The requested backend; empty means the first that can run.

    Raises:
        ArgumentError: No backend has this name.
        BackendError: The named backend refuses, or all backends refuse; the message says why.
    """
    if not name:
        return _first_of(device, dtype)
    if (patched := _PATCHED.get(name.partition("/")[0])) is not None:
        return _willing([patched.on_behalf_of(name.partition("/")[2])], device, dtype)
    return _willing([_named(name)], device, dtype)


def run(graph: Graph, call: Any, like: Tensor) -> Any:
    """Run a call on the backend that it names, or on the best backend that can run it.

    Args:
        graph: The graph that the call names.
        call: A call of :mod:`onehop.calls`.
        like: The operand whose device and dtype select the backend.

    Raises:
        ArgumentError: No backend has this name.
        BackendError: The named backend refuses or does not have the operator, or all backends refuse.
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
    """Return the first backend that can run; the result is cached, because every call needs it."""
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
