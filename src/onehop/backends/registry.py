"""The backends that exist, and the one function that picks."""

import torch

from onehop.backends.base import Backend
from onehop.backends.cpu import CpuBackend
from onehop.backends.reference import ReferenceBackend
from onehop.errors import ArgumentError, BackendError

_CPU = CpuBackend()
# In the order in which they are tried; the reference is used by name alone.
_BACKENDS: dict[str, Backend] = {backend.name: backend for backend in (_CPU, ReferenceBackend())}


def backends() -> dict[str, Backend]:
    """Every backend by its name, in the order in which they are tried."""
    return dict(_BACKENDS)


def backend_for(device: torch.device, dtype: torch.dtype, name: str = "") -> Backend:
    """The backend that runs on such tensors.

    Args:
        device: Where the tensors are.
        dtype: Of the features.
        name: The backend asked for; empty means the first that can.

    Raises:
        ArgumentError: No backend has that name.
        BackendError: The named backend refuses, or all do; the message says why.
    """
    if not name:
        if _CPU.refuse(device, dtype) is None:
            return _CPU
        candidates = [backend for backend in _BACKENDS.values() if backend.name != "reference"]
    elif name in _BACKENDS:
        candidates = [_BACKENDS[name]]
    else:
        raise ArgumentError(f"backend: {name!r} is unknown; there are {', '.join(_BACKENDS)}.")
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
