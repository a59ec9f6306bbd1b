"""Every layer in the table, patched and unpatched: outputs and all gradients by name."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric import nn as gnn
from torch_geometric.nn import conv as convs
from torch_geometric.nn.conv import WLConvContinuous
from torch_geometric.nn.models import LabelPropagation
from torch_geometric.nn.models.linkx import SparseLinear

import onehop
from tests.integrations.pyg import small_blocks

NODES = 20
WIDTH = 6


@dataclass
class Case:
    make: Callable[[], torch.nn.Module]
    weighted: bool = False
    call: dict[str, Any] = field(default_factory=dict)
    features: int = WIDTH


def mlp() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, 5), torch.nn.ReLU(), torch.nn.Linear(5, 4))


class Plain(gnn.MessagePassing):
    """A user's layer with the default message."""

    def __init__(self, aggr: str, flow: str = "source_to_target") -> None:
        super().__init__(aggr=aggr, flow=flow)
        self.lin = torch.nn.Linear(WIDTH, 4)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=self.lin(x))


class Inherits(gnn.GCNConv):
    """A user's subclass that inherits the message."""


class InheritsGAT(gnn.GATConv):
    """Likewise, with weights for edges."""


CASES = {
    "GCN": Case(lambda: gnn.GCNConv(WIDTH, 4)),
    "GCN weighted": Case(lambda: gnn.GCNConv(WIDTH, 4), weighted=True),
    "GCN improved": Case(lambda: gnn.GCNConv(WIDTH, 4, improved=True)),
    "GCN improved weighted": Case(lambda: gnn.GCNConv(WIDTH, 4, improved=True), weighted=True),
    "GCN without loops": Case(lambda: gnn.GCNConv(WIDTH, 4, add_self_loops=False)),
    "GCN without loops weighted": Case(lambda: gnn.GCNConv(WIDTH, 4, add_self_loops=False), weighted=True),
    "GCN unnormalised": Case(lambda: gnn.GCNConv(WIDTH, 4, normalize=False)),
    "GCN cached": Case(lambda: gnn.GCNConv(WIDTH, 4, cached=True)),
    "GCN backwards": Case(lambda: gnn.GCNConv(WIDTH, 4, flow="target_to_source")),
    "GCN backwards weighted": Case(lambda: gnn.GCNConv(WIDTH, 4, flow="target_to_source"), weighted=True),
    "GCN mean": Case(lambda: gnn.GCNConv(WIDTH, 4, aggr="mean")),
    "GCN max": Case(lambda: gnn.GCNConv(WIDTH, 4, aggr="max")),
    "GCN subclass": Case(lambda: Inherits(WIDTH, 4)),
    "SG": Case(lambda: gnn.SGConv(WIDTH, 4, K=3)),
    "SG weighted": Case(lambda: gnn.SGConv(WIDTH, 4, K=2), weighted=True),
    "SSG": Case(lambda: gnn.SSGConv(WIDTH, 4, alpha=0.1, K=3)),
    "APPNP": Case(lambda: gnn.APPNP(K=3, alpha=0.1)),
    "APPNP dropout": Case(lambda: gnn.APPNP(K=3, alpha=0.1, dropout=0.4)),
    "TAG": Case(lambda: gnn.TAGConv(WIDTH, 4, K=2)),
    "TAG unnormalised": Case(lambda: gnn.TAGConv(WIDTH, 4, K=2, normalize=False)),
    "LG": Case(lambda: gnn.LGConv()),
    "GCN2": Case(lambda: gnn.GCN2Conv(WIDTH, alpha=0.2), call={"x_0": True}),
    "ARMA": Case(lambda: gnn.ARMAConv(WIDTH, 4, num_stacks=2, num_layers=2)),
    "ARMA one stack": Case(lambda: gnn.ARMAConv(WIDTH, 4)),
    "MixHop": Case(lambda: gnn.MixHopConv(WIDTH, 4)),
    "PDN": Case(lambda: gnn.PDNConv(WIDTH, 4, edge_dim=3, hidden_channels=5), call={"edge_attr": True}),
    "ClusterGCN": Case(lambda: gnn.ClusterGCNConv(WIDTH, 4, diag_lambda=0.1)),
    "Cheb": Case(lambda: gnn.ChebConv(WIDTH, 4, K=3)),
    "LE": Case(lambda: gnn.LEConv(WIDTH, 4)),
    "LE weighted": Case(lambda: gnn.LEConv(WIDTH, 4), weighted=True),
    "LE mean": Case(lambda: gnn.LEConv(WIDTH, 4, aggr="mean"), weighted=True),
    "GatedGraph": Case(lambda: gnn.GatedGraphConv(WIDTH, num_layers=2), weighted=True),
    "WLContinuous": Case(lambda: WLConvContinuous(), weighted=True),
    "LabelPropagation": Case(lambda: _Labels(), call={}),
    "SparseLinear": Case(lambda: _Sparse(), call={}),
    "MF": Case(lambda: gnn.MFConv(WIDTH, 4)),
    "Signed": Case(lambda: _Signed()),
    "GIN": Case(lambda: gnn.GINConv(mlp(), train_eps=True)),
    "GIN max": Case(lambda: gnn.GINConv(mlp(), aggr="max")),
    "GIN backwards": Case(lambda: gnn.GINConv(mlp(), flow="target_to_source")),
    "Simple self loop": Case(lambda: gnn.SimpleConv(combine_root="self_loop")),
    "GAT": Case(lambda: gnn.GATConv(WIDTH, 4, heads=3)),
    "GAT one head": Case(lambda: gnn.GATConv(WIDTH, 4)),
    "GAT mean of heads": Case(lambda: gnn.GATConv(WIDTH, 4, heads=3, concat=False)),
    "GAT residual": Case(lambda: gnn.GATConv(WIDTH, 4, heads=2, residual=True, bias=False)),
    "GAT without loops": Case(lambda: gnn.GATConv(WIDTH, 4, heads=2, add_self_loops=False)),
    "GAT backwards": Case(lambda: gnn.GATConv(WIDTH, 4, heads=2, flow="target_to_source")),
    "GAT dropout": Case(lambda: gnn.GATConv(WIDTH, 4, heads=3, dropout=0.4)),
    "GAT all dropped": Case(lambda: gnn.GATConv(WIDTH, 4, heads=3, dropout=1.0)),
    "GAT edges": Case(lambda: gnn.GATConv(WIDTH, 4, heads=3, edge_dim=3), call={"edge_attr": True}),
    "GAT edges dropout": Case(
        lambda: gnn.GATConv(WIDTH, 4, heads=3, edge_dim=3, fill_value=0.5, dropout=0.4),
        call={"edge_attr": True},
    ),
    **{f"GAT {a}": Case(lambda a=a: gnn.GATConv(WIDTH, 4, heads=2, aggr=a)) for a in ("mean", "max")},
    "GAT subclass": Case(lambda: InheritsGAT(WIDTH, 4, heads=2)),
    "GATv2": Case(lambda: gnn.GATv2Conv(WIDTH, 4, heads=3)),
    "GATv2 shared": Case(lambda: gnn.GATv2Conv(WIDTH, 4, heads=3, share_weights=True, concat=False)),
    "GATv2 backwards": Case(lambda: gnn.GATv2Conv(WIDTH, 4, heads=2, flow="target_to_source")),
    "GATv2 dropout": Case(lambda: gnn.GATv2Conv(WIDTH, 4, heads=3, dropout=0.4, residual=True)),
    "GATv2 edges": Case(lambda: gnn.GATv2Conv(WIDTH, 4, heads=3, edge_dim=3), call={"edge_attr": True}),
    "GATv2 edges dropout": Case(
        lambda: gnn.GATv2Conv(WIDTH, 4, heads=3, edge_dim=3, dropout=0.4), call={"edge_attr": True}
    ),
    "GATv2 max": Case(lambda: gnn.GATv2Conv(WIDTH, 4, heads=2, aggr="max")),
    "Transformer": Case(lambda: gnn.TransformerConv(WIDTH, 4, heads=3)),
    "Transformer beta": Case(lambda: gnn.TransformerConv(WIDTH, 4, heads=3, beta=True, concat=False)),
    "Transformer backwards": Case(lambda: gnn.TransformerConv(WIDTH, 4, heads=2, flow="target_to_source")),
    "Transformer dropout": Case(lambda: gnn.TransformerConv(WIDTH, 4, heads=3, dropout=0.4)),
    "Transformer edges": Case(
        lambda: gnn.TransformerConv(WIDTH, 4, heads=3, edge_dim=3, dropout=0.4), call={"edge_attr": True}
    ),
    "AGNN": Case(lambda: gnn.AGNNConv()),
    "AGNN fixed": Case(lambda: gnn.AGNNConv(requires_grad=False, add_self_loops=False)),
    "SuperGAT MX": Case(lambda: gnn.SuperGATConv(WIDTH, 4, heads=3, dropout=0.4)),
    "SuperGAT SD": Case(lambda: gnn.SuperGATConv(WIDTH, 4, heads=3, attention_type="SD", concat=False)),
    "FA": Case(lambda: gnn.FAConv(WIDTH, dropout=0.4), call={"x_0": True}),
    "FA backwards": Case(lambda: gnn.FAConv(WIDTH, flow="target_to_source"), call={"x_0": True}),
    "FA mean": Case(lambda: gnn.FAConv(WIDTH, aggr="mean", eps=0.0), call={"x_0": True}),
    **{f"SAGE {a}": Case(lambda a=a: gnn.SAGEConv(WIDTH, 4, aggr=a)) for a in ("mean", "sum", "max", "min")},
    "SAGE project": Case(lambda: gnn.SAGEConv(WIDTH, 4, project=True, normalize=True)),
    **{
        f"Graph {a}": Case(lambda a=a: gnn.GraphConv(WIDTH, 4, aggr=a), weighted=True)
        for a in ("add", "mean", "max", "min")
    },
    "Graph unweighted": Case(lambda: gnn.GraphConv(WIDTH, 4)),
    **{
        f"Simple {a}": Case(lambda a=a: gnn.SimpleConv(aggr=a), weighted=True) for a in ("sum", "mean", "max")
    },
    **{f"Plain {a}": Case(lambda a=a: Plain(a)) for a in ("sum", "mean", "max", "min")},
    "Plain backwards": Case(lambda: Plain("max", flow="target_to_source")),
}


