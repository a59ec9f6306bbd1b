"""Layers under autocast on the CPU: PyG's dtypes, no larger errors, and the fast paths all the same."""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch_geometric import nn as gnn

import onehop
from onehop.integrations import reports
from tests.integrations.same import HALF, learned, same
from tests.pairs import pairwise

NODES, EDGES, WIDTH = 60, 400, 12


@dataclass(frozen=True)
class Case:
    """A layer, whether it takes weights or features of edges, and what ``explain`` says of its fast path."""

    make: Callable[[], nn.Module]
    form: str
    edge: str = ""


def perceptron(width=WIDTH):
    return nn.Sequential(nn.Linear(width, 8), nn.ReLU(), nn.Linear(8, 8))


BLOCKS = "its message in blocks"
CASES = {
    "GCN narrower": Case(lambda: gnn.GCNConv(WIDTH, 5), "scaled source, scaled destination"),
    "GCN wider": Case(lambda: gnn.GCNConv(WIDTH, 30), "scaled destination, before its linear step"),
    "GCN without bias": Case(lambda: gnn.GCNConv(WIDTH, 30, bias=False), "before its linear step"),
    "GCN weighted": Case(lambda: gnn.GCNConv(WIDTH, 30), "before its linear step", "weight"),
    "GCN plain": Case(lambda: gnn.GCNConv(WIDTH, 30, normalize=False), "before its linear step"),
    "GCN plain without bias": Case(
        lambda: gnn.GCNConv(WIDTH, 30, normalize=False, bias=False), "before its linear step"
    ),
    "SAGE narrower": Case(lambda: gnn.SAGEConv(WIDTH, 4), "source, after its linear step"),
    "SAGE wider": Case(lambda: gnn.SAGEConv(WIDTH, 30), "source"),
    "SAGE sum without root": Case(lambda: gnn.SAGEConv(WIDTH, 4, aggr="sum", root_weight=False), "after"),
    "SAGE max": Case(lambda: gnn.SAGEConv(WIDTH, 4, aggr="max"), "source"),
    "SAGE normalised": Case(lambda: gnn.SAGEConv(WIDTH, 4, normalize=True), "after its linear step"),
    "Graph narrower": Case(lambda: gnn.GraphConv(WIDTH, 4), "after its linear step", "weight"),
    "Graph wider": Case(lambda: gnn.GraphConv(WIDTH, 30), "source * weight", "weight"),
    "GIN": Case(lambda: gnn.GINConv(perceptron()), "source"),
    "SG": Case(lambda: gnn.SGConv(WIDTH, 4, K=2), "scaled source"),
    "TAG": Case(lambda: gnn.TAGConv(WIDTH, 4, K=2), "scaled source"),
    "Cheb": Case(lambda: gnn.ChebConv(WIDTH, 4, K=3), "source * weight"),
    "GAT": Case(lambda: gnn.GATConv(WIDTH, 4, heads=3), "GAT, fused"),
    "GAT with edges": Case(lambda: gnn.GATConv(WIDTH, 4, heads=3, edge_dim=7), "GAT, fused", "features"),
    "GATv2": Case(lambda: gnn.GATv2Conv(WIDTH, 4, heads=3), "GATv2, fused"),
    "GATv2 shared": Case(lambda: gnn.GATv2Conv(WIDTH, 4, share_weights=True), "GATv2, fused"),
    "GATv2 with edges": Case(
        lambda: gnn.GATv2Conv(WIDTH, 4, heads=3, edge_dim=7), "GATv2, fused", "features"
    ),
    "Transformer": Case(lambda: gnn.TransformerConv(WIDTH, 4, heads=3), "dot-product attention, fused"),
    "Transformer with edges": Case(
        lambda: gnn.TransformerConv(WIDTH, 4, heads=3, edge_dim=7), "dot-product attention, fused", "features"
    ),
    "AGNN": Case(lambda: gnn.AGNNConv(), "dot-product attention, fused"),
    "SuperGAT MX": Case(lambda: gnn.SuperGATConv(WIDTH, 4, heads=2, attention_type="MX").eval(), "softmax"),
    "SuperGAT SD": Case(lambda: gnn.SuperGATConv(WIDTH, 4, heads=2, attention_type="SD").eval(), "softmax"),
    "ResGatedGraph": Case(lambda: gnn.ResGatedGraphConv(WIDTH, 4), BLOCKS),
    "GINE": Case(lambda: gnn.GINEConv(perceptron(), edge_dim=7), BLOCKS, "features"),
    "CG": Case(lambda: gnn.CGConv(WIDTH, dim=7), BLOCKS, "features"),
    "Edge": Case(lambda: gnn.EdgeConv(perceptron(2 * WIDTH)), BLOCKS),
    "PNA": Case(
        lambda: gnn.PNAConv(
            WIDTH,
            8,
            ["mean", "min", "max", "sum"],
            ["identity", "amplification"],
            torch.bincount(torch.arange(7)),
        ),
        BLOCKS,
    ),
}


