"""DGL's layers, unchanged, under the patch: outputs and every gradient."""

import pytest
import torch

import onehop
from onehop.integrations import reports

dgl = pytest.importorskip("dgl", reason="dgl is not installed here: make test-dgl runs these tests")

import dgl.nn.pytorch as dnn  # noqa: E402

from tests.integrations.dgl.dgl_graphs import GRAPHS, bipartite, edges, features  # noqa: E402

IN, OUT, HEADS = 6, 4, 3

PLAIN = {
    "GraphConv": lambda: dnn.GraphConv(IN, OUT, allow_zero_in_degree=True),
    "GraphConv widening": lambda: dnn.GraphConv(IN, 2 * IN, norm="right", allow_zero_in_degree=True),
    "GraphConv left": lambda: dnn.GraphConv(IN, OUT, norm="left", allow_zero_in_degree=True),
    "SAGEConv mean": lambda: dnn.SAGEConv(IN, OUT, "mean"),
    "SAGEConv gcn": lambda: dnn.SAGEConv(IN, OUT, "gcn"),
    "SAGEConv pool": lambda: dnn.SAGEConv(IN, OUT, "pool"),
    "GINConv sum": lambda: dnn.GINConv(torch.nn.Linear(IN, OUT), "sum", learn_eps=True),
    "GINConv mean": lambda: dnn.GINConv(None, "mean"),
    "GINConv max": lambda: dnn.GINConv(torch.nn.Linear(IN, OUT), "max"),
    "DotGatConv": lambda: dnn.DotGatConv(IN, OUT, HEADS, allow_zero_in_degree=True),
}

ATTENTION = {
    "plain": {},
    "residual": {"residual": True},
    "residual of the same width": {"residual": True, "out": IN // HEADS},
    "without bias": {"bias": False},
    "activation": {"activation": torch.nn.functional.elu},
    "dropout": {"feat_drop": 0.3, "attn_drop": 0.4},
    "slope": {"negative_slope": 0.01},
}
KINDS = {"GATConv": dnn.GATConv, "GATv2Conv": dnn.GATv2Conv}
FUSED = [(kind, options) for kind in KINDS for options in ATTENTION] + [("GATv2Conv", "shared weights")]


def attention(kind: str, options: str, **more):
    chosen = {**ATTENTION, "shared weights": {"share_weights": True}}[options] | more
    return KINDS[kind](IN, chosen.pop("out", OUT), HEADS, allow_zero_in_degree=True, **chosen).double()


@pytest.fixture(params=["random", "int32", "block", "hub"])
def g(request):
    return GRAPHS[request.param]()


@pytest.mark.parametrize("name", PLAIN)
def test_layer(name, g, same_as_dgl):
    torch.manual_seed(0)
    layer = PLAIN[name]().double()
    reasons = same_as_dgl(lambda layer, x: layer(g, x), layer, x=features(g.num_src_nodes(), IN))
    assert reasons
    assert all(reason is None for reason in reasons)


@pytest.mark.parametrize("name", ["SAGEConv pool", "GINConv max"])
def test_maximum_without_gradients(name, g):
    torch.manual_seed(0)
    layer, x = PLAIN[name](), torch.randn(g.num_src_nodes(), IN)
    with torch.no_grad():
        expected = layer(g, x)
        with onehop.patch(only="dgl"), reports.recorded() as calls:
            torch.testing.assert_close(layer(g, x), expected)
    assert [call.reason for call in calls] == [None]


@pytest.mark.parametrize("name", ["GraphConv", "SAGEConv mean", "GINConv sum"])
def test_edge_weights(name, g, same_as_dgl):
    torch.manual_seed(0)
    layer = PLAIN[name]().double()
    x, w = features(g.num_src_nodes(), IN), features(g.num_edges(), seed=1)
    if name == "SAGEConv mean":
        w = w.unsqueeze(1)
    call = lambda layer, x, w: layer(g, x, edge_weight=w)  # noqa: E731
    assert same_as_dgl(call, layer, x=x, w=w) == [None]


@pytest.mark.parametrize(("kind", "options"), FUSED)
def test_attention_is_one_fused_call(kind, options, g, same_as_dgl):
    torch.manual_seed(0)
    layer = attention(kind, options)
    x = features(g.num_src_nodes(), IN)
    assert same_as_dgl(lambda layer, x: layer(g, x), layer, x=x) == [None]
    layer.eval()
    assert same_as_dgl(lambda layer, x: layer(g, x), layer, x=x) == [None]


def largest_saved(layer, g, x) -> int:
    """The most entries of any tensor that the backward pass is kept for."""
    sizes = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t):
        layer(g, x).sum().backward()
    return max(sizes)