class _Labels(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = LabelPropagation(num_layers=2, alpha=0.9)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.inner(x, edge_index, post_step=lambda y: y) + x.sum()


class _Sparse(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = SparseLinear(NODES, 4)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.inner(edge_index) + x.sum()


class _Signed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = gnn.SignedConv(WIDTH, 4, first_aggr=True)
        self.second = gnn.SignedConv(4, 3, first_aggr=False)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        positive, negative = edge_index[:, :50], edge_index[:, 50:]
        return self.second(self.first(x, positive, negative), positive, negative)


def case_call(case: Case, edge_index: Tensor) -> Callable[..., Tensor]:
    def call(
        model: torch.nn.Module, x: Tensor, edge_weight: Tensor | None = None, **others: Tensor
    ) -> Tensor:
        operands: list[Tensor] = [x]
        if "x_0" in others:
            operands.append(others["x_0"])
        operands.append(edge_index)
        if edge_weight is not None:
            operands.append(edge_weight)
        if "edge_attr" in others:
            operands.append(others["edge_attr"])
        return model(*operands)

    return call


def operands_of(case: Case, dtype: torch.dtype) -> dict[str, Tensor]:
    torch.manual_seed(1)
    operands = {"x": torch.randn(NODES, WIDTH, dtype=torch.float64)}
    if case.weighted:
        operands["edge_weight"] = torch.rand(90, dtype=torch.float64) + 0.1
    if "x_0" in case.call:
        operands["x_0"] = torch.randn(NODES, WIDTH, dtype=torch.float64)
    if "edge_attr" in case.call:
        operands["edge_attr"] = torch.randn(90, 3, dtype=torch.float64)
    return {name: tensor.to(dtype) for name, tensor in operands.items()}


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


@pytest.mark.parametrize("name", CASES)
def test_float32_results_are_as_exact_as_pygs(name, edge_index, gradients_of):
    case = CASES[name]
    torch.manual_seed(0)
    model = case.make()
    call, operands = case_call(case, edge_index), operands_of(case, torch.float32)
    exact = gradients_of(model.double(), call, **{k: v.double() for k, v in operands.items()})
    model.float()
    theirs = gradients_of(model, call, **operands)
    with onehop.patch():
        ours = gradients_of(model, call, **operands)
    for key, value in exact.items():
        assert ours[key].dtype == theirs[key].dtype, key
        scale = value.abs().max().item()
        allowed = 4 * (theirs[key] - value).abs().max().item() + 16 * torch.finfo(torch.float32).eps * scale
        assert (ours[key] - value).abs().max().item() <= allowed, key


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
    "name",
    [
        "SAGE mean",
        "GIN",
        "GCN",
        "GCN weighted",
        "Graph add",
        "Graph mean",
        "LE weighted",
        "GAT",
        "GAT edges",
        "GAT mean",
        "GATv2",
        "GATv2 edges",
        "Transformer edges",
        "AGNN",
        "SuperGAT MX",
        "FA",
    ],
)
def test_second_derivatives(name, edge_index):
    case = CASES[name]
    torch.manual_seed(0)
    model = case.make().double()
    call = case_call(case, edge_index)
    operands = {k: v.requires_grad_() for k, v in operands_of(case, torch.float64).items()}
    names = list(operands)

    def penalty() -> list[Tensor]:
        torch.manual_seed(3)
        out = call(model, **operands).tanh().sum()
        grads = torch.autograd.grad(out, list(operands.values()), create_graph=True)
        square = sum(grad.square().sum() for grad in grads)
        return torch.autograd.grad(square, [*operands.values(), *model.parameters()], allow_unused=True)

    expected = penalty()
    with onehop.patch():
        found = penalty()
    for index, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        label = names[index] if index < len(names) else f"parameter {index}"
        torch.testing.assert_close(
            ours, theirs, rtol=1e-9, atol=1e-11, msg=lambda m, label=label: f"{label}: {m}"
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


def test_gcn_under_autocast(edge_index):
    torch.manual_seed(0)
    conv, x = gnn.GCNConv(WIDTH, 4), torch.randn(NODES, WIDTH)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = conv(x, edge_index)
        with onehop.patch():
            found = conv(x, edge_index)
    assert found.dtype == expected.dtype
    torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)


def test_int32_edges(edge_index):
    conv, x = gnn.SAGEConv(WIDTH, 4), torch.randn(NODES, WIDTH)
    expected = conv(x, edge_index)
    with onehop.patch():
        torch.testing.assert_close(conv(x, edge_index.int()), expected)


def test_no_edges_at_all():
    empty, x = torch.empty(2, 0, dtype=torch.long), torch.randn(NODES, WIDTH)
    for name in ("GCN", "SAGE max", "GIN", "Graph unweighted", "LE"):
        model = CASES[name].make()
        expected = model(x, empty)
        with onehop.patch():
            torch.testing.assert_close(model(x, empty), expected, msg=name)


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
