"""Calls are made by keyword: two tensors, or two flags, in the wrong order would be no error of types.

And each has what an operator needs: the lists that a new one is added to are compared.
"""

import ast
from pathlib import Path

import pytest
import torch

import onehop
from onehop import Graph, calls
from onehop.kernels.cpu import KERNELS

PACKAGE = Path(onehop.__file__).parent
NAMES = {name for name, value in vars(calls).items() if hasattr(value, "_fields")}
KINDS = {getattr(calls, name) for name in NAMES if hasattr(getattr(calls, name), "backend")}
# A gradient's one field, or all of them as a backend returned them.
STARRED = (ast.Starred,)


def positional(source: str) -> list[tuple[int, str]]:
    """Lines and names of calls that are made with more than one argument by position."""
    tree = ast.parse(source)
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("onehop.calls")
        for alias in node.names
    }
    found = []
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in NAMES & imported
        ):
            plain = [each for each in node.args if not isinstance(each, STARRED)]
            if len(plain) > 1:
                found.append((node.lineno, node.func.id))
    return found


def test_calls_are_made_by_keyword() -> None:
    found = {str(path): positional(path.read_text()) for path in PACKAGE.rglob("*.py")}
    assert {path: calls for path, calls in found.items() if calls} == {}


def test_positions_are_found() -> None:
    assert positional("from onehop.calls import Sddmm\nSddmm(dst, src)") == [(2, "Sddmm")]
    assert not positional("from onehop.calls import Sddmm\nSddmm(dst=dst, src=src)")


def test_each_call_has_an_operator_and_a_kernel_on_the_cpu() -> None:
    assert set(KERNELS) == KINDS
    for kind in KINDS:
        assert hasattr(torch.ops.onehop, calls.name_of(kind)), kind


def test_a_call_on_a_graph_has_its_number_and_sizes() -> None:
    graph, x = Graph.from_edge_index(torch.tensor([[0, 1, 3], [0, 0, 1]]), size=(4, 2)), torch.ones(4, 5)
    call = calls.on(graph, calls.Aggregate, x=x, mean=True)
    assert call == calls.Aggregate(x=x, graph=graph.number, rows=2, mean=True)
    assert calls.on(graph, calls.Aggregate, x=x[:2], transposed=True).rows == 4
    extremum = calls.on(graph, calls.Extremum, x=x, reduce="min")
    assert (extremum.graph, extremum.rows, extremum.edges, extremum.reduce) == (graph.number, 2, 3, "min")
    softmax = calls.on(graph, calls.EdgeSoftmax, scores=torch.ones(3, 1))
    assert (softmax.sources, softmax.rows) == (4, 2)
    with pytest.raises(TypeError, match="unexpected keyword argument 'y'"):
        calls.on(graph, calls.Aggregate, y=x)
