"""Layers for which PyG renders no ``propagate``, and which run the plain ``MessagePassing.propagate``."""

import contextlib
import copy
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric import EdgeIndex, nn as gnn
from torch_geometric.nn import MessagePassing
from torch_geometric.typing import OptTensor
from torch_geometric.utils import spmm

import onehop
from tests.integrations.pyg.adjacencies import WARNINGS, matrix
from tests.integrations.pyg.plain_layers import (
    KINDS,
    LEFT,
    NODES,
    WIDTH,
    Attending,
    attending,
    executed,
    numbers,
    powered,
    reasons,
    without_thresholds as without_thresholds,
    x as x,
)
from tests.integrations.same import SINGLE, assert_same, learned, outcome, same_error
from tests.processes import run_python

pytestmark = [pytest.mark.filterwarnings(each) for each in WARNINGS]


@pytest.mark.parametrize("patched", ["before the class", "before the layer", "before the call"])
@pytest.mark.parametrize("name", KINDS)
def test_layers_are_served(name, patched, x, edge_index):
    make = KINDS[name]
    expected = numbers(make()(), x, edge_index)
    with contextlib.ExitStack() as stack:
        if patched == "before the class":
            stack.enter_context(onehop.patch())
        kind = make()
        if patched == "before the layer":
            stack.enter_context(onehop.patch())
        layer = kind()
        if patched == "before the call":
            stack.enter_context(onehop.patch())
        assert "propagate" not in vars(kind) or name.startswith("its own propagate")
        for _ in range(2):
            assert_same(numbers(layer, x, edge_index), expected)
        assert set(reasons(layer, x.double(), edge_index)) == {None}
        again = [copy.copy(layer), copy.deepcopy(layer)]
    assert_same(numbers(layer, x, edge_index), expected)
    for other in again:
        assert_same(numbers(other, x, edge_index), expected)


@pytest.mark.parametrize("name", LEFT)
def test_layers_that_are_left_to_pyg_have_their_sentence(name, x, edge_index):
    make, sentence = LEFT[name]
    layer = make()()
    expected = layer(x, edge_index)
    with onehop.patch():
        assert_same(layer(x, edge_index), expected)
        assert reasons(layer, x, edge_index) == [sentence]


def test_a_class_of_python_c(tmp_path):
    program = """
import torch, onehop
from torch_geometric.nn import GATConv, MessagePassing
class Mine(MessagePassing):
    def forward(self, x, edge_index): return self.propagate(edge_index, x=x)
    def message(self, x_i: torch.Tensor, x_j: torch.Tensor): return x_i.tanh() * x_j
class OfPyg(GATConv):  # which was never rendered either
    pass
x, edge_index = torch.randn(9, 4), torch.randint(9, (2, 40))
for layer, more in (Mine(), {}), (OfPyg(4, 3), {}), (OfPyg(4, 3), {"return_attention_weights": True}):
    expected = layer(x, edge_index, **more)
    with onehop.thresholds.lifted(), onehop.patch():
        torch.testing.assert_close(layer(x, edge_index, **more), expected)
        plain = type(layer).propagate is MessagePassing.propagate
        print(plain, onehop.explain(layer, x, edge_index, **more).layers[0].path)
"""
    # As with python -c, there is no file, and no source.
    script = tmp_path / "script.py"
    script.write_text(f"del __file__\nexec(compile({program!r}, '<string>', 'exec'))\n")
    done = run_python([script])
    assert done.stdout.split() == ["True", "fast"] * 3, done.stdout + done.stderr


# Classes of one name


def test_classes_of_a_factory_have_nothing_of_each_other(x, edge_index):
    kinds = [powered(power) for power in (1, 2, 3)]
    expected = [numbers(kind(), x, edge_index) for kind in kinds]
    with onehop.patch():
        layers = [kind() for kind in (*kinds, powered(2))]
        for _ in range(2):
            for layer, numbers_of_pyg in zip(layers, [*expected, expected[1]], strict=True):
                assert_same(numbers(layer, x, edge_index), numbers_of_pyg)
                assert reasons(layer, x.double(), edge_index) == [None]


def scaled(factor: float) -> Callable[..., Tensor]:
    def message(self: Any, x_j: Tensor, factor: float = factor) -> Tensor:
        return x_j * factor

    return message


def exponential() -> Callable[..., Tensor]:
    def message(self: Any, x_j: Tensor, factor: float = 2.0) -> Tensor:
        return x_j.exp() * factor

    return message


def of_another_argument() -> Callable[..., Tensor]:
    def message(self: Any, x_j: Tensor, factor: float = 2.0, x_i: OptTensor = None) -> Tensor:
        return x_j * factor if x_i is None else x_i

    return message


def rendered(function: Callable[..., Tensor], more: bool = False) -> type:
    """A class for which PyG renders, once for all that have this name."""

    class Shared(MessagePassing):
        message = function

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.propagate(edge_index, x=x)

    if more:
        Shared.forward = lambda self, x, edge_index: self.propagate(edge_index, x=x, y=x)
    return Shared


MISFIT = "PyG rendered the propagate that it runs for functions with other arguments"


