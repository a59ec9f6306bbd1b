"""``dgl.ops`` under the patch: DGL's own numbers, forward and backward."""

import contextlib

import pytest
import torch

import onehop
from onehop.integrations import reports

dgl = pytest.importorskip("dgl", reason="dgl is not installed here: make test-dgl runs these tests")

from tests.integrations.dgl.dgl_graphs import GRAPHS, bipartite, edges, features  # noqa: E402

REDUCTIONS = ("sum", "mean", "max", "min")


@pytest.fixture(params=GRAPHS)
def g(request):
    return GRAPHS[request.param]()


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_copy_u(g, reduce, same_as_dgl):
    x = features(g.num_src_nodes(), 5)
    assert len(same_as_dgl(lambda x: getattr(dgl.ops, f"copy_u_{reduce}")(g, x), x=x)) == 1


@pytest.mark.parametrize("op", ["mul", "div"])
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_u_and_e(g, op, reduce, same_as_dgl):
    x, w = features(g.num_src_nodes(), 5), features(g.num_edges(), 1, seed=1).abs() + 1
    if g.num_edges() == 0 and reduce in ("max", "min"):
        pytest.skip("without edges, the backward pass of DGL's own weighted maximum fails")
    same_as_dgl(lambda x, w: getattr(dgl.ops, f"u_{op}_e_{reduce}")(g, x, w), x=x, w=w)


@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize(
    ("of_node", "of_edge"),
    [
        ((), ()),
        ((), (1,)),
        ((7,), ()),
        ((7,), (1,)),
        ((3, 4), ()),
        ((3, 4), (1,)),
        ((3, 4), (1, 1)),
        ((3, 4), (3, 1)),
        ((3, 1), (3, 1)),
        ((2, 3, 4), (2, 3, 1)),
    ],
    ids=str,
)
def test_shapes_that_broadcast(of_node, of_edge, reduce, same_as_dgl):
    g = GRAPHS["random"]()
    x, w = features(g.num_nodes(), *of_node), features(g.num_edges(), *of_edge, seed=1)
    with torch.no_grad():
        expected = getattr(dgl.ops, f"u_mul_e_{reduce}")(g, x, w)
        with onehop.patch(only="dgl"), reports.recorded() as calls:
            found = getattr(dgl.ops, f"u_mul_e_{reduce}")(g, x, w)
    assert [call.reason for call in calls] == [None]
    torch.testing.assert_close(found, expected)
    if reduce in ("sum", "mean"):
        reasons = same_as_dgl(lambda x, w: getattr(dgl.ops, f"u_mul_e_{reduce}")(g, x, w), x=x, w=w)
        assert reasons == [None]


@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize("shape", [(1,), (5,), (17,), (3, 4), (2, 3, 4)], ids=str)
def test_a_weight_for_each_column(shape, reduce, same_as_dgl):
    g = GRAPHS["random"]()
    x, w = features(g.num_nodes(), *shape), features(g.num_edges(), *shape, seed=1)
    for op in ("mul", "div"):
        reasons = same_as_dgl(
            lambda x, w, op=op: getattr(dgl.ops, f"u_{op}_e_{reduce}")(g, x, w), x=x, w=w.abs() + 1
        )
        assert reasons == [None]


@pytest.mark.parametrize("width", [1, 3, 17, 63])
def test_widths(width, same_as_dgl):
    g = GRAPHS["random"]()
    assert same_as_dgl(lambda x: dgl.ops.copy_u_sum(g, x), x=features(30, width)) == [None]


def test_features_that_are_not_contiguous(same_as_dgl):
    g = GRAPHS["random"]()
    assert same_as_dgl(lambda x: dgl.ops.copy_u_sum(g, x[:, ::2]), x=features(30, 12)) == [None]


@pytest.mark.parametrize("reduce", ["max", "min"])
def test_extremum_of_nothing_is_infinite_and_of_a_graph_without_edges_zero(reduce):
    x = torch.ones(30, 2)
    with onehop.patch(only="dgl"):
        found = getattr(dgl.ops, f"copy_u_{reduce}")(GRAPHS["random"](), x)
        none = getattr(dgl.ops, f"copy_u_{reduce}")(GRAPHS["no edges"](), x[:5])
    assert found[-1].tolist() == [-torch.inf if reduce == "max" else torch.inf] * 2
    assert none.tolist() == [[0.0, 0.0]] * 5


def test_extremum_passes_over_nan_as_dgl_does():
    g, x = GRAPHS["random"](), features(30, 4)
    x[3] = torch.nan
    expected = dgl.ops.copy_u_max(g, x)
    with onehop.patch(only="dgl"), reports.recorded() as calls:
        found = dgl.ops.copy_u_max(g, x)
    torch.testing.assert_close(found, expected, equal_nan=True)
    assert "passes over NaN" in calls[0].reason


