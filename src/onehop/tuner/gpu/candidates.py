"""The values worth trying for each field of a GPU plan: around the default, within a program's resources."""

import torch

from onehop.backends.triton import TritonBackend
from onehop.graph import Graph
from onehop.plans import TritonPlan
from onehop.plans.triton import VARIANTS
from onehop.plans.triton_default import power_of_two
from onehop.tuner.candidates import LEAST_ORDERED_EDGES, ORDERS, Axes
from onehop.tuner.operations import Operation

_WARP = 32
# A thread has 255 registers of 32 bits at most, and a tile is not all that they hold.
_MOST_NUMBERS = 128
# Bytes of the widest load instruction: narrower tiles waste it.
_LOAD_BYTES = 16
_MOST_LANES = 64
_WARPS = (1, 2, 4, 8)
_STAGES = (1, 2, 3, 4)
_SPLITS = (128, 256, 512, 1024, 4096)
# Then every piece of a row is short: the mapping by feature.
_ALL_SHORT = max(_SPLITS)


def start(graph: Graph, operation: Operation, width: int, heads: int, dtype: torch.dtype) -> TritonPlan:
    """The default plan, where every search starts."""
    return TritonBackend.default_for(graph, operation.name, operation.transposed, width, heads, dtype)


def cache_bytes(device: torch.device) -> int:
    """Size of the cache that all of a GPU shares; 0 where there is no GPU."""
    if device.type != "cuda":
        return 0
    return int(torch.cuda.get_device_properties(device).L2_cache_size)


def axes(
    graph: Graph, operation: Operation, width: int, heads: int, dtype: torch.dtype, cache_bytes: int
) -> Axes:
    """Values to try for each field that matters here; the most influential fields first.

    Args:
        graph: The graph.
        operation: One of its directions.
        width: Columns of all heads together.
        heads: Number of heads that share them.
        dtype: Dtype of the features.
        cache_bytes: Size of the cache that all of the GPU shares; 0 where it is unknown.
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
    """Powers of two from a quarter of a value to four times it, within bounds, and the value."""
    near = (value // 4, value // 2, value * 2, value * 4)
    return tuple(sorted({value, *(each for each in near if least <= each <= most)}))
