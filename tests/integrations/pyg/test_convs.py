"""Every layer in the table, patched and unpatched: outputs and all gradients by name."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric import nn as gnn
from torch_geometric.nn import conv as convs

import onehop
from tests.integrations.pyg import small_blocks
from tests.integrations.pyg.layers import CASES, NODES, WIDTH, case_call, operands_of


@pytest.mark.parametrize("name", CASES)
def test_float64_results_are_pygs(name, edge_index, gradients_of, took_fast_path):
    case = CASES[name]
    torch.manual_seed(0)
    model = case.make().double()
    call, operands = case_call(case, edge_index), operands_of(case, torch.float64)
    expected = gradients_of(model, call, **operands)
    with onehop.patch():
        found = gradients_of(model, call, **operands)
        again = gradients_of(model, call, **operands)
        reasons = took_fast_path(call, model, **operands)
    assert reasons
    assert set(reasons) == {None}
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        torch.testing.assert_close(
            found[key], value, rtol=1e-10, atol=1e-11, msg=lambda m, key=key: f"{key}: {m}"
        )
        assert torch.equal(found[key], again[key]), f"{key} differs from run to run"


@pytest.mark.parametrize("aggr", ["mean", "sum", "max", "min"])
@pytest.mark.parametrize("shape", ["pair", "no targets", "no targets, size", "pair, size"])
def test_bipartite_sage(aggr, shape, edges, gradients_of, took_fast_path):
    edge_index = edges(20, 12, 60)
    torch.manual_seed(0)
    model = gnn.SAGEConv((WIDTH, WIDTH), 4, aggr=aggr).double()
    operands = {"source": torch.randn(20, WIDTH).double()}
    if shape.startswith("pair"):
        operands["target"] = torch.randn(12, WIDTH).double()
    size = (20, 12) if "size" in shape else None

    def call(model: torch.nn.Module, source: Tensor, target: Tensor | None = None) -> Tensor:
        return model((source, target), edge_index, size=size)

    expected = gradients_of(model, call, **operands)
    with onehop.patch():
        found = gradients_of(model, call, **operands)
        assert took_fast_path(call, model, **operands) == [None]
    # Without sizes, PyG gives as many rows as there are sources.
    assert found["output"].size(0) == (20 if shape == "no targets" else 12)
    for key, value in expected.items():
        torch.testing.assert_close(
            found[key], value, rtol=1e-10, atol=1e-12, msg=lambda m, key=key: f"{key}: {m}"
        )


@pytest.mark.parametrize(
    ("x_dtype", "weight_dtype"),
    [
        (torch.bfloat16, torch.float32),
        (torch.bfloat16, torch.bfloat16),
        (torch.float16, torch.float32),
        (torch.float32, torch.float64),
        (torch.float64, torch.float32),
        (torch.float32, torch.bfloat16),
        (torch.bfloat16, None),
    ],
    ids=str,
)
@pytest.mark.parametrize("aggr", ["sum", "mean", "max"])
def test_output_dtype_is_promoted_as_pyg_does(x_dtype, weight_dtype, aggr, edge_index, took_fast_path):
    conv = gnn.SimpleConv(aggr=aggr)
    x = torch.randn(NODES, WIDTH).to(x_dtype)
    weight = None if weight_dtype is None else torch.rand(90).to(weight_dtype)
    expected = conv(x, edge_index, weight)
    with onehop.patch():
        found = conv(x, edge_index, weight)
        assert took_fast_path(conv, x, edge_index, weight) == [None]
    assert found.dtype == expected.dtype
    tolerance = 0.1 if expected.dtype in (torch.bfloat16, torch.float16) else 1e-5
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def test_int32_edges(edge_index):
    conv, x = gnn.SAGEConv(WIDTH, 4), torch.randn(NODES, WIDTH)
    expected = conv(x, edge_index)
    with onehop.patch():
        torch.testing.assert_close(conv(x, edge_index.int()), expected)


def test_the_layers_that_the_documents_list_can_be_named():
    from onehop.integrations.pyg.rules import known_layers

    page = Path(__file__).parents[3] / "docs" / "reference" / "pyg-layers.md"
    served = re.findall(r"^\| `(\w+)` \| (?:fast|tiered) ", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(served) > 40
    assert set(served) - set(known_layers()) == set()


def test_layers_that_run_in_blocks_can_be_asked_for_alone(monkeypatch):
    small_blocks.force(monkeypatch)
    edge_index = torch.randint(20, (2, 90))
    layers = [
        (convs.RGCNConv(6, 4, num_relations=2, num_blocks=2), (torch.randint(2, (90,)),)),
        (convs.DNAConv(6), ()),
    ]
    for layer, more in layers:
        x = torch.randn(20, 3, 6) if isinstance(layer, convs.DNAConv) else torch.randn(20, 6)
        expected = layer(x, edge_index, *more)
        with onehop.patch(only=[type(layer).__name__]):
            report = onehop.explain(layer, x, edge_index, *more)
            assert "in blocks" in str(report)
            torch.testing.assert_close(layer(x, edge_index, *more), expected)


def test_known_layers_are_all_tested():
    from onehop.integrations.pyg.known import OWN_MESSAGES
    from onehop.integrations.pyg.rules import known_layers

    named = {
        module.message.__qualname__.split(".")[0]
        for case in CASES.values()
        for module in _layers(case.make())
    }
    # In test_several_reductions.py, test_heterogeneous_attention.py, test_relational_attention.py,
    # test_heat.py, test_compiled_softmax.py and, since it needs torch_sparse, test_sparse_tensors.py.
    others = {"EGConv", "HANConv", "HEATConv", "HGTConv", "PANConv", "PointTransformerConv", "RGATConv"}
    assert named | set(OWN_MESSAGES) | others == set(known_layers())


def _layers(model: torch.nn.Module) -> list[Any]:
    return [module for module in model.modules() if isinstance(module, gnn.MessagePassing)]
