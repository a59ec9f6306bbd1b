"""The least time that this machine needs for an epoch's work, from primitive steps measured on it.

Each part has its own: aggregation moves its bytes at the speed of a gather of the graph's own rows, products
run in the fastest library for their shape with both operands laid out for it, and elementwise steps read
once and write once, at the speed of a copy of that shape.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onehop.bench.cases import Workload
from onehop.bench.limits import ROW_MULTIPLE, aggregated_bytes, gather_roof
from onehop.bench.timing import interleave
from onehop.bench.work import EpochWork, Product, Shape

AGGREGATION, PRODUCTS, DROPOUT, OTHER = PARTS = ("aggregation", "products", "dropout", "other")
# Of these the shortest counts, for products and copies: a floor is what can be had.
_ROUNDS = 5


class Roofs:
    """Primitive steps over one graph, each measured when it is asked for first.

    Args:
        workload: The graph.
        rounds: Measurements of each.
    """

    def __init__(self, workload: Workload, rounds: int = _ROUNDS) -> None:
        self._workload = workload
        self._rounds = rounds
        self._gathers: dict[int, float] = {}
        self._products: dict[Shape3, float] = {}
        self._copies: dict[Shape, float] = {}

    def gather_gbps(self, width: int) -> float:
        """10^9 bytes a second of gathering rows; of the next multiple of 16 floats."""
        width = -(-width // ROW_MULTIPLE) * ROW_MULTIPLE
        if width not in self._gathers:
            x = torch.ones(self._workload.num_nodes, width, device="cpu")
            roof = gather_roof(x, self._workload.graph.col, self._rounds)
            self._gathers[width] = roof.bandwidth.gbps
        return self._gathers[width]

    def gather_s(self, moved_bytes: int, width: int) -> float:
        """Seconds to move so many bytes of rows."""
        return moved_bytes / self.gather_gbps(width) / 1e9 if moved_bytes else 0.0

    def product_s(self, product: Product) -> float:
        """Seconds of a product in the fastest library, or over the non-zeros of a sparse factor."""
        key = product.rows, product.depth, product.columns
        if key not in self._products:
            times = interleave(product_calls(*key), self._rounds)
            self._products[key] = min(one.min_s for one in times.values())
        dense = self._products[key]
        if product.nonzeros is None:
            return dense
        # A row of the weight, or of the gradient, is added up for every non-zero: the result's narrow side.
        narrow, wide = sorted((product.rows, product.columns))
        moved = aggregated_bytes(product.nonzeros, wide, narrow)
        return min(dense, self.gather_s(moved, narrow))

    def copy_s(self, shape: Shape) -> float:
        """Seconds to read a float32 matrix once and write it once."""
        if shape not in self._copies:
            source = torch.ones(shape, device="cpu")
            target = torch.zeros_like(source)
            times = interleave({"copy": lambda: target.copy_(source)}, self._rounds)
            self._copies[shape] = times["copy"].min_s
        return self._copies[shape]

    def floor(self, work: EpochWork) -> dict[str, float]:
        """Seconds of each part of an epoch."""
        return {
            AGGREGATION: sum(self.gather_s(moved, width) for width, moved in work.gathered.items()),
            PRODUCTS: sum(times * self.product_s(product) for product, times in work.products.items()),
            DROPOUT: sum(times * self.copy_s(shape) for shape, times in work.dropped.items()),
            OTHER: sum(times * self.copy_s(shape) for shape, times in work.elementwise.items()),
        }


Shape3 = tuple[int, int, int]


def product_calls(rows: int, depth: int, columns: int) -> dict[str, Callable[[], Tensor]]:
    """The same product in every library that torch has, its operands laid out along the depth."""
    a, b = torch.ones(rows, depth, device="cpu"), torch.ones(columns, depth, device="cpu")
    calls: dict[str, Callable[[], Tensor]] = {"torch.mm": lambda: torch.mm(a, b.t())}
    # What Inductor emits for linear steps; a private name, so it may be gone.
    onednn: Any = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
    if onednn is not None and torch.backends.mkldnn.is_available():
        calls["oneDNN"] = lambda: onednn(a, b, None, "none", [], "")
    return calls