@pytest.mark.parametrize("options", ["plain", "dropout"])
def test_gatv2_keeps_nothing_of_edges_times_width(options):
    g, layer = GRAPHS["hub"](), attention("GATv2Conv", options)
    x = features(30, IN).requires_grad_()
    rows_of_edges = g.num_edges() * HEADS * OUT
    assert largest_saved(layer, g, x) >= rows_of_edges
    with onehop.patch(only="dgl"):
        assert largest_saved(layer, g, x) <= max(g.num_edges() * HEADS, 30 * HEADS * OUT)


@pytest.mark.parametrize(("kind", "options"), FUSED)
def test_attention_weights(kind, options, same_as_dgl):
    torch.manual_seed(0)
    g, layer = GRAPHS["random"](), attention(kind, options)
    call = lambda layer, x: layer(g, x, get_attention=True)  # noqa: E731
    assert same_as_dgl(call, layer, x=features(30, IN)) == [None]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("widths", [(IN, IN), (IN, 9)], ids=str)
def test_attention_between_two_kinds_of_nodes(kind, widths, same_as_dgl):
    torch.manual_seed(0)
    g = bipartite(25, 14, 90)
    layer = KINDS[kind](widths, OUT, HEADS, residual=True, feat_drop=0.2, allow_zero_in_degree=True).double()
    u, v = features(25, widths[0]), features(14, widths[1], seed=1)
    assert same_as_dgl(lambda layer, u, v: layer(g, (u, v)), layer, u=u, v=v) == [None]


def test_gat_with_one_transformation_for_both_ends(same_as_dgl):
    g, layer = bipartite(25, 14, 90), attention("GATConv", "plain")
    call = lambda layer, u, v: layer(g, (u, v))  # noqa: E731
    assert same_as_dgl(call, layer, u=features(25, IN), v=features(14, IN, seed=1)) == [None]


def hooked(layer):
    layer.attn_drop.register_forward_hook(lambda *_: None)
    return layer


def other_activation(layer):
    layer.leaky_relu = torch.nn.ReLU()
    return layer


STEPS = {
    "hook": (hooked, {}, "hooks are registered on its attn_drop"),
    "activation": (other_activation, {}, "its leaky_relu is not torch's LeakyReLU"),
    "edge weights": (lambda layer: layer, {"edge_weight": features(150)}, "multiplied by edge weights"),
}


@pytest.mark.parametrize("case", STEPS)
def test_gat_that_cannot_be_fused_runs_step_by_step(case, same_as_dgl):
    torch.manual_seed(0)
    change, options, sentence = STEPS[case]
    g, layer = GRAPHS["random"](), change(attention("GATConv", "dropout"))
    reasons = same_as_dgl(lambda layer, x: layer(g, x, **options), layer, x=features(30, IN))
    assert sentence in reasons[0]
    # The sum of scores, then the softmax and the weighted sum, which do run here.
    assert "u_add_v" in reasons[1]
    assert reasons[2:] == [None, None]


@pytest.mark.parametrize("kind", KINDS)
def test_destinations_without_edges_are_reported_by_dgl(kind):
    layer = KINDS[kind](IN, OUT, HEADS)
    with onehop.patch(only="dgl"), pytest.raises(dgl.DGLError, match="0-in-degree"):
        layer(GRAPHS["random"](), torch.ones(30, IN))


