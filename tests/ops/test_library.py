import pytest
import torch
from torch.autograd import forward_ad

import onehop
from onehop import ArgumentError, BackendError, Graph
from onehop.ops.aggregate import REDUCTIONS
from tests.ops.hostile_graphs import HOSTILE
from tests.pairs import pairwise


@pytest.fixture
def graph():
    edge_index, num_src, num_dst = HOSTILE["bipartite_wide"]
    return Graph.from_edge_index(edge_index, size=(num_src, num_dst))


def leaf(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def test_a_backward_pass_asks_for_the_backend_of_its_call(graph):
    x = leaf(graph.num_src, 5).detach()
    forward = (x, None, graph.number, graph.num_dst, graph.num_edges, "max", False, False, True)
    out, ties = torch.ops.onehop.extremum(*forward, "")
    with pytest.raises(ArgumentError, match="nobody"):
        torch.ops.onehop.extremum_grad(*forward, "nobody", out, ties, torch.ones_like(out), [True, False])


@pytest.mark.parametrize("mean", [False, True], ids=["sum", "mean"])
@pytest.mark.parametrize("scaled", [False, True], ids=["plain", "scaled"])
def test_opcheck_aggregate(graph, mean, scaled):
    vectors = (
        (leaf(graph.num_edges), leaf(graph.num_src), leaf(graph.num_dst)) if scaled else (None, None, None)
    )
    args = (leaf(graph.num_src, 5), *vectors, graph.number, graph.num_dst, False, mean, False, "")
    torch.library.opcheck(torch.ops.onehop.aggregate.default, args)


def test_opcheck_aggregate_with_heads(graph):
    args = (leaf(graph.num_src, 6), leaf(graph.num_edges, 2), None, None, graph.number, graph.num_dst)
    torch.library.opcheck(torch.ops.onehop.aggregate.default, (*args, False, True, False, ""))


@pytest.mark.parametrize("reduce", ["max", "min"])
def test_opcheck_extremum(graph, reduce):
    args = (
        leaf(graph.num_src, 5),
        leaf(graph.num_edges),
        graph.number,
        graph.num_dst,
        graph.num_edges,
        reduce,
        False,
        False,
        True,
        "",
    )
    torch.library.opcheck(torch.ops.onehop.extremum.default, args)


def test_opcheck_extremum_grad(graph):
    x, weight = leaf(graph.num_src, 5).detach(), leaf(graph.num_edges).detach()
    sizes = (graph.number, graph.num_dst, graph.num_edges)
    forward = (x, weight, *sizes, "max", False, False, True, "")
    out, ties = torch.ops.onehop.extremum(*forward)
    args = (*forward, out, ties, torch.ones_like(out), [True, True])
    torch.library.opcheck(torch.ops.onehop.extremum_grad.default, args)


@pytest.mark.parametrize("mean", [False, True], ids=["sum", "mean"])
def test_opcheck_sddmm(graph, mean):
    args = (
        leaf(graph.num_dst, 2, 5),
        leaf(graph.num_src, 2, 5),
        graph.number,
        graph.num_edges,
        mean,
        False,
        "",
    )
    torch.library.opcheck(torch.ops.onehop.sddmm.default, args)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler imports deprecated names
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_compiles_as_one_graph(graph, reduce):
    def layer(x, weight, scale):
        return onehop.aggregate(graph, x.relu(), weight, reduce, dst_scale=scale).sin()

    inputs = [leaf(graph.num_src, 6), leaf(graph.num_edges), leaf(graph.num_dst)]
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    ours, expected = compiled(*inputs), layer(*inputs)
    torch.testing.assert_close(ours, expected)
    grad = torch.randn_like(ours)
    for a, b in zip(
        torch.autograd.grad(ours, inputs, grad), torch.autograd.grad(expected, inputs, grad), strict=True
    ):
        torch.testing.assert_close(a, b)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_sddmm_compiles_as_one_graph(graph):
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda d, s: onehop.sddmm(graph, d, s).exp(), fullgraph=True, backend="aot_eager"
    )
    dst, src = leaf(graph.num_dst, 4), leaf(graph.num_src, 4)
    torch.testing.assert_close(compiled(dst, src), onehop.sddmm(graph, dst, src).exp())


