"""GPUs without a GPU: what the second cache of one fetches from memory for a kernel's gathers, counted.

``gpu.gather(gpu.in_order(graph, "community"), 512, gpu.Kernel("neighbour"), gpu.load("a100_80gb")).fetched``.
"""

from onehop.machines.gpu.device import Gpu, load, presets
from onehop.machines.gpu.gather import MAPPINGS, Gathered, Kernel, gather
from onehop.machines.gpu.order import ORDERS, in_order

__all__ = ["MAPPINGS", "ORDERS", "Gathered", "Gpu", "Kernel", "gather", "in_order", "load", "presets"]
