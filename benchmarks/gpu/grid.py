"""Which cases the GPU benchmark measures, the most telling first.

Heads and widths are those of "On Efficient Scaling of GNNs via IO-Aware Layers Implementations" (2026):
reductions at 64 to 512 columns, GATv2 at 2 to 8 heads of 32 to 256, its Graph Transformer at 2 to 8 heads of
together 256 or 512.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

# (heads, width of each). The first of each operator is measured on every graph before any other.
_REDUCTIONS = ((1, 64), (1, 256), (1, 128), (1, 512))
_GATV2 = (
    *((4, 64), (8, 32), (2, 128), (4, 256), (2, 64), (8, 64)),
    *((4, 32), (2, 32), (4, 128), (8, 128), (2, 256), (8, 256)),
)
_TRANSFORMER = ((4, 64), (8, 64), (8, 32), (2, 128), (4, 128), (2, 256))
_SIZES = {
    "gatv2": _GATV2,
    "attention": _TRANSFORMER,
    "gat": ((4, 64), (8, 32), (1, 64)),
}


@dataclass(frozen=True, slots=True)
class Case:
    """A point of the grid: D columns (``width``) of H heads; reductions see H * D columns."""

    graph: str
    operator: str
    dtype: str
    heads: int
    width: int

    def __str__(self) -> str:
        """For tables and plots."""
        return f"{self.graph} {self.operator} {self.dtype} {self.heads}x{self.width}"


def grid(graphs: Sequence[str], operators: Sequence[str], dtypes: Sequence[str]) -> Iterator[Case]:
    """Every graph with every operator once; then once more in the next dtype or size, and so on."""
    for forms in zip_longest(*(_forms(operator, dtypes) for operator in operators)):
        for graph in graphs:
            for operator, form in zip(operators, forms, strict=True):
                if form is not None:
                    yield Case(graph, operator, *form)


def _forms(operator: str, dtypes: Sequence[str]) -> list[tuple[str, int, int]]:
    """Dtypes, heads and widths: the first size in all dtypes, then the other sizes, dtype by dtype."""
    first, *others = _SIZES.get(operator, _REDUCTIONS)
    return [(dtype, *first) for dtype in dtypes] + [(dtype, *size) for dtype in dtypes for size in others]
