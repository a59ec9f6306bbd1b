"""GPUs without a GPU: what the second cache of one fetches from memory for a kernel's gathers, counted.

``gpu.gather(graph, 256, gpu.Kernel("neighbour"), gpu.load("a100_80gb")).fetched``.
"""

from onehop.machines.gpu.device import Gpu, load, presets
from onehop.machines.gpu.gather import MAPPINGS, Gathered, Kernel, gather

__all__ = ["MAPPINGS", "Gathered", "Gpu", "Kernel", "gather", "load", "presets"]
