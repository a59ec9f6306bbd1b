"""Streams of a device: cached tensors are made on one stream, and may be read on others.

An allocator gives freed memory to the next tensor of the stream on which it was allocated. Work that another
stream has queued but not finished would then read the next tensor's numbers. So each reading stream is
registered with the allocator, once. The host never waits here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

# The modules with functions for streams, by device type.
RUNTIMES: dict[str, Any] = {"cuda": torch.cuda}


class Streams:
    """The streams that may read some tensors on a device, which were just made on the current stream."""

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
        """Let the current stream read the tensors: it waits, on the device, until they are made.

        Nothing is done for a stream that is being captured: torch waits for all streams before a capture, and
        the caller that replays it must keep the tensors that it reads.
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
    """A tensor that is cached with a graph; use :meth:`read` to read it, and never write to it."""

    tensor: Tensor
    streams: Streams

    @classmethod
    def of(cls, tensor: Tensor) -> "KeptTensor":
        """Wrap a tensor that was just made on the current stream."""
        return cls(tensor, Streams((tensor,)))

    def read(self) -> Tensor:
        """Return the tensor, after letting the current stream read it."""
        self.streams.meet()
        return self.tensor

    @property
    def device(self) -> torch.device:
        """The device of the tensor."""
        return self.tensor.device

    @property
    def nbytes(self) -> int:
        """The bytes of the tensor."""
        return self.tensor.nbytes


def capturing(device: torch.device) -> bool:
    """Return whether calls are being captured for a replay; their results have no contents yet."""
    runtime = RUNTIMES.get(device.type)
    return runtime is not None and runtime.is_current_stream_capturing()
