"""What a plan says is what kernels are told: results are the same, and only a clock could show it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from onehop import Graph, native
from onehop.plans import CpuPlan, tuned
from tests.ops.checking import On, gradients

NODES = 50
PLAN = CpuPlan(
    edges_per_item=77, prefetch=3, prefetch_hint="L1", column_tile=8, register_block=2, nontemporal=True,
    threads=1,
)  # fmt: skip
# The fields that all kernels of operators have where they have them at all; the sum's has the others too.
COMMON = {"edges_per_item": 77, "prefetch": 3, "threads": 1}
OF_SUMS = {**COMMON, "keeps_near": True, "column_tile": 8, "register_block": 2, "nontemporal": True}

CALLS = ("sum", "max", "sddmm", "edge_softmax", "fusedmm dot", "gat", "gatv2", "attention", "tensor product")

KERNELS = [
    "aggregate", "arg_extremum", "arg_extremum_grad_source", "arg_extremum_grad_weight",
    "attention", "attention_grad_dst", "attention_grad_src", "attention_weights",
    "edge_softmax", "edge_softmax_grad", "extremum_grad_source", "extremum_grad_weight", "fusedmm", "sddmm",
    "tensor_product", "tensor_product_edges",
]  # fmt: skip


@pytest.fixture
def graph() -> Graph:
    edges = torch.randint(0, NODES, (2, 400), generator=torch.Generator().manual_seed(0))
    return Graph.from_edge_index(edges, NODES)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, own_cache: object) -> Iterator[list[Any]]:
    """The calls that kernels get, where PLAN is the default."""
    tuned.forget()
    monkeypatch.setattr("onehop.backends.cpu.default_plan", lambda *_: PLAN)
    calls: list[Any] = []

    def noting(kernel: Callable[..., Any]) -> Callable[..., Any]:
        def noted(call: Any, *others: Any) -> Any:
            if hasattr(call, "edges_per_item"):
                calls.append(call)
            return kernel(call, *others)

        return noted

    for name in KERNELS:
        monkeypatch.setattr(native.extension, name, noting(getattr(native.extension, name)))
    yield calls
    tuned.forget()


@pytest.mark.parametrize("name", CALLS)
def test_forward_and_backward(name: str, graph: Graph, told: list[Any]) -> None:
    torch.set_num_threads(2)
    on = On(name, graph, torch.float32, 8)
    out = on.fast(*on.leaves)
    forward = len(told)
    gradients(out, on.leaves, on.pulled(out=out))
    assert len(told) > forward > 0
    for call in told:
        fields = OF_SUMS if hasattr(call, "register_block") else COMMON
        given = {field: getattr(call, field) for field in fields if hasattr(call, field)}
        assert given == {field: value for field, value in fields.items() if field in given}
