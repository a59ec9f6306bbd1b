"""onehop itself, by its public operator."""

from collections.abc import Callable

from torch import Tensor

from onehop.bench.cases import Case
from onehop.ops import aggregate


class Onehop:
    """``onehop.aggregate`` on a ready Graph."""

    name = "onehop"

    def available(self) -> str | None:
        """Always."""
        return None

    def refuse(self, case: Case) -> str | None:
        """Has every operation."""
        return None

    def extra_bytes(self, case: Case) -> int:
        """Nothing for each edge and column."""
        return 0

    def build(self, case: Case) -> Callable[[], Tensor]:
        """The transposed graph is made by the first backward pass, which is not timed."""
        graph, weight, reduce = case.workload.graph, case.weight, case.reduce
        return case.call(lambda x: aggregate(graph, x, weight, reduce))