@pytest.mark.parametrize("kind", KINDS)
def test_features_of_the_wrong_length_are_reported_by_dgl(kind):
    layer = KINDS[kind](IN, OUT, HEADS, allow_zero_in_degree=True)
    with onehop.patch(only="dgl"), pytest.raises(dgl.DGLError):
        layer(GRAPHS["random"](), torch.ones(29, IN))


@pytest.mark.parametrize("call", [{}, {"graph": None}, {"other": 1}], ids=["nothing", "no graph", "unknown"])
def test_calls_that_do_not_fit_are_reported_by_python(call):
    layer = dnn.GATConv(IN, OUT, HEADS)
    with pytest.raises((TypeError, AttributeError)) as expected:
        layer(**call)
    with onehop.patch(only="dgl"), pytest.raises(expected.type) as found:
        layer(**call)
    assert str(found.value) == str(expected.value)


def test_features_with_another_dimension_in_front(same_as_dgl):
    torch.manual_seed(0)
    layer, g = attention("GATConv", "plain"), GRAPHS["random"]()
    reasons = same_as_dgl(lambda layer, x: layer(g, x), layer, x=features(30, 2, IN))
    assert reasons[0] == "the features have more than two dimensions"


def test_subclass_with_a_forward_of_its_own(same_as_dgl):
    class Mine(dnn.GATConv):
        def forward(self, graph, feat):
            return super().forward(graph, feat) * 2

    torch.manual_seed(0)
    layer = Mine(IN, OUT, HEADS, allow_zero_in_degree=True).double()
    g = GRAPHS["random"]()
    assert same_as_dgl(lambda layer, x: layer(g, x), layer, x=features(30, IN)) == [None]


def test_lstm_keeps_dgls_way(same_as_dgl):
    torch.manual_seed(0)
    layer, g = dnn.SAGEConv(IN, OUT, "lstm").double(), GRAPHS["random"]()
    (reason,) = same_as_dgl(lambda layer, x: layer(g, x), layer, x=features(30, IN))
    assert "copied to the edges" in reason


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = dnn.GATConv(IN, OUT, HEADS, attn_drop=0.3)
        self.second = dnn.SAGEConv(OUT * HEADS, 5, "mean")

    def forward(self, g, x):
        return self.second(g, self.first(g, x).flatten(1).relu())


def losses(net, g, x, y) -> list[float]:
    torch.manual_seed(5)
    optimiser = torch.optim.Adam(net.parameters(), 0.01)
    found = []
    for _ in range(10):
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(g, x), y)
        loss.backward()
        optimiser.step()
        found.append(loss.item())
    return found


def test_training_goes_the_same_way():
    g = dgl.add_self_loop(GRAPHS["random"]())
    x, y = features(30, IN, dtype=torch.float32), torch.arange(30) % 5
    torch.manual_seed(0)
    plain = Net()
    patched = Net()
    patched.load_state_dict(plain.state_dict())
    expected = losses(plain, g, x, y)
    with onehop.patch(only="dgl"), reports.recorded() as calls:
        found = losses(patched, g, x, y)
    assert {call.reason for call in calls} == {None}
    torch.testing.assert_close(torch.tensor(found), torch.tensor(expected), rtol=1e-4, atol=1e-5)


def test_explain_names_layers_and_reasons():
    g = dgl.add_self_loop(dgl.graph(edges(30, 30, 150), num_nodes=30))

    class Some(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used = torch.nn.ModuleList([dnn.GATv2Conv(IN, OUT, HEADS), dnn.SAGEConv(IN, OUT, "lstm")])
            self.unused = dnn.GraphConv(IN, OUT)

        def forward(self, x):
            return [layer(g, x) for layer in self.used]

    rows = {row.kind: row for row in onehop.explain(Some(), torch.randn(30, IN)).layers}
    assert rows["GATv2Conv"].fast
    assert "fused" in rows["GATv2Conv"].form
    assert "copied to the edges" in rows["SAGEConv"].reason
    assert "none of DGL's operators" in rows["GraphConv"].reason
