"""Every layer in the table, patched and unpatched: outputs and all gradients by name."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric import nn as gnn
from torch_geometric.nn import conv as convs

import onehop
from tests.integrations.pyg import small_blocks
from tests.integrations.pyg.layers import CASES, NODES, WIDTH, case_call, operands_of
from tests.integrations.same import BITS, SINGLE, assert_same, fast, seeded, step


@pytest.mark.parametrize("name", CASES)
def test_float64_results_are_pygs(name, edge_index):
    case = CASES[name]
    torch.manual_seed(0)
    run = step(case_call(case, edge_index), case.make().double(), **operands_of(case, torch.float64))
    fast(run, rtol=1e-10, atol=1e-11, times=1)
    with onehop.patch():
        found, again = (seeded(run)[0] for _ in range(2))
    assert_same(again, found, **BITS)


@pytest.mark.parametrize("aggr", ["mean", "sum", "max", "min"])
@pytest.mark.parametrize("shape", ["pair", "no targets", "no targets, size", "pair, size"])
def test_bipartite_sage(aggr, shape, edges):
    torch.manual_seed(0)
    model, size = gnn.SAGEConv((WIDTH, WIDTH), 4, aggr=aggr).double(), (20, 12) if "size" in shape else None
    x = (torch.randn(20, WIDTH).double(), torch.randn(12, WIDTH).double() if "pair" in shape else None)
    run = step(model, x, edges(20, 12, 60), size=size)
    fast(run, rtol=1e-10, atol=1e-12)
    # Without sizes, PyG gives as many rows as there are sources.
    assert run()[0].size(0) == (20 if shape == "no targets" else 12)


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
def test_output_dtype_is_promoted_as_pyg_does(x_dtype, weight_dtype, aggr, edge_index):
    conv = gnn.SimpleConv(aggr=aggr)
    x = torch.randn(NODES, WIDTH).to(x_dtype)
    weight = None if weight_dtype is None else torch.rand(90).to(weight_dtype)
    tolerance = 0.1 if conv(x, edge_index, weight).dtype.itemsize == 2 else 1e-5
    fast(lambda: conv(x, edge_index, weight), rtol=tolerance, atol=tolerance)


def test_int32_edges(edge_index):
    conv, x = gnn.SAGEConv(WIDTH, 4), torch.randn(NODES, WIDTH)
    fast(lambda: conv(x, edge_index.int()), **SINGLE)


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
        alone = {"only": [type(layer).__name__]}
        calls = fast(lambda layer=layer, x=x, more=more: layer(x, edge_index, *more), **SINGLE, **alone)
        assert {call.form for call in calls} == {"its message in blocks"}


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
