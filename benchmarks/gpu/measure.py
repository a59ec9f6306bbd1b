"""Times, peak memory and bytes a second on a device."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from benchmarks.gpu.operators import Inputs, Operator, Size
from benchmarks.gpu.peers import Call, Peers
from onehop.bench.timing import Times
from onehop.tuner.gpu.target import device_seconds

# A callable is measured until it has taken so long, or so often; always three times.
_BUDGET_S = 0.25
_MOST_ROUNDS = 30
_LEAST_ROUNDS = 3
_COPY_BYTES = 1 << 30
_COPIES = 10
_FIGURES = ("forward", "forward_and_backward", "peak_bytes", "failed", "absent")


def measure(
    peers: Peers, operator: Operator, size: Size, dtype: torch.dtype, device: torch.device
) -> list[dict[str, Any]]:
    """Every peer on one case, one after the other. Who runs out of memory has failed.

    Returns:
        What each took: ``peer``, its name; ``forward``, times without gradients; ``forward_and_backward``,
        those of the forward pass and the gradients to all inputs; ``peak_bytes``, the memory of both beyond
        inputs and graph, None on a CPU. Where there are no figures, ``failed`` is what it said, or ``absent``
        why it is not there to be measured.
    """
    found = []
    for name, call in peers.calls(operator).items():
        took: dict[str, Any] = {"peer": name, **dict.fromkeys(_FIGURES)}
        found.append(took)
        if isinstance(call, str):
            took["absent"] = call
            continue
        inputs = operator.inputs(size, dtype, device)
        try:
            took |= _measure(call, inputs, device)
        except torch.OutOfMemoryError:
            took["failed"] = "runs out of memory"
        except (RuntimeError, NotImplementedError) as error:
            # A peer that cannot: what it says is kept, and the others are measured.
            if name == "onehop":
                raise
            took["failed"] = str(error).splitlines()[0]
        if device.type == "cuda":
            torch.cuda.empty_cache()
    return found


def _measure(call: Call, inputs: Inputs, device: torch.device) -> dict[str, Any]:
    leaves = list(inputs.values())
    grad: list[Tensor] = []

    def forward() -> Tensor:
        with torch.no_grad():
            return call(inputs)

    def both() -> object:
        out = call(inputs)
        if not grad:
            grad.append(torch.ones_like(out))
        return torch.autograd.grad(out, leaves, grad[0])

    forward_times = times_of(forward, device)
    both()
    peak = None
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        both()
        torch.cuda.synchronize(device)
        peak = torch.cuda.max_memory_allocated(device) - before
    times = {"forward": forward_times, "forward_and_backward": times_of(both, device)}
    kept = {name: {**each.to_dict(), "seconds": list(each.seconds)} for name, each in times.items()}
    return {**kept, "peak_bytes": peak}


def times_of(call: Callable[[], object], device: torch.device) -> Times:
    """Times of calls after the first, which may compile: on a GPU by its own clock."""
    call()
    seconds: list[float] = []
    while len(seconds) < _LEAST_ROUNDS or (len(seconds) < _MOST_ROUNDS and sum(seconds) < _BUDGET_S):
        seconds.append(device_seconds(call, device))
    return Times(tuple(seconds))


def copy_bytes_per_s(device: torch.device, size: int = _COPY_BYTES) -> float:
    """Bytes read and written a second when the device copies memory, the best of a few times."""
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    best = math.inf
    for _ in range(_COPIES):
        best = min(best, device_seconds(lambda: target.copy_(source), device))
    return 2 * size / best
