"""Simulated GPUs: counts what a GPU's L2 cache fetches from memory for the gathers of a kernel.

``gpu.gather(gpu.in_order(graph, "community"), 512, gpu.Kernel("neighbour"), gpu.load("a100_80gb")).fetched``.
"""

from onehop.machines.gpu.device import Gpu, load, presets
from onehop.machines.gpu.gather import MAPPINGS, Gathered, Kernel, gather
from onehop.machines.gpu.order import ORDERS, in_order

__all__ = ["MAPPINGS", "ORDERS", "Gathered", "Gpu", "Kernel", "gather", "in_order", "load", "presets"]
