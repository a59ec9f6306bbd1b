"""The Triton backend of a device "far", interpreted; importing this makes it the backend "triton"."""

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

import onehop
from onehop.backends import registry
from onehop.backends.triton import TritonBackend
from onehop.calls import name_of
from onehop.kernels.triton import availability
from tests.far_device import far, is_far, near


class FarTriton(TritonBackend):
    """The backend is handed the device's tensors, and runs on their contents."""

    ran: ClassVar[set[str]] = set()

    def refuse(self, device: torch.device, dtype: torch.dtype) -> str | None:
        return None if device.type == "far" else "runs on far tensors alone"

    def run(self, graph: onehop.Graph, call: Any) -> Any:
        name = name_of(type(call))
        self.ran.add(name)
        tensors = [leaf for leaf in tree_leaves(call) if isinstance(leaf, Tensor)]
        assert all(map(is_far, tensors)), f"{name} is handed tensors of the CPU"
        found = TritonBackend().run(graph, tree_map(near, call))
        return tree_map(lambda out: far(out) if isinstance(out, Tensor) else out, found)


registry._BACKENDS["triton"] = FarTriton()
availability.machine = lambda device: {"gpu": device.type}
