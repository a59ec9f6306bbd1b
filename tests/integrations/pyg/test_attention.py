"""Attention layers: fused, with weights where somebody asks for them; weighted sums; else PyG's."""

import copy
import io
import pickle
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric
from torch import Tensor
from torch_geometric import nn as gnn
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.nn import Linear, MessagePassing

import onehop
from onehop import thresholds
from onehop.integrations import reports
from onehop.integrations.pyg.pending import Pending
from tests.pairs import pairwise

WIDTH = 6
BY_PYG = "source * weight for each head, weights by PyG"

LAYERS: dict[str, Callable[..., MessagePassing]] = {
    "GAT": lambda **kw: gnn.GATConv(WIDTH, 4, heads=3, **kw),
    "GATv2": lambda **kw: gnn.GATv2Conv(WIDTH, 4, heads=3, **kw),
    "Transformer": lambda **kw: gnn.TransformerConv(WIDTH, 4, heads=3, **kw),
}
FUSED = {"GAT": "GAT, fused", "GATv2": "GATv2, fused", "Transformer": "dot-product attention, fused"}


@pytest.fixture
def x() -> Tensor:
    return torch.randn(20, WIDTH, generator=torch.Generator().manual_seed(5))


@pytest.fixture
def edge_attr() -> Tensor:
    return torch.randn(90, 3, generator=torch.Generator().manual_seed(6))