@dataclass
class Outcome:
    """What a layer computed: its output, and the gradients of its input and parameters."""

    out: torch.Tensor
    grads: dict[str, torch.Tensor]


@pytest.fixture(autouse=True)
def _every_size():
    with onehop.thresholds.lifted():
        yield
    onehop.unpatch()
    onehop.clear_cache()


@pytest.fixture
def edge_index():
    generator = torch.Generator().manual_seed(1)
    return torch.randint(NODES, (2, EDGES), generator=generator)


def operands(case, edge_index):
    generator = torch.Generator().manual_seed(2)
    number = edge_index.size(1)
    if case.edge == "weight":
        return {"edge_weight": torch.rand(number, generator=generator)}
    if case.edge == "features":
        return {"edge_attr": torch.randn(number, 7, generator=generator)}
    return {}


def run(model, x, edge_index, given, dtype, grad=None) -> Outcome:
    x = x.clone().requires_grad_()
    with torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
        out = model(x, edge_index, **given)
    grad = torch.randn(out.shape, generator=torch.Generator().manual_seed(3)).to(out.dtype)
    named = {"x": x, **dict(model.named_parameters())}
    found = torch.autograd.grad(out, list(named.values()), grad, allow_unused=True)
    return Outcome(out.detach(), {k: g for k, g in zip(named, found, strict=True) if g is not None})


def attempt(*args) -> Outcome | str:
    """What comes of it, or the error's message."""
    try:
        return run(*args)
    except RuntimeError as error:
        return str(error)


def compare(ours: Outcome, theirs: Outcome, exact: Outcome) -> None:
    """Dtypes are PyG's, and errors are not much larger than PyG's own, against float64."""
    assert ours.out.dtype is theirs.out.dtype
    assert ours.grads.keys() == theirs.grads.keys()
    pairs = [(ours.out, theirs.out, exact.out, "out")]
    pairs += [(ours.grads[k], theirs.grads[k], exact.grads[k], k) for k in theirs.grads]
    # Of float64 numbers that cancel: a gradient may be 0 but for that.
    least = 2**-50 * max(float(true.abs().max()) for _, _, true, _ in pairs)
    for found, expected, true, name in pairs:
        assert found.dtype is expected.dtype, name
        size = float(true.abs().max())
        own = float((expected.double() - true).abs().max())
        error = float((found.double() - true).abs().max())
        # att_dst gets what leaky ReLU's two slopes differ by: one score near 0 whose sign changes
        # in the rounding is a tenth of that.
        rounding = 2**-3 if name == "att_dst" else 2**-7
        assert error <= 3 * own + rounding * size + least, (name, error, own, size)


def lowered(function):
    """A function under autocast."""
    return torch.autocast("cpu", dtype=torch.bfloat16)(function)


def cast_by_name(given, dtype):
    return {name: value.to(dtype) for name, value in given.items()}