def test_gradients_of_torch_func_are_refused(graph):
    with pytest.raises(BackendError, match=r"onehop\.aggregate.*take torch\.autograd\.grad"):
        torch.func.grad(lambda x: onehop.aggregate(graph, x).sum())(torch.randn(graph.num_src, 3))


def test_derivatives_in_forward_mode_are_refused(graph):
    x = torch.randn(graph.num_src, 3)
    weight = torch.rand(graph.num_edges)
    refused = pytest.raises(BackendError, match=r"forward mode.*take torch\.autograd\.grad")
    with refused:
        torch.func.jvp(lambda x: onehop.aggregate(graph, x), (x,), (torch.ones_like(x),))
    with forward_ad.dual_level():
        with refused:
            onehop.aggregate(graph, forward_ad.make_dual(x, torch.ones_like(x)))
        with refused, torch.no_grad():
            onehop.aggregate(graph, x, weight=forward_ad.make_dual(weight, torch.ones_like(weight)))
        expected = onehop.aggregate(graph, x)  # what has no tangent is as usual
    assert torch.equal(expected, onehop.aggregate(graph, x))


def test_a_graph_that_is_gone_is_named():
    edge_index, num_src, _ = HOSTILE["random"]
    graph = Graph.from_edge_index(edge_index, num_src)
    number, x = graph.number, torch.randn(num_src, 2)
    del graph
    with pytest.raises(ArgumentError, match="keep the Graph alive"):
        torch.ops.onehop.aggregate(x, None, None, None, number, num_src, False, False, False, "")


def attention_arguments(graph, rule):
    key = {"gat": leaf(graph.num_src, 2), "gatv2": None, "dot": leaf(graph.num_src, 2, 3)}[rule]
    query = leaf(graph.num_dst, 2) if rule == "gat" else leaf(graph.num_dst, 2, 3)
    edge = leaf(graph.num_edges, 2) if rule == "gat" else leaf(graph.num_edges, 4)
    weight = None if rule == "gat" else leaf(6, 4)
    att = leaf(2, 3) if rule == "gatv2" else None
    operands = (leaf(graph.num_src, 2, 3), key, query, att, edge, weight, None, torch.tensor([7]))
    return (*operands, graph.number, graph.num_dst, graph.num_edges, rule, 0.2, 0.3)


@pytest.mark.parametrize("backend", ["", "reference"], ids=["cpu", "reference"])
@pairwise(rule=["gat", "gatv2", "dot"])
@pytest.mark.parametrize("with_weights", [False, True], ids=["plain", "weights"])
def test_opcheck_attend(graph, rule, with_weights, backend):
    arguments = (*attention_arguments(graph, rule), with_weights, backend)
    torch.library.opcheck(torch.ops.onehop.attention.default, arguments)


@pytest.mark.parametrize("rule", ["gat", "gatv2", "dot"])
def test_opcheck_attend_grad(graph, rule):
    arguments = (*attention_arguments(graph, rule), True, "")
    arguments = tuple(a.detach() if isinstance(a, torch.Tensor) else a for a in arguments)
    out, softmax, weights = torch.ops.onehop.attention(*arguments)
    wanted = [t is not None for t in arguments[:6]]
    more = (out, softmax, weights, torch.ones_like(out), torch.ones_like(weights), wanted)
    torch.library.opcheck(torch.ops.onehop.attention_grad.default, (*arguments, *more))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("operator", ["gat", "gatv2", "attention"])
def test_attention_compiles_as_one_graph(graph, operator):
    rule = "dot" if operator == "attention" else operator
    value, key, query, att = attention_arguments(graph, rule)[:4]
    inputs = {"gat": [value, key, query], "gatv2": [value, query, att], "dot": [query, key, value]}[rule]

    def layer(*tensors):
        out, weights = getattr(onehop, operator)(
            graph, *(t.sin() for t in tensors), dropout=0.5, return_attention_weights=True
        )
        return out.relu().sum() + weights.square().sum()

    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    results = []
    for function in (compiled, layer):
        torch.manual_seed(3)
        loss = function(*inputs)
        results.append((loss, *torch.autograd.grad(loss, inputs)))
    for ours, expected in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected)
