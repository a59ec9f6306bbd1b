"""The plan that ``explain`` prints: of all heads together where they are fused, of one message else."""

from typing import Any

import pytest
import torch

from onehop import Graph
from onehop.backends.cpu import CpuBackend
from onehop.integrations.tuning import plan_text
from onehop.plans import CpuPlan


class Noting(CpuBackend):
    """Notes what plan it is asked for."""

    def plan_for(self, *asked: Any) -> CpuPlan:
        self.asked = asked
        return CpuPlan(edges_per_item=77)


@pytest.mark.parametrize(
    ("what", "operation", "columns"),
    [("sum", "sum", 8), ("mean", "sum", 8), ("gat", "attention", 24), ("attention", "attention", 24)],
)
def test_columns_of_all_heads_where_they_are_fused(
    what: str, operation: str, columns: int, own_cache: object
) -> None:
    graph, backend = Graph.from_edge_index(torch.tensor([[0, 1], [1, 0]])), Noting()
    text = plan_text(backend, graph, what, 8, torch.float32, heads=3)
    assert text == str(CpuPlan(edges_per_item=77))
    assert backend.asked == (graph, operation, False, columns, torch.float32)
