"""Graphs of torch.fx under the patch: the same targets, matches and quantised models."""

import contextlib
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx

from tests.integrations.torch.dispatched import both, patched, whole
from tests.integrations.torch.functions import V, X, known
from tests.integrations.torch.indices import ANY, ENTRIES, ROWS

pytestmark = pytest.mark.filterwarnings("ignore")


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Linear(4, 4)
        self.weight = torch.nn.Parameter(torch.randn(4, 4))
        self.bias = torch.nn.Parameter(torch.randn(4))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).relu()
        return F.linear(x, self.weight, self.bias)


def gathers(x: Tensor, i: Tensor, v: Tensor) -> Tensor:
    wide = i.unsqueeze(1).expand(-1, 4)
    out = torch.gather(x, 0, wide) + torch.scatter_add(x, 0, wide, v)[i] + x.index_select(0, i)
    return F.linear(torch.index_add(x, 0, i, out), x).scatter_reduce(1, wide.t() % 11, v.t(), "amax")


@pytest.mark.parametrize("model", [Model(), gathers], ids=["module", "function"])
def test_targets_of_fx(model: Any) -> None:
    def run() -> Any:
        traced = fx.symbolic_trace(model)
        targets = [(known(node.target), node.op, str(node.target)) for node in traced.graph.nodes]
        return targets, traced.code

    assert any(each[0] == (["F.linear"], ["F.linear"]) for each in both(run)[0])


@pytest.mark.parametrize("under", ["tracing", "running"])
def test_graphs_of_fx_cross_the_patch(under: str) -> None:
    def context(when: str) -> contextlib.AbstractContextManager[None]:
        return patched() if when == under else contextlib.nullcontext()

    x, i, v = whole(ROWS, 4).t().contiguous().t(), ANY % 4, whole(ENTRIES, 4)
    expected = gathers(x, i, v)
    with context("tracing"):
        traced = fx.symbolic_trace(gathers)
    with context("running"):
        torch.testing.assert_close(traced(x, i, v), expected)
    assert {F.linear, torch.gather, torch.scatter_add, torch.index_add} <= {
        node.target for node in traced.graph.nodes if node.op == "call_function"
    }


def test_patterns_of_fx_match() -> None:
    def pattern(x: Tensor, weight: Tensor) -> Tensor:
        return F.linear(x, weight)

    def replacement(x: Tensor, weight: Tensor) -> Tensor:
        return torch.matmul(x, weight.t()) * 2

    held = fx.symbolic_trace(pattern)

    def run() -> Any:
        traced = fx.symbolic_trace(lambda x, weight: F.linear(x, weight).relu())
        matches = fx.subgraph_rewriter.replace_pattern(traced, held, replacement)
        return len(matches), traced(V, X)

    assert both(run)[0] == 1


def test_quantised_models() -> None:
    quantize_fx = pytest.importorskip("torch.ao.quantization.quantize_fx")
    from torch.ao.quantization import get_default_qconfig_mapping

    def run() -> Any:
        x = torch.linspace(-1, 1, 40).view(10, 4)
        prepared = quantize_fx.prepare_fx(Model().eval(), get_default_qconfig_mapping(), (x,))
        prepared(x)
        converted = quantize_fx.convert_fx(prepared)
        kinds = [type(each).__name__ for each in converted.modules()]
        targets = [str(node.target) for node in converted.graph.nodes]
        return prepared.code, converted.code, kinds, targets, converted(x).detach()

    told = both(run, rtol=1e-5, atol=1e-5)
    assert "torch.ops.quantized.linear" in told[1]
