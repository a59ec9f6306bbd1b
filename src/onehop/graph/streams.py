"""Streams of a device: tensors that are kept are made on one, and may be read on others.

An allocator gives memory that is let go to the next tensor of the stream that it was made on. Work that
another stream has been given and has not done yet would then read the next tensor's numbers; so each stream
that reads is noted with the allocator, once. Nothing here waits on the host.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

# What runs streams, by the type of a device: torch.cuda's functions.
RUNTIMES: dict[str, Any] = {"cuda": torch.cuda}


class Streams:
    """The streams that have met some tensors on one device, which were just made on the current one."""

    __slots__ = ("_event", "_met", "_runtime", "_tensors")

    def __init__(self, tensors: Sequence[Tensor | None]) -> None:
        self._tensors = [each for each in tensors if each is not None]
        device = self._tensors[0].device
        self._runtime = None if capturing(device) else RUNTIMES.get(device.type)
        self._met: set[Any] = set()
        self._event: Any = None
        if self._runtime is not None:
            current = self._runtime.current_stream(device)
            self._met.add(current)
            self._event = current.record_event()

    def meet(self) -> None:
        """Lets the current stream read the tensors: it waits, on the device, until they are made.

        A stream that is being captured is left alone: torch waits for all streams before a capture, and
        the caller that replays it has to keep what it reads.
        """
        if self._runtime is None:
            return
        device = self._tensors[0].device
        current = self._runtime.current_stream(device)
        if current in self._met or capturing(device):
            return
        current.wait_event(self._event)
        for tensor in self._tensors:
            tensor.record_stream(current)
        self._met.add(current)


@dataclass(frozen=True, slots=True)
class KeptTensor:
    """A tensor that is kept with a graph: it is read through :meth:`read`, and must not be written to."""

    tensor: Tensor
    streams: Streams

    @classmethod
    def of(cls, tensor: Tensor) -> "KeptTensor":
        """A tensor that was just made on the current stream."""
        return cls(tensor, Streams((tensor,)))

    def read(self) -> Tensor:
        """Return the tensor, which the current stream may read."""
        self.streams.meet()
        return self.tensor

    @property
    def device(self) -> torch.device:
        """The device of the tensor."""
        return self.tensor.device

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor."""
        return self.tensor.nbytes


def capturing(device: torch.device) -> bool:
    """Return whether calls are being captured for a replay: what they make has no contents yet."""
    runtime = RUNTIMES.get(device.type)
    return runtime is not None and runtime.is_current_stream_capturing()
