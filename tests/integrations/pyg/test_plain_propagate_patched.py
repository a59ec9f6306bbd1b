"""The plain ``MessagePassing.propagate`` under the patch: hooks, explainers, programs, and other patches."""

import copy
import functools
import inspect
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric import nn as gnn
from torch_geometric.nn import MessagePassing

import onehop
from tests.integrations.pyg.plain_layers import (
    KINDS,
    LEFT,
    WIDTH,
    Attending,
    attending,
    doubling,
    executed,
    reasons,
    without_thresholds as without_thresholds,
    x as x,
)
from tests.integrations.same import assert_same

THEIRS = MessagePassing.propagate


# Hooks, explainers, programs


@pytest.mark.parametrize(
    "register",
    [
        "register_propagate_forward_pre_hook",
        "register_propagate_forward_hook",
        "register_message_forward_hook",
        "register_aggregate_forward_pre_hook",
    ],
)
@pytest.mark.parametrize("make", [attending, doubling])
def test_hooks_run_once(make, register, x, edge_index):
    layer, calls = make()(), []
    expected = layer(x, edge_index)
    handle = getattr(layer, register)(lambda *args: calls.append(args))
    with onehop.patch():
        assert_same(layer(x, edge_index), expected)
        assert len(calls) == 1
        assert reasons(layer, x, edge_index) == ["message passing hooks are registered on it"]
        handle.remove()
        assert reasons(layer, x, edge_index) == [None]
    if make is doubling:
        assert layer.calls == 2


@pytest.mark.parametrize("patched", ["before the class", "before the call"])
@pytest.mark.parametrize("make", [attending, doubling])
def test_explainers(make, patched, x, edge_index):
    def explained(layer: Any) -> Tensor:
        layer.explain = True
        layer._edge_mask = torch.linspace(-1, 1, edge_index.size(1))
        layer._loop_mask = edge_index[0] != edge_index[1]
        out = layer(x, edge_index)
        layer.explain = None
        return out

    plain = make()()
    masked, ordinary = explained(plain), plain(x, edge_index)
    with onehop.patch():
        layer = make()() if patched == "before the class" else plain
        torch.testing.assert_close(explained(layer), masked)
        torch.testing.assert_close(layer(x, edge_index), ordinary)
        layer.explain = True
        assert len(reasons(layer, x, edge_index)) == 1
    torch.testing.assert_close(explained(plain), masked)


def test_decomposed_layers(x, edge_index):
    make = executed("def message(self, x_i, x_j): return x_i * x_j")
    expected = make()()(x, edge_index)
    with onehop.patch():
        layer = make()(decomposed_layers=2)
        torch.testing.assert_close(layer(x, edge_index), expected)
        assert None not in reasons(layer, x, edge_index)


def test_an_instance_that_gathers_otherwise_is_left_to_pyg(x, edge_index):
    layer = attending()()
    layer._lift = lambda src, *args: 2 * MessagePassing._lift(layer, src, *args)
    expected = layer(x, edge_index)
    with onehop.patch():
        assert_same(layer(x, edge_index), expected)
        assert reasons(layer, x, edge_index) == ["this instance overrides _lift"]


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize(
    ("make", "served"), [(executed(""), True), (attending, False), (LEFT["its own _lift"][0], False)]
)
def test_compiled_programs(make, served, x, edge_index):
    layer = make()()
    expected = layer(x, edge_index)
    torch._dynamo.reset()
    with onehop.patch():
        compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(x, edge_index), expected)
        (reason,) = reasons(compiled, x, edge_index)
        assert (reason is None) == served
    torch._dynamo.reset()


def test_layers_of_a_module_are_pickled(x, edge_index):
    layer = Attending()
    expected = layer(x, edge_index)
    with onehop.patch():
        layer(x, edge_index)
        written = pickle.dumps(layer)
        torch.testing.assert_close(pickle.loads(written)(x, edge_index), expected)
    assert_same(pickle.loads(written)(x, edge_index), expected)


# Who else replaces functions