@pytest.fixture(params=[True, False], ids=["libxsmm", "without"])
def _libxsmm(request):
    """DGL's two kernels, of which one takes the last of the edges that tie, and one the first."""
    before = dgl.is_libxsmm_enabled()
    dgl.use_libxsmm(request.param)
    yield
    dgl.use_libxsmm(before)


@pytest.mark.usefixtures("_libxsmm")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("reduce", ["max", "min"])
@pytest.mark.parametrize(
    ("of_node", "of_edge"),
    [((), ()), ((5,), None), ((5,), ()), ((1,), (1,)), ((3, 1), (3, 1)), ((3, 4), (3, 1))],
)
def test_the_winner_is_dgls(of_node, of_edge, reduce, dtype, same_as_dgl):
    g = GRAPHS["random"]()
    x = features(30, *of_node, dtype=dtype)
    if of_edge is None:
        reasons = same_as_dgl(lambda x: getattr(dgl.ops, f"copy_u_{reduce}")(g, x), x=x)
    else:
        w = features(150, *of_edge, dtype=dtype, seed=1)
        reasons = same_as_dgl(lambda x, w: getattr(dgl.ops, f"u_mul_e_{reduce}")(g, x, w), x=x, w=w)
    assert reasons == [None]


@pytest.mark.usefixtures("_libxsmm")
def test_the_winner_is_dgls_in_a_graph_that_is_cut_into_blocks(same_as_dgl):
    source, target = edges(4000, 4000, 60_000)
    g = dgl.graph((source, target), num_nodes=4000)
    x = features(4000, 128, dtype=torch.float32).clamp(min=0)
    assert same_as_dgl(lambda x: dgl.ops.copy_u_max(g, x), x=x) == [None]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_pass_over_nan_as_in_dgl(dtype):
    g, x = GRAPHS["random"](), features(30, 4, dtype=dtype)
    x[3] = torch.nan
    grads = []
    with reports.recorded() as calls:
        for patched in (False, True):
            leaf = x.clone().requires_grad_()
            with onehop.patch(only="dgl") if patched else contextlib.nullcontext():
                out = dgl.ops.copy_u_max(g, leaf)
            out[out.isfinite()].sum().backward()
            grads.append(leaf.grad)
    assert [call.reason for call in calls] == [None]
    assert torch.equal(*grads)


@pytest.mark.parametrize("shape", [(), (1,), (4,), (4, 1), (2, 3, 1)], ids=str)
def test_edge_softmax(g, shape, same_as_dgl):
    scores = features(g.num_edges(), *shape)
    assert same_as_dgl(lambda s: dgl.ops.edge_softmax(g, s), s=scores) == [None]


@pytest.mark.parametrize("shape", [(1,), (6,), (3, 5)], ids=str)
@pytest.mark.parametrize("name", ["u_dot_v", "v_dot_u"])
def test_dot(g, name, shape, same_as_dgl):
    u, v = features(g.num_src_nodes(), *shape), features(g.num_dst_nodes(), *shape, seed=1)
    left, right = (u, v) if name == "u_dot_v" else (v, u)
    assert same_as_dgl(lambda a, b: getattr(dgl.ops, name)(g, a, b), a=left, b=right) == [None]


def test_update_all_fills_empty_rows_with_zero(same_as_dgl):
    g = GRAPHS["random"]()
    x = features(30, 3)

    def run(x):
        with g.local_scope():
            g.ndata["x"] = x
            g.update_all(dgl.function.copy_u("x", "m"), dgl.function.max("m", "out"))
            return g.ndata["out"]

    with torch.no_grad():
        expected = run(x)
        with onehop.patch(only="dgl"):
            torch.testing.assert_close(run(x), expected)
    assert expected[-1].tolist() == [0.0, 0.0, 0.0]


def several_types():
    return dgl.heterograph({("a", "to", "b"): edges(9, 9, 20), ("b", "of", "a"): edges(9, 9, 20)})


def aggregate_both(g):
    with g.local_scope():
        g.nodes["a"].data["x"] = torch.ones(g.num_nodes("a"), 2)
        g.nodes["b"].data["x"] = torch.ones(g.num_nodes("b"), 2)
        g.multi_update_all(
            {t: (dgl.function.copy_u("x", "m"), dgl.function.sum("m", "out")) for t in ("to", "of")}, "sum"
        )
        return g.nodes["a"].data["out"]