@pytest.fixture(params=list(LAYERS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make(name: str) -> Callable[..., MessagePassing]:
    def build(**kwargs: Any) -> MessagePassing:
        torch.manual_seed(0)
        return LAYERS[name](**kwargs)

    return build


def went(function: Callable[..., object], *args: object, **kwargs: object) -> list[str]:
    """How each propagation went: what the fast path computed, or why there was none."""
    with reports.recorded() as calls:
        function(*args, **kwargs)
    return [call.reason or call.form for call in calls]


def close(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def same(function: Callable[[], Any]) -> list[str]:
    """Checks that the patched result is PyG's, dropout included; returns how it went."""
    torch.manual_seed(3)
    expected, after = function(), torch.get_rng_state()
    with onehop.patch():
        torch.manual_seed(3)
        found = function()
        assert torch.equal(torch.get_rng_state(), after), "other random numbers were drawn"
        how = went(function)
    close(found, expected)
    return how


def raised(function: Callable[[], object]) -> list[tuple[type, str]]:
    """What PyG raises, and what is raised while patched."""
    errors = []
    for patched in (False, True):
        if patched:
            onehop.patch()
        with pytest.raises(Exception) as caught:  # noqa: PT011 - the caller compares the two
            function()
        errors.append((type(caught.value), str(caught.value)))
        onehop.unpatch()
    return errors


# Who asks for weights


@pairwise(dropout=[0.0, 0.5], asked=[True, False])
@pytest.mark.parametrize("featured", [False, True], ids=["plain", "edges"])
def test_weights_that_are_asked_for_come_with_the_fused_result(
    name, make, featured, dropout, asked, x, edge_index, edge_attr, gradients_of
):
    conv = make(dropout=dropout, edge_dim=3 if featured else None)
    extra = (edge_attr,) if featured else ()
    how = same(lambda: conv(x, edge_index, *extra, return_attention_weights=asked))
    assert how == [f"{FUSED[name]}, with weights"]

    def call(model: torch.nn.Module, x: Tensor) -> Tensor:
        out, (_, weight) = model(x, edge_index, *extra, return_attention_weights=True)
        return torch.cat([out.flatten(), weight.flatten()])

    conv, double = conv.double(), x.double()
    extra = tuple(t.double() for t in extra)
    expected = gradients_of(conv, call, x=double)
    with onehop.patch():
        found = gradients_of(conv, call, x=double)
    for key, value in expected.items():
        torch.testing.assert_close(found[key], value, rtol=1e-10, atol=1e-11, msg=key)


def test_weights_asked_for_by_position(x, edge_index):
    conv = gnn.GATConv(WIDTH, 4)
    assert same(lambda: conv(x, edge_index, None, None, True)) == ["GAT, fused, with weights"]


def test_fa_returns_its_weights(x, edge_index):
    conv = gnn.FAConv(WIDTH, dropout=0.5)
    form = "source * tanh of scores * weight"
    assert same(lambda: conv(x, x, edge_index, return_attention_weights=True)) == [form]
    assert conv._alpha is None


def test_a_transformer_keeps_no_weights(x, edge_index):
    conv = gnn.TransformerConv(WIDTH, 4)
    with onehop.patch():
        conv(x, edge_index, return_attention_weights=True)
    assert conv._alpha is None


# Dropout


@pairwise(
    dtype=[torch.float32, torch.float64, torch.bfloat16], probability=[0.0, 0.3, 1.0], training=[True, False]
)
def test_the_same_seed_drops_the_same_weights(name, make, probability, training, dtype, x, edge_index):
    conv = make(dropout=probability).to(dtype).train(training)

    def run() -> tuple[Tensor, Tensor]:
        torch.manual_seed(11)
        return conv(x.to(dtype), edge_index), torch.rand(3)

    expected = run()
    with onehop.patch():
        found = run()
        assert went(run) == [FUSED[name]]
    assert torch.equal(found[1], expected[1])
    tolerance = 0.1 if dtype is torch.bfloat16 else 1e-5
    torch.testing.assert_close(found[0], expected[0], rtol=tolerance, atol=tolerance)


# Shapes


@pytest.mark.parametrize("sources", [20, 9])
def test_bipartite_features(name, edges, sources):
    edge_index = edges(sources, 12, 60)
    torch.manual_seed(0)
    kind = {"GAT": gnn.GATConv, "GATv2": gnn.GATv2Conv, "Transformer": gnn.TransformerConv}[name]
    kwargs = {} if name == "Transformer" else {"add_self_loops": False}
    conv = kind((WIDTH, 5), 4, heads=2, **kwargs)
    pair = (torch.randn(sources, WIDTH), torch.randn(12, 5))
    assert same(lambda: conv(pair, edge_index)) == [FUSED[name]]


def test_bipartite_gat_with_self_loops(edges):
    conv, edge_index = gnn.GATConv((WIDTH, 5), 4, heads=2), edges(20, 12, 60)
    assert same(lambda: conv((torch.ones(20, WIDTH), torch.ones(12, 5)), edge_index)) == ["GAT, fused"]


@pytest.mark.parametrize("size", [None, (20, 12), (20, 20)], ids=str)
def test_gat_without_features_of_the_destinations(size, edges):
    conv, x = gnn.GATConv((WIDTH, 5), 4, heads=2, add_self_loops=False), torch.randn(20, WIDTH)
    edge_index = edges(20, 12, 60)
    assert same(lambda: conv((x, None), edge_index, size=size)) == ["GAT, fused"]


def test_edge_features_in_one_dimension(x, edge_index):
    for kind in (gnn.GATConv, gnn.GATv2Conv):
        conv = kind(WIDTH, 4, edge_dim=1)
        assert same(lambda conv=conv: conv(x, edge_index, torch.ones(90))) == [f"{kind.__name__[:-4]}, fused"]


def test_a_lazy_layer(x, edge_index):
    conv = gnn.GATConv(-1, 4, heads=2)
    with onehop.patch():
        assert went(conv, x, edge_index) == ["GAT, fused"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e30], ids=str)
def test_special_features(name, make, value, x, edge_index):
    conv, x = make(), x.clone()
    x[3] = value
    with torch.no_grad():
        expected = conv(x, edge_index)
        with onehop.patch():
            torch.testing.assert_close(
                conv(x, edge_index), expected, equal_nan=True, rtol=1e-5, atol=1e-5 * value
            ) if value == 1e30 else torch.testing.assert_close(conv(x, edge_index), expected, equal_nan=True)


# The derived edges


@pytest.mark.parametrize("featured", [False, True], ids=["plain", "edges"])
def test_the_graph_is_made_once(name, make, featured, x, edge_index, edge_attr, bounds):
    conv = make(edge_dim=3 if featured else None)
    extra = (edge_attr,) if featured else ()
    # PyG gathers and scatters by indices that are new in each call.
    bounds(index_numbers=1 << 40)
    with onehop.patch():
        conv(x, edge_index, *extra)
        before = onehop.cache_info()
        conv(x, edge_index, *extra)
        after = onehop.cache_info()
    assert (after.misses, after.entries) == (before.misses, before.entries)


@pytest.mark.parametrize("fill_value", ["mean", "add", "min", 2.0, torch.tensor([1.0, 2.0, 3.0])], ids=str)
def test_attributes_of_self_loops_are_pygs(fill_value, x, edge_index, edge_attr, gradients_of):
    torch.manual_seed(0)
    conv = gnn.GATConv(WIDTH, 4, heads=2, edge_dim=3, fill_value=fill_value)

    def call(model: torch.nn.Module, x: Tensor, edge_attr: Tensor) -> Tensor:
        return model(x, edge_index, edge_attr)

    expected = gradients_of(conv, call, x=x, edge_attr=edge_attr)
    with onehop.patch():
        for _ in range(2):
            found = gradients_of(conv, call, x=x, edge_attr=edge_attr)
            for key, value in expected.items():
                torch.testing.assert_close(found[key], value, rtol=1e-4, atol=1e-5, msg=key)


def test_edits_in_place_are_noticed(name, make, x, edge_index, edge_attr):
    conv = make(edge_dim=3)
    with onehop.patch():
        conv(x, edge_index, edge_attr)
        edge_index[0, :10] = 2
        edge_attr[:5] = 7
        found = conv(x, edge_index, edge_attr)
    close(found, conv(x, edge_index, edge_attr))


def test_writing_to_the_edges_that_come_back_is_noticed(x, edge_index):
    conv = gnn.GATConv(WIDTH, 4)
    expected = conv(x, edge_index)
    with onehop.patch():
        _, (derived, _) = conv(x, edge_index, return_attention_weights=True)
        derived[:, :20] = 0
        close(conv(x, edge_index), expected)


@pytest.mark.parametrize(("row", "value"), [(0, 20), (1, 20), (0, -1)], ids=str)
def test_bad_node_numbers_are_pygs_error(make, row, value, x, edge_index):
    edge_index[row, 7] = value
    conv = make()
    errors = raised(lambda: conv(x, edge_index))
    assert errors[0] == errors[1]


def test_missing_edge_features_are_pygs_error(x, edge_index, edge_attr):
    for conv, extra in (
        (gnn.TransformerConv(WIDTH, 4, edge_dim=3), ()),
        (gnn.GATv2Conv(WIDTH, 4), (edge_attr,)),
        (gnn.GATConv(WIDTH, 4, edge_dim=2), (edge_attr,)),
        (gnn.GATConv(WIDTH, 4, edge_dim=3, add_self_loops=False), (edge_attr[:80],)),
    ):
        errors = raised(lambda conv=conv, extra=extra: conv(x, edge_index, *extra))
        assert errors[0] == errors[1]


# Weights that cannot wait


def with_hook(kind: str, conv: MessagePassing, heard: list[object]) -> None:
    def hook(module: MessagePassing, *rest: Any) -> Any:
        heard.extend(rest)
        return rest[0] if kind == "message_forward_pre" else None

    getattr(conv, f"register_{kind}_hook")(hook)


@pytest.mark.parametrize("kind", ["edge_update_forward_pre", "edge_update_forward"])
@pytest.mark.parametrize("layer", ["GAT", "GATv2"])
def test_hooks_on_edge_update_are_called(kind, layer, x, edge_index):
    conv, heard = LAYERS[layer](), []
    with_hook(kind, conv, heard)
    assert same(lambda: conv(x, edge_index)) == [BY_PYG]
    assert len(heard) == 3 * (1 if kind.endswith("pre") else 2)


@pytest.mark.parametrize("kind", ["message_forward_pre", "message_forward", "propagate_forward_pre"])
def test_hooks_on_messages_get_weights(kind, make, x, edge_index):
    conv, heard = make(), []
    with_hook(kind, conv, heard)
    assert same(lambda: conv(x, edge_index)) == ["message passing hooks are registered on it"]
    assert heard
    assert "Pending" not in repr(heard)


def test_edge_update_set_on_an_instance_is_called(x, edge_index):
    conv, called = gnn.GATConv(WIDTH, 4), []
    original = conv.edge_update

    def mock(self: MessagePassing, *args: Any, **kwargs: Any) -> Tensor:
        called.append(1)
        return original(*args, **kwargs)

    conv.edge_update = types.MethodType(mock, conv)
    assert same(lambda: conv(x, edge_index)) == [BY_PYG]
    assert len(called) == 3


class OwnMessage(gnn.GATConv):
    def message(self, x_j: Tensor, alpha: Tensor) -> Tensor:
        assert isinstance(alpha, Tensor)
        return 2 * super().message(x_j, alpha)


COMPILED = "its message, compiled"


class OwnEdgeUpdate(gnn.GATv2Conv):
    def edge_update(self, x_j, x_i, edge_attr, index, ptr, dim_size):
        return super().edge_update(x_j, x_i, edge_attr, index, ptr, dim_size) * 2


class OwnForward(gnn.GATConv):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.lin(x).view(-1, self.heads, self.out_channels)
        scores = ((x * self.att_src).sum(-1), (x * self.att_dst).sum(-1))
        alpha = self.edge_updater(edge_index, alpha=scores, edge_attr=None, size=None)
        return self.propagate(edge_index, x=(x, x), alpha=alpha * 2, size=None)


class CallsForward(gnn.GATConv):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out, _ = super().forward(x, edge_index, return_attention_weights=True)
        return out + super().forward(x, edge_index)


class OwnAttention(gnn.SuperGATConv):
    def get_attention(self, *args: Any, **kwargs: Any) -> Tensor:
        return 2 * super().get_attention(*args, **kwargs)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (OwnMessage, [COMPILED]),
        (OwnEdgeUpdate, [BY_PYG]),
        (OwnForward, [BY_PYG]),
        (CallsForward, ["GAT, fused, with weights", "GAT, fused"]),
        (OwnAttention, [COMPILED]),
    ],
)
@pytest.mark.usefixtures("ordinary_bounds")
def test_subclasses(kind, expected, x, edge_index):
    torch.manual_seed(0)
    conv = kind(WIDTH, 4, heads=2).eval()
    assert same(lambda: conv(x, edge_index)) == expected