def test_a_decoration_of_ours_is_somebody_elses(x, edge_index):
    with onehop.patch():

        class Decorating(gnn.GATConv):
            @functools.wraps(gnn.GATConv.propagate)
            def propagate(self, edge_index: Tensor, **operands: Any) -> Tensor:
                assert all(isinstance(each, Tensor | tuple | None) for each in operands.values())
                return 2 * super().propagate(edge_index, **operands)

        torch.manual_seed(0)
        layer = Decorating(WIDTH, 3)
        own = Decorating.propagate
        found = layer(x, edge_index)
    assert Decorating.propagate is own
    torch.testing.assert_close(found, layer(x, edge_index))


@pytest.fixture
def counted() -> Iterator[Callable[[Callable[..., Any]], list[Any]]]:
    """Puts a decoration of a function in the place of the plain ``propagate``, and lists its layers."""

    def replace(theirs: Callable[..., Any]) -> list[Any]:
        calls: list[Any] = []

        @functools.wraps(theirs)
        def propagate(self: Any, *args: Any, **kwargs: Any) -> Any:
            calls.append(self)
            return theirs(self, *args, **kwargs)

        MessagePassing.propagate = propagate
        return calls

    yield replace
    MessagePassing.propagate = THEIRS


def test_what_others_put_over_ours_stays(x, edge_index, counted):
    layer = attending()()
    expected = layer(x, edge_index)
    with onehop.patch():
        ours = MessagePassing.propagate
        calls = counted(ours)
        decoration = MessagePassing.propagate
        torch.testing.assert_close(layer(x, edge_index), expected)
        assert reasons(layer, x, edge_index) == [None]
    assert MessagePassing.propagate is decoration
    assert_same(layer(x, edge_index), expected)
    assert len(calls) == 3
    # They put back what they found, and it was ours.
    MessagePassing.propagate = ours
    assert_same(layer(x, edge_index), expected)
    with onehop.patch():
        assert reasons(layer, x, edge_index) == [None]
    assert MessagePassing.propagate is THEIRS


def test_what_others_put_in_the_place_of_the_plain_one_is_theirs(x, edge_index, counted):
    layer = attending()()
    expected = layer(x, edge_index)
    calls = counted(THEIRS)
    with onehop.patch():
        assert_same(layer(x, edge_index), expected)
        assert len(calls) == 1
        assert reasons(layer, x, edge_index) == ["MessagePassing.propagate was replaced by another function"]


def test_a_class_that_is_given_the_plain_one_again_is_rendered_again(x, edge_index):
    class Again(MessagePassing):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.propagate(edge_index, x=x)

    layer = Again()
    expected = layer(x, edge_index)
    with onehop.patch():
        Again.propagate = Again._orig_propagate
        torch.testing.assert_close(layer(x, edge_index), expected)
        again = copy.deepcopy(layer)  # which makes PyG render
        assert Again.propagate.__module__.endswith("_Again_propagate")
        torch.testing.assert_close(again(x, edge_index), expected)
        assert reasons(again, x, edge_index) == [None]
    assert Again._orig_propagate is THEIRS
    assert "onehop_theirs" not in vars(Again.propagate)


def test_nested_patches_and_pauses_restore_every_class(x, edge_index):
    kinds = [MessagePassing, *(make() for make in KINDS.values())]
    for kind in kinds[1:]:
        kind()
    names = ("propagate", "edge_updater", *(f"_{which}_propagate" for which in ("orig", "jinja")))
    before = [{name: vars(kind).get(name) for name in names} for kind in kinds]

    def now() -> list[dict[str, Any]]:
        return [{name: vars(kind).get(name) for name in names} for kind in kinds]

    listed = "torch_geometric.nn.conv.message_passing.MessagePassing.propagate"
    with onehop.patch() as handle:
        assert onehop.patched().count(listed) == 1
        ours = MessagePassing.propagate
        assert inspect.signature(ours) == inspect.signature(THEIRS)
        with onehop.patch(only="GCNConv"):
            assert MessagePassing.propagate is ours
            assert reasons(Attending(), x, edge_index) == ["patch(only=...) leaves its class out"]
        with handle.paused():
            assert now() == before
        assert MessagePassing.propagate is not THEIRS
        assert reasons(Attending(), x, edge_index) == [None]
    assert now() == before