REFUSED = {
    "copy_e": (lambda g: dgl.ops.copy_e_sum(g, features(150, 3)), "copy_rhs and sum"),
    "add": (lambda g: dgl.ops.u_add_e_sum(g, features(30, 3), features(150, 1)), "add and sum"),
    "wide edges": (lambda g: dgl.ops.u_mul_e_max(g, features(30, 3), features(150, 3)), "one number an edge"),
    "wider edges": (
        lambda g: dgl.ops.u_mul_e_sum(g, features(30, 1), features(150, 3)),
        "one number an edge",
    ),
    "half": (lambda g: dgl.ops.copy_u_sum(g, features(30, 3, dtype=torch.bfloat16)), "bfloat16"),
    "u_add_v": (lambda g: dgl.ops.u_add_v(g, features(30, 3), features(30, 3)), "u_add_v"),
    "u_dot_e": (lambda g: dgl.ops.u_dot_e(g, features(30, 3), features(150, 3)), "u_dot_e"),
    "by source": (lambda g: dgl.ops.edge_softmax(g, features(150, 1), norm_by="src"), "each source's edges"),
    "some edges": (
        lambda g: dgl.ops.edge_softmax(g, features(2, 1), eids=torch.tensor([4, 7])),
        "some of the edges",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_give_dgls_result_and_a_sentence(case):
    g, (call, sentence) = GRAPHS["random"](), REFUSED[case]
    expected = call(g)
    with onehop.patch(only="dgl"), reports.recorded() as calls:
        found = call(g)
    assert torch.equal(found, expected)
    assert sentence in calls[0].reason


def test_autocast_is_left_to_dgl():
    g, x = GRAPHS["random"](), features(30, 3, dtype=torch.float32)
    with onehop.patch(only="dgl"), reports.recorded() as calls, torch.autocast("cpu"):
        dgl.ops.copy_u_sum(g, x)
    assert "autocast" in calls[0].reason


def test_a_graph_on_a_device_without_a_backend_is_left_to_dgl(monkeypatch):
    g, x = GRAPHS["random"](), features(30, 3)
    expected = dgl.ops.copy_u_sum(g, x)
    monkeypatch.setattr(dgl.backend, "to_backend_ctx", lambda context: torch.device("meta"))
    with onehop.patch(only="dgl"), reports.recorded() as calls:
        found = dgl.ops.copy_u_sum(g, x)
    assert torch.equal(found, expected)
    assert calls[0].reason.startswith("its graph is on meta, which has no backend: cpu ")


def test_functorch_is_left_to_dgl():
    g, x = GRAPHS["random"](), features(30, 3)
    with onehop.patch(only="dgl"), reports.recorded() as calls, pytest.raises(RuntimeError):
        torch.func.vmap(lambda x: dgl.ops.copy_u_sum(g, x))(x.expand(2, 30, 3))
    assert "functorch" in calls[0].reason


def test_several_types_of_edges_are_left_to_dgl():
    g = several_types()
    lists = [torch.ones(9, 2), torch.ones(9, 2)]
    expected = dgl.ops.copy_u_sum(g, lists)
    with onehop.patch(only="dgl"), reports.recorded() as calls:
        found = dgl.ops.copy_u_sum(g, lists)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert "2 types of edges" in calls[0].reason


def test_one_relation_after_another_takes_the_fast_path():
    g = several_types()
    expected = aggregate_both(g)
    with onehop.patch(only="dgl"), reports.recorded() as calls:
        found = aggregate_both(g)
    assert torch.equal(found, expected)
    assert [call.reason for call in calls] == [None, None]


@pytest.mark.parametrize(
    "call",
    [
        lambda g: dgl.ops.copy_u_sum(g, torch.ones(29, 2)),
        lambda g: dgl.ops.u_mul_e_sum(g, torch.ones(30, 2), torch.ones(150, 1).double()),
        lambda g: dgl.ops.u_mul_e_sum(g, torch.ones(30, 2), torch.ones(151, 1)),
        lambda g: dgl.ops.copy_u_sum(g, None),
    ],
    ids=["rows", "dtypes", "edges", "nothing"],
)
def test_errors_are_dgls_own(call):
    g = GRAPHS["random"]()
    with pytest.raises(Exception) as expected:  # noqa: PT011 - whatever DGL raises
        call(g)
    with onehop.patch(only="dgl"), pytest.raises(type(expected.value)) as found:
        call(g)
    assert str(found.value).splitlines()[-1] == str(expected.value).splitlines()[-1]


@pytest.mark.parametrize("make", [GRAPHS["random"], GRAPHS["block"], lambda: bipartite(25, 14, 90)])
def test_graph_from_dgl(make):
    g = make()
    graph = onehop.Graph.from_dgl(g)
    x, w = features(g.num_src_nodes(), 3), features(g.num_edges(), seed=1)
    torch.testing.assert_close(onehop.aggregate(graph, x, w), dgl.ops.u_mul_e_sum(g, x, w.unsqueeze(1)))


def test_graph_from_something_else():
    with pytest.raises(onehop.ArgumentError, match=r"expected a DGLGraph, got dict"):
        onehop.Graph.from_dgl({})
    with pytest.raises(onehop.ArgumentError, match=r"one type of edges, got 2.*graph\[etype\]"):
        onehop.Graph.from_dgl(several_types())
    assert onehop.Graph.from_dgl(several_types()["to"]).num_edges == 20