def test_a_forward_of_a_transformer_that_reads_the_weights(x, edge_index):
    class Reads(gnn.TransformerConv):
        def forward(self, x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
            lift = x.view(-1, 1, WIDTH)[..., :4]
            out = self.propagate(edge_index, query=lift, key=lift, value=lift, edge_attr=None)
            return out, self._alpha

    conv = Reads(WIDTH, 4)
    assert same(lambda: conv(x, edge_index)) == ["dot-product attention, fused, with weights"]


@pytest.mark.usefixtures("ordinary_bounds")
def test_other_aggregations(x, edge_index):
    for aggr in ("mean", "max", "min"):
        conv = gnn.GATConv(WIDTH, 4, heads=2, aggr=aggr)
        assert same(lambda conv=conv: conv(x, edge_index)) == [BY_PYG]
    conv = gnn.GATConv(WIDTH, 4, aggr="std")
    assert same(lambda: conv(x, edge_index)) == [COMPILED]
    conv = gnn.TransformerConv(WIDTH, 4, aggr="max")
    assert same(lambda: conv(x, edge_index)) == ["its aggregation is not a sum"]


def test_hooks_on_the_projection_of_edges_are_called(make, name, x, edge_index, edge_attr):
    conv, seen = make(edge_dim=3), []
    conv.lin_edge.register_forward_hook(lambda *_: seen.append(1))
    assert same(lambda: conv(x, edge_index, edge_attr)) == [FUSED[name]]
    assert len(seen) == 3


@pytest.mark.parametrize(("columns", "over", "products"), [(2, 1 << 20, 0), (3, 1, 1), (3, 0, 0)])
def test_features_of_many_columns_are_multiplied_before(
    columns, over, products, make, name, x, edge_index, edge_attr, monkeypatch
):
    conv, seen, forward = make(edge_dim=columns), [], Linear.forward
    monkeypatch.setattr(Linear, "forward", lambda self, x: seen.append(self) or forward(self, x))
    features = edge_attr[:, :columns].clone().requires_grad_()
    edges = edge_index.size(1)
    if name == "GATv2":
        # New self loops take the place of old ones.
        edges = int((edge_index[0] != edge_index[1]).sum()) + len(x)
    product = edges * conv.heads * conv.out_channels * 4
    with thresholds.changed(edge_columns=3, cached_bytes=product + over):
        assert same(lambda: conv(x, edge_index, features)) == [FUSED[name]]
        seen.clear()
        with onehop.patch():
            conv(x, edge_index, features)
    # GATConv's part of the score is a product with few columns whatever the features have.
    assert seen.count(conv.lin_edge) == (0 if name == "GAT" else products)


def test_a_projection_of_edges_that_was_replaced(make, name, x, edge_index, edge_attr):
    conv = make(edge_dim=3)
    conv.lin_edge = torch.nn.Sequential(torch.nn.Linear(3, 12), torch.nn.Tanh())
    assert same(lambda: conv(x, edge_index, edge_attr)) == [FUSED[name]]


def test_explaining_goes_round_it(make, x, edge_index):
    conv = make()
    conv.add_self_loops = False
    expected = conv(x, edge_index)
    with onehop.patch():
        conv.explain = True
        conv._edge_mask = torch.zeros(90)
        conv._loop_mask = torch.ones(90, dtype=torch.bool)
        conv._apply_sigmoid = False
        assert torch.isfinite(conv(x, edge_index)).all()
        conv.explain = None
        close(conv(x, edge_index), expected)
    close(conv(x, edge_index), expected)


def test_gnn_explainer(make, x, edge_index):
    conv = make()

    def explanation() -> Tensor:
        torch.manual_seed(1)
        explainer = Explainer(
            conv,
            algorithm=GNNExplainer(epochs=3),
            explanation_type="model",
            node_mask_type="attributes",
            edge_mask_type="object",
            model_config={"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"},
        )
        return explainer(x, edge_index, index=3).edge_mask

    expected = explanation()
    with onehop.patch():
        torch.testing.assert_close(explanation(), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("asked", [None, True])
def test_autocast(name, make, asked, x, edge_index):
    conv = make()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = conv(x, edge_index, return_attention_weights=asked)
        with onehop.patch():
            found = conv(x, edge_index, return_attention_weights=asked)
            how = went(conv, x, edge_index, return_attention_weights=asked)
    pairs = [(found, expected)] if asked is None else [(found[0], expected[0]), (found[1][1], expected[1][1])]
    for ours, theirs in pairs:
        assert ours.dtype == theirs.dtype
        torch.testing.assert_close(ours, theirs, rtol=0.05, atol=0.05)
    assert len(how) == 1
    assert "fused" in how[0]
    assert ("with weights" in how[0]) == bool(asked)


def test_an_error_between_scores_and_sum_leaves_nothing_behind(x, edge_index, monkeypatch):
    conv = gnn.GATConv(WIDTH, 4)
    expected = conv(x, edge_index)
    with onehop.patch():
        with monkeypatch.context() as patched:
            patched.setattr(conv, "propagate", lambda *args, **kwargs: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                conv(x, edge_index)
        # Outside forward, nobody has said that weights are not wanted.
        scores = torch.ones(20, 1)
        weights = conv.edge_updater(edge_index, alpha=(scores, scores), edge_attr=None, size=None)
        assert not isinstance(weights, Pending)
        close(conv(x, edge_index), expected)


def test_a_propagate_of_the_instance_gets_weights(x, edge_index):
    conv, got = gnn.GATConv(WIDTH, 4), []

    def own(edge_index: Tensor, x: Any, alpha: Any, size: Any) -> Tensor:
        got.append(type(alpha))
        return x[0]

    conv.propagate = own
    with onehop.patch():
        conv(x, edge_index)
    assert got == [Tensor]


# Copies, compilers and other tools


@pytest.mark.parametrize("how", ["pickle", "deepcopy", "torch.save"])
def test_copies(how, make, name, x, edge_index):
    conv = make()
    expected = conv(x, edge_index)
    onehop.patch()
    conv(x, edge_index)
    if how == "deepcopy":
        twin = copy.deepcopy(conv)
    elif how == "pickle":
        text = pickle.dumps(conv)
        assert b"onehop" not in text
        twin = pickle.loads(text)
    else:
        buffer = io.BytesIO()
        torch.save(conv, buffer)
        buffer.seek(0)
        twin = torch.load(buffer, weights_only=False)
    assert went(twin, x, edge_index) == [FUSED[name]]
    close(twin(x, edge_index), expected)
    onehop.unpatch()
    close(twin(x, edge_index), expected)
    assert went(twin, x, edge_index) == []


def test_data_parallel_replicas_use_their_own_parameters(x, edge_index):
    conv = gnn.GATConv(WIDTH, 4, bias=False)
    with onehop.patch():
        conv(x, edge_index)
        replica = conv._replicate_for_data_parallel()
        replica._parameters.update(conv._parameters)
        replica._modules.update(conv._modules)
        twin = copy.deepcopy(conv.lin)
        with torch.no_grad():
            twin.weight.mul_(2)
        replica._modules["lin"] = twin
        found = replica(x, edge_index)
        assert went(replica, x, edge_index) == ["GAT, fused"]
    with torch.no_grad():
        conv.lin.weight.mul_(2)
    close(found, conv(x, edge_index))


def test_the_forward_passes_for_pygs():
    theirs = gnn.GATConv.forward
    with onehop.patch():
        ours = gnn.GATConv.forward
        assert ours is not theirs
        assert (ours.__module__, ours.__qualname__) == (theirs.__module__, theirs.__qualname__)
        assert "torch_geometric.nn.conv.gat_conv.GATConv.forward" in onehop.patched()
    assert gnn.GATConv.forward is theirs


def test_the_rendered_edge_updater_keeps_its_name(x, edge_index):
    gnn.GATConv(WIDTH, 4)
    theirs = gnn.GATConv.edge_updater
    with onehop.patch():
        ours = gnn.GATConv.edge_updater
        assert ours is not theirs
        assert ours.__module__ == theirs.__module__
        gnn.GATConv(WIDTH, 4)
        assert gnn.GATConv.edge_updater is ours
    assert gnn.GATConv.edge_updater is theirs


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler imports deprecated names
def test_torch_compile(make, x, edge_index):
    torch._dynamo.reset()
    conv = make()
    try:
        expected = torch.compile(conv, fullgraph=True, backend="eager")(x, edge_index)
    except torch._dynamo.exc.Unsupported as error:  # torch 2.6, of PyG's way to drop self loops
        pytest.skip(f"this torch does not compile the layer without the patch either: {error}")
    torch._dynamo.reset()
    with onehop.patch():
        compiled = torch.compile(conv, fullgraph=True, backend="eager")
        close(compiled(x, edge_index), expected)
        compiled(x, edge_index).sum().backward()
    torch._dynamo.reset()


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_torch_jit_trace(make, x, edge_index):
    conv = make()
    expected = conv(x, edge_index)
    with onehop.patch():
        traced = torch.jit.trace(conv, (x, edge_index), check_trace=False)
    assert "onehop::" not in str(traced.inlined_graph)
    close(traced(x, edge_index), expected)


@pytest.mark.skipif(
    torch_geometric.__version__.startswith("2.6.") and not hasattr(torch.fx._symbolic_trace, "Union"),
    reason="to_hetero of PyG 2.6 does not work with this torch, patched or not",
)
def test_to_hetero(edges):
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = gnn.GATConv((-1, -1), 4, heads=2, add_self_loops=False)
            self.second = gnn.GATv2Conv((-1, -1), 3, add_self_loops=False)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.second(self.first(x, edge_index).relu(), edge_index)

    metadata = (["a", "b"], [("a", "to", "b"), ("b", "to", "a")])
    features = {"a": torch.randn(20, 4), "b": torch.randn(12, 4)}
    links = {("a", "to", "b"): edges(20, 12, 50), ("b", "to", "a"): edges(12, 20, 40)}
    torch.manual_seed(0)
    model = gnn.to_hetero(Net(), metadata)
    expected = model(features, links)
    with onehop.patch():
        found = model(features, links)
        assert went(model, features, links) == ["GAT, fused"] * 2 + ["GATv2, fused"] * 2
    for kind, value in expected.items():
        close(found[kind], value)


def test_only_some_layers(x, edge_index):
    out = "patch(only=...) leaves its class out"
    with onehop.patch(only="GATv2Conv"):
        assert went(gnn.GATConv(WIDTH, 4), x, edge_index) == [out]
        assert went(gnn.GATv2Conv(WIDTH, 4), x, edge_index) == ["GATv2, fused"]


def test_wrappers_held_somewhere_are_harmless_without_the_patch(x, edge_index):
    conv = gnn.GATConv(WIDTH, 4)
    expected = conv(x, edge_index)
    with onehop.patch():
        forward = gnn.GATConv.forward
    close(forward(conv, x, edge_index), expected)


def test_parameters_of_another_dtype_are_left_to_pyg(took_fast_path, edge_index):
    conv, x = gnn.AGNNConv().double(), torch.randn(20, 8)
    expected = conv(x, edge_index)
    with onehop.patch():
        out = conv(x, edge_index)
        (reason,) = took_fast_path(conv, x, edge_index)
    assert out.dtype is expected.dtype
    torch.testing.assert_close(out, expected)
    assert reason == "its features and parameters differ in dtype"