@pytest.mark.parametrize(
    ("function", "more", "sentence"),
    [
        (scaled(2.0), False, None),
        (exponential(), False, None),
        (scaled(3.0), False, MISFIT),
        (of_another_argument(), False, MISFIT),
        (scaled(2.0), True, "PyG is left to report what does not fit"),
    ],
    ids=["the same", "another message", "another default", "another argument", "another operand"],
)
def test_what_pyg_rendered_for_another_class_of_the_name_passes_that_ones_arguments(
    function, more, sentence, x, edge_index, took_fast_path
):
    rendered(scaled(2.0))()
    layer = rendered(function, more)()
    assert type(layer).propagate.__module__.endswith("_Shared_propagate")
    expected = outcome(lambda: layer(x, edge_index))
    with onehop.patch():
        for _ in range(2):
            assert_same(outcome(lambda: layer(x, edge_index)), expected, **SINGLE)
        assert took_fast_path(outcome, lambda: layer(x, edge_index)) == [sentence]


def test_no_class_is_held():
    x, edge_index = torch.randn(NODES, WIDTH), torch.randint(NODES, (2, 90))

    def kinds() -> list[weakref.ref[type]]:
        made = [attending(), powered(2), KINDS["exec"](), executed("", "gnn.SAGEConv")()]
        for kind in made:
            layer = kind(WIDTH, 3) if issubclass(kind, gnn.SAGEConv) else kind()
            layer(x, edge_index)
        return [weakref.ref(kind) for kind in made]

    with onehop.patch():
        references = kinds()
        gc.collect()
        assert [each() for each in references] == [None] * 4


def test_a_function_of_a_class_that_is_replaced_counts_from_then_on(x, edge_index):
    kind = powered(2)
    layer = kind()
    with onehop.patch():
        layer(x, edge_index)
        for name, function, sentence in (
            ("message", lambda self, x_i, x_j, ptr: x_j.cos() * x_i, None),
            (
                "_collect",
                lambda self, *args: MessagePassing._collect(self, *args),
                "its class overrides _collect",
            ),
        ):
            function.__name__ = name
            setattr(kind, name, function)
            found = layer(x, edge_index)
            assert reasons(layer, x, edge_index) == [sentence]
            with onehop.patch().paused():
                torch.testing.assert_close(found, layer(x, edge_index))


# Kinds of edges, and what only the plain one does


class Weighted(MessagePassing):
    def forward(self, x, edge_index, weight=None, **more):
        return self.propagate(edge_index, x=x, edge_weight=weight, **more)

    def message(self, x_i, x_j, edge_weight, ptr):
        return x_i * x_j if edge_weight is None else edge_weight.view(-1, 1) * x_i.tanh() * x_j


class Featured(MessagePassing):
    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x, edge_weight=None, edge_attr=None)

    def message(self, x_j, edge_weight, edge_attr, ptr):
        out = x_j if edge_weight is None else x_j * edge_weight.view(-1, 1)
        return out if edge_attr is None else out * edge_attr.view(-1, 1)


class Fused(MessagePassing):
    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_j, ptr):
        return x_j.tanh()

    def message_and_aggregate(self, adj_t, x):
        return spmm(adj_t, x.tanh(), reduce=self.aggr) * 3


class Transposed(MessagePassing):
    """A pair of features, the second of which the plain one sends along edges of the other direction."""

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=(x, 2 * x), size=None)

    def message(self, x_i, x_j, ptr):
        return x_i.cos() * x_j


OF_EDGES = {
    "a tensor": lambda at, values: at.flip(0),
    "coo": lambda at, values: matrix("coo", at, values),
    "csr": lambda at, values: matrix("csr", at, values),
    "csc": lambda at, values: matrix("csc", at, values),
    "EdgeIndex": lambda at, values: EdgeIndex(at.flip(0).contiguous(), sparse_size=(NODES, NODES)),
    "sorted EdgeIndex": lambda at, values: EdgeIndex(
        at.flip(0).contiguous(), sparse_size=(NODES, NODES), sort_order="col"
    ),
}
EDGES_OF = {
    "weighted": (Weighted, {"a tensor", "coo"}),
    "featured": (Featured, {"a tensor"}),
    "fused": (lambda: Fused, {"a tensor"}),
    "transposed": (lambda: Transposed(flow="target_to_source"), set()),
    "attending": (Attending, {"a tensor", "coo"}),
    "exec of GATConv": (lambda: executed("", "gnn.GATConv")()(WIDTH, 4, add_self_loops=False), None),
    "exec of GCNConv": (lambda: executed("", "gnn.GCNConv")()(WIDTH, 4), None),
    "default message": (executed(""), None),
}


@pytest.mark.parametrize("edges", OF_EDGES)
@pytest.mark.parametrize("name", EDGES_OF)
def test_edges(name, edges, x, at, values):
    make, served = EDGES_OF[name]
    made = make()
    torch.manual_seed(0)
    layer = made() if isinstance(made, type) else made
    x = x.double().requires_grad_()
    layer = layer.double()

    def run() -> list[Tensor]:
        given = OF_EDGES[edges](at, values)
        out = layer(x, given)
        # The plain one writes to a COO matrix, and then torch differentiates nothing.
        return [out] if edges == "coo" else learned(out, x, layer)

    expected = outcome(run)
    with onehop.patch():
        for _ in range(2):
            assert_same(outcome(run), expected)
        if isinstance(expected, list) and served is not None:
            (reason,) = reasons(layer, x, OF_EDGES[edges](at, values))
            assert (reason is None) == (edges in served), reason


def test_a_default_that_the_plain_one_does_not_pass_is_pygs_error(x, edge_index):
    class Default(MessagePassing):
        def forward(self, x, edge_index):
            return self.propagate(edge_index, x=x)

        def message(self, x_j, ptr, factor=2.0):
            return x_j * factor

    layer = Default()
    same_error(lambda: layer(x, edge_index))