@pairwise(name=CASES, input_dtype=[torch.float32, torch.bfloat16], dtype=[torch.bfloat16, torch.float16])
def test_dtypes_and_values_are_pygs_on_the_fast_path(name, dtype, input_dtype, edge_index):
    case = CASES[name]
    torch.manual_seed(0)
    model = case.make()
    x = torch.randn(NODES, WIDTH).to(input_dtype)
    given = operands(case, edge_index)
    exact = run(
        copy.deepcopy(model).double(), x.double(), edge_index, cast_by_name(given, torch.double), None
    )
    theirs = attempt(model, x, edge_index, given, dtype)
    if isinstance(theirs, str):
        with onehop.patch():
            assert attempt(model, x, edge_index, given, dtype) == theirs
        return
    with onehop.patch(), reports.recorded() as calls:
        ours = run(model, x, edge_index, given, dtype)
    compare(ours, theirs, exact)
    if input_dtype is torch.float32:
        assert calls
        for call in calls:
            assert call.reason is None
        assert any(case.form in call.form for call in calls), [call.form for call in calls]


@pytest.mark.parametrize("name", ["GCN narrower", "GCN wider", "SAGE wider", "GAT", "Transformer"])
def test_constant_features_keep_their_aggregates(name, edge_index):
    torch.manual_seed(0)
    model, x = CASES[name].make(), torch.randn(NODES, WIDTH)

    def outs():
        return [lowered(lambda: model(x, edge_index))() for _ in range(4)]

    same(lambda: [outs(), *learned(outs()[-1].float(), model)], rtol=0.1, atol=0.05)


@pytest.mark.parametrize("name", CASES)
def test_weights_get_their_gradients_after_a_pass_without(name, edge_index):
    """Autocast keeps copies of parameters; one made where nothing is recorded passes no gradient on."""
    case = CASES[name]
    torch.manual_seed(0)
    model, x = case.make(), torch.randn(NODES, WIDTH)
    given = operands(case, edge_index)
    with torch.autocast("cpu", dtype=torch.bfloat16), onehop.patch():
        out = model(x, edge_index, **given) + 0 * model(x, edge_index, **given)
        out.float().sum().backward()
    assert all(p.grad is not None for p in model.parameters() if p.numel())


def test_the_backward_pass_of_blocks_has_the_autocast_of_the_forward_pass(edge_index):
    torch.manual_seed(0)
    linear = nn.Linear(2 * WIDTH, 5)
    model, x = gnn.EdgeConv(linear, aggr="sum"), torch.randn(NODES, WIDTH)
    for forward, backward in ((False, True), (True, False)):
        grads = []
        for patched in (False, True):
            if patched:
                onehop.patch()
            leaf = x.clone().requires_grad_()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=forward):
                out = model(leaf, edge_index)
            grad = torch.randn(out.shape, generator=torch.Generator().manual_seed(3)).to(out.dtype)
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=backward):
                grads.append(torch.autograd.grad(out, [leaf, linear.weight], grad))
            onehop.unpatch()
        for found, expected in zip(grads[1], grads[0], strict=True):
            assert found.dtype is expected.dtype
            size = float(expected.abs().max())
            assert float((found - expected).abs().max()) <= 2**-5 * size


@pytest.mark.parametrize("kind", [gnn.GATConv, gnn.GATv2Conv, gnn.TransformerConv])
def test_attention_draws_pygs_dropout(kind, edge_index):
    torch.manual_seed(0)
    model, x = kind(WIDTH, 4, heads=2, dropout=0.5), torch.randn(NODES, WIDTH)
    same(lowered(lambda: model(x, edge_index)), **HALF)


def test_float64_is_left_alone(edge_index):
    torch.manual_seed(0)
    model, x = gnn.GCNConv(WIDTH, 30).double(), torch.randn(NODES, WIDTH).double()
    assert lowered(lambda: model(x, edge_index))().dtype is torch.float64
    same(lowered(lambda: model(x, edge_index)))


@pytest.mark.parametrize(
    ("kind", "form"),
    [(gnn.HANConv, ""), (gnn.HGTConv, "source * softmax of scores for each head")],
)
def test_attention_between_types_of_nodes_is_pygs(kind, form, edge_index):
    torch.manual_seed(0)
    model = kind(WIDTH, 8, (["a"], [("a", "to", "a")]), heads=2)
    xs, edges = {"a": torch.randn(NODES, WIDTH)}, {("a", "to", "a"): edge_index}
    calls = same(lowered(lambda: model(xs, edges)["a"]), rtol=0.02, atol=0.02)
    assert [call.form for call in calls] == [form]
