"""Values to try for each field of a GPU plan, around the default and within a program's resources."""

import torch

from onehop.backends.triton import TritonBackend
from onehop.graph import Graph
from onehop.plans import TritonPlan
from onehop.plans.triton import VARIANTS
from onehop.plans.triton_default import power_of_two
from onehop.tuner.candidates import LEAST_ORDERED_EDGES, ORDERS, Axes
from onehop.tuner.operations import Operation

_WARP = 32
# A thread has at most 255 registers of 32 bits, and they do not hold tiles only.
_MOST_NUMBERS = 128
# Bytes of the widest load instruction; narrower tiles waste part of it.
_LOAD_BYTES = 16
_MOST_LANES = 64
_WARPS = (1, 2, 4, 8)
_STAGES = (1, 2, 3, 4)
_SPLITS = (128, 256, 512, 1024, 4096)
# With this value every piece of a row is short, which is the mapping by feature.
_ALL_SHORT = max(_SPLITS)


def start(graph: Graph, operation: Operation, width: int, heads: int, dtype: torch.dtype) -> TritonPlan:
    """Return the default plan, where every search starts."""
    return TritonBackend.default_for(graph, operation.name, operation.transposed, width, heads, dtype)


def cache_bytes(device: torch.device) -> int:
    """Return the size of a GPU's L2 cache, in bytes; 0 without a GPU."""
    if device.type != "cuda":
        return 0
    return int(torch.cuda.get_device_properties(device).L2_cache_size)


def axes(
    graph: Graph, operation: Operation, width: int, heads: int, dtype: torch.dtype, cache_bytes: int
) -> Axes:
    """Return the values to try for each relevant field; the most influential fields come first.

    Args:
        graph: The graph.
        operation: The operation and its direction.
        width: Number of columns of all heads together.
        heads: Number of heads that share the columns.
        dtype: Dtype of the features.
        cache_bytes: Size of the GPU's L2 cache; 0 if unknown.
    """
    default = start(graph, operation, width, heads, dtype)
    sources = graph.num_dst if operation.transposed else graph.num_src
    choices: Axes = {}
    if graph.num_edges >= LEAST_ORDERED_EDGES and sources * width * dtype.itemsize > cache_bytes:
        choices["ordering"] = ("none", *ORDERS)
    choices["short_edges"] = tuple(sorted({0, *_round(default.short_edges, 1, _MOST_LANES), _ALL_SHORT}))
    choices["rows_per_program"] = _round(default.rows_per_program, 1, _MOST_LANES)
    choices["block_edges"] = _round(default.block_edges, 1, _MOST_LANES)
    narrowest = min(_LOAD_BYTES // dtype.itemsize, power_of_two(width))
    choices["block_features"] = _round(default.block_features, narrowest, power_of_two(width))
    choices["num_warps"] = tuple(sorted({*_WARPS, default.num_warps}))
    choices["num_stages"] = _STAGES
    choices["split_edges"] = tuple(sorted({*_SPLITS, default.split_edges}))
    choices["variant"] = VARIANTS
    return {name: values for name, values in choices.items() if name in operation.axes and len(values) > 1}


def holds(plan: TritonPlan, width: int) -> bool:
    """Return whether threads can hold the plan's tiles in their registers."""
    lanes = max(plan.rows_per_program, plan.block_edges)
    numbers = lanes * min(plan.block_features, power_of_two(width))
    return numbers <= _MOST_NUMBERS * _WARP * plan.num_warps


def _round(value: int, least: int, most: int) -> tuple[int, ...]:
    """Return a value and powers of two from a quarter of it to four times it, within bounds."""
    near = (value // 4, value // 2, value * 2, value * 4)
    return tuple(sorted({value, *(each for each in near if least <= each <= most)}))
