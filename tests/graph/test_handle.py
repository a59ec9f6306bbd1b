"""Handles of graphs in compiled programs."""

import gc

import pytest
import torch

import onehop
from onehop import Graph
from onehop.calls import ArgExtremum, Attention, Extremum, name_of, on
from onehop.errors import ArgumentError
from onehop.graph.handle import handle_of, held

EDGES = torch.tensor([[0, 1, 2, 2], [1, 2, 0, 1]])


def test_a_graph_lives_as_long_as_its_handle():
    graph = Graph.from_edge_index(EDGES, num_nodes=3)
    number, handle = graph.number, handle_of(graph)
    del graph
    gc.collect()
    assert held(handle).number == number
    # A program may pass on another tensor of the same memory.
    view = handle.detach()
    del handle
    gc.collect()
    assert held(view).number == number
    copy = view.clone()
    del view
    gc.collect()
    with pytest.raises(ArgumentError, match="was freed"):
        held(copy)


def test_rows_behind_the_last_edge_are_ignored():
    graph = Graph.from_edge_index(EDGES, num_nodes=3)
    x, weight = torch.randn(3, 5, dtype=torch.float64), torch.rand(6, dtype=torch.float64)
    expected = onehop.aggregate(graph, x, weight[:4])
    leaves = [each.clone().requires_grad_() for each in (x, weight)]
    args = (leaves[0], leaves[1], None, None, handle_of(graph), 3, False, False, False, "")
    found = torch.ops.onehop.aggregate.held(*args)
    torch.testing.assert_close(found, expected)
    found.square().sum().backward()
    assert leaves[1].grad[4:].tolist() == [0, 0]
    torch.testing.assert_close(leaves[1].grad[:4], (2 * expected[EDGES[1]] * x[EDGES[0]]).sum(1))
    with pytest.raises(ArgumentError, match="a row for each of 4 edges"):
        torch.ops.onehop.aggregate.held(x, weight[:3], *args[2:])


@pytest.mark.parametrize("needed", ["x", "weight", "both"])
def test_the_overload_is_registered_as_torch_wants_it(needed):
    graph = Graph.from_edge_index(EDGES, num_nodes=3)
    x = torch.randn(3, 5, dtype=torch.float64, requires_grad=needed != "weight")
    weight = torch.rand(6, dtype=torch.float64, requires_grad=needed != "x")
    args = (x, weight, None, None, handle_of(graph), 3, False, False, False, "")
    torch.library.opcheck(torch.ops.onehop.aggregate.held, args)


def _numbers(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


HEADS, SCORES = _numbers(3, 2, 5), _numbers(3, 2)
# Types of calls, their operands, and which has a row for each edge: it has two rows too many.
OF_EDGES = {
    "extremum": (Extremum, {"x": _numbers(3, 5), "weight": _numbers(6)}, "weight"),
    "arg_extremum": (ArgExtremum, {"x": _numbers(3, 4), "weight": _numbers(6, 2)}, "weight"),
    "gat": (Attention, {"value": HEADS, "key": SCORES, "query": SCORES, "edge": _numbers(6, 2)}, "edge"),
    "dot": (Attention, {"value": HEADS, "key": HEADS, "query": HEADS, "edge": _numbers(6, 2, 5)}, "edge"),
}


@pytest.mark.parametrize("name", OF_EDGES)
def test_each_operator_ignores_rows_behind_the_last_edge(name):
    kind, operands, of_edges = OF_EDGES[name]
    graph, more = Graph.from_edge_index(EDGES, num_nodes=3), {"rule": name} if kind is Attention else {}
    operator = getattr(torch.ops.onehop, name_of(kind))

    def results(rows, number, run):
        leaf = operands[of_edges][:rows].clone().requires_grad_()
        call = on(graph, kind, **{**operands, of_edges: leaf}, **more)._replace(graph=number)
        call = call._replace(edges=rows) if "edges" in kind._fields else call
        out = run(*call)[0]
        return call, out, torch.autograd.grad(out.square().sum(), leaf)[0]

    _, expected, gradient = results(4, graph.number, operator)
    call, found, padded = results(6, handle_of(graph), operator.held)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(padded, torch.cat([gradient, torch.zeros_like(gradient[:2])]))
    torch.library.opcheck(operator.held, tuple(call))
