"""Availability of the GPU kernels, and the reason if they cannot run."""

import importlib.metadata
import importlib.util
import os
from functools import lru_cache
from typing import Any

import torch

# bfloat16 and asynchronous copies need at least this compute capability of NVIDIA's GPUs.
LEAST_CAPABILITY = (8, 0)
# The oldest version with which the kernels were compiled (make test-triton); torch 2.8 includes it, torch 2.6
# has 3.2.
LEAST_TRITON = (3, 4)


def interpreted() -> bool:
    """Return whether triton interprets kernels on the CPU (``TRITON_INTERPRET=1``)."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def not_installed() -> str | None:
    """Return why no usable triton is installed, or None if one is."""
    if importlib.util.find_spec("triton") is None:
        return "needs triton, which is not installed: pip install 'onehop[gpu]'"
    if installed() < LEAST_TRITON:
        return f"needs triton {_dotted(LEAST_TRITON)} or later, and {version()} is installed: upgrade torch"
    return None


def missing() -> str | None:
    """Return why the kernels cannot run at all in this process; None if they can."""
    reason = not_installed()
    if reason is not None:
        return reason
    if interpreted():
        return None
    if not torch.cuda.is_available():
        return "needs a GPU that torch can use, and torch.cuda.is_available() is False"
    return None


def refuses(device: torch.device) -> str | None:
    """Return why the kernels cannot run on tensors of a device; None if they can."""
    reason = missing()
    if reason is not None:
        return reason
    if interpreted():
        return None if device.type == "cpu" else f"is interpreted on CPU tensors now, not on {device.type}"
    if device.type != "cuda":
        return f"runs on CUDA tensors, not on {device.type}"
    if torch.version.hip is None:
        capability = torch.cuda.get_device_capability(device)
        if capability < LEAST_CAPABILITY:
            return (
                f"needs a GPU of compute capability {_dotted(LEAST_CAPABILITY)} or later, "
                f"and {torch.cuda.get_device_name(device)} has {_dotted(capability)}"
            )
    return None


@lru_cache(maxsize=16)
def machine(device: torch.device) -> dict[str, Any]:
    """Return the properties that must agree for a tuned plan to be valid on a device; "gpu" is its name."""
    if device.type == "cpu":
        gpu, capability = "Triton's interpreter", "none"
    else:
        gpu = torch.cuda.get_device_name(device)
        capability = _dotted(torch.cuda.get_device_capability(device))
    return {"gpu": gpu, "capability": capability, "triton": version(), "torch": torch.__version__}


def current() -> torch.device:
    """Return the device that the kernels use if no tensor determines it."""
    return torch.device("cpu") if interpreted() else torch.device("cuda", torch.cuda.current_device())


@lru_cache(maxsize=1)
def version() -> str:
    """Return the version of triton, without importing it."""
    return importlib.metadata.version("triton")


def installed() -> tuple[int, ...]:
    """Return (major, minor) of triton's version."""
    return tuple(int(part) for part in version().split(".")[:2])


def _dotted(capability: tuple[int, ...]) -> str:
    return ".".join(map(str, capability))
