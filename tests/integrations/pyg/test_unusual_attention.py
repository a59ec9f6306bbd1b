"""Attention layers with parameters, operands, edges, hooks and functions as few people give them."""

import inspect
import types
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize
from torch_geometric import nn as gnn
from torch_geometric.nn import MessagePassing

import onehop
from onehop.integrations.pyg.known import edge_updates
from onehop.integrations.pyg.pending import Pending
from tests.integrations.pyg.test_attention import BY_PYG, COMPILED, LAYERS, WIDTH, went
from tests.integrations.same import SINGLE, assert_same, refused


class NarrowScores(gnn.AGNNConv):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x, x_norm=normalize(x[:, :2], dim=-1))


def test_scores_of_agnn_from_some_of_the_columns(x, edge_index):
    went(NarrowScores(add_self_loops=False), x, edge_index)


def test_a_factor_of_agnn_for_every_edge(x, edge_index):
    layer = gnn.AGNNConv(add_self_loops=False)
    layer.beta = torch.nn.Parameter(torch.linspace(-1, 2, edge_index.size(1)))
    went(layer, x, edge_index)


class OtherScores(gnn.GATConv):
    """Weights of the edges turned round."""

    def edge_updater(self, edge_index: Tensor, **operands: object) -> Tensor:
        return super().edge_updater(edge_index.flip(0), **operands)


def test_weights_of_other_edges(x, edge_index):
    torch.manual_seed(0)
    layer = OtherScores(WIDTH, 4, heads=2, add_self_loops=False)
    went(layer, x, edge_index)


@pytest.mark.parametrize("kind", [gnn.GATConv, gnn.GATv2Conv])
def test_a_function_of_the_scores_that_is_replaced_after_the_patch(kind, x, edge_index, monkeypatch):
    # As in a new process, where no layer has been called before the patch.
    edge_updates.cache_clear()
    torch.manual_seed(0)
    layer, theirs = kind(WIDTH, 4, heads=2).eval(), kind.edge_update

    def turned(self, *args, **kwargs):
        return 1 - theirs(self, *args, **kwargs)

    turned.__signature__ = inspect.signature(theirs)
    with onehop.patch():
        monkeypatch.setattr(kind, "edge_update", turned)
        found = layer(x, edge_index)
    expected = layer(x, edge_index)
    monkeypatch.undo()
    edge_updates.cache_clear()
    assert_same(found, expected, **SINGLE)
    assert not torch.allclose(expected, layer(x, edge_index))


# Weights that cannot wait


def with_hook(kind: str, conv: MessagePassing) -> list[object]:
    """What the hook hears."""
    heard: list[object] = []

    def hook(module: MessagePassing, *rest: Any) -> Any:
        heard.extend(rest)
        return rest[0] if kind == "message_forward_pre" else None

    getattr(conv, f"register_{kind}_hook")(hook)
    return heard


@pytest.mark.parametrize("kind", ["edge_update_forward_pre", "edge_update_forward"])
@pytest.mark.parametrize("layer", ["GAT", "GATv2"])
def test_hooks_on_edge_update_are_called(kind, layer, x, edge_index):
    conv = LAYERS[layer]()
    heard = with_hook(kind, conv)
    assert went(conv, x, edge_index) == [BY_PYG]
    assert len(heard) == 4 * (1 if kind.endswith("pre") else 2)


@pytest.mark.parametrize("kind", ["message_forward_pre", "message_forward", "propagate_forward_pre"])
@pytest.mark.parametrize("layer", LAYERS)
def test_hooks_on_messages_get_weights(kind, layer, x, edge_index):
    conv = LAYERS[layer]()
    heard = with_hook(kind, conv)
    refused(lambda: conv(x, edge_index), "message passing hooks are registered on it", **SINGLE)
    assert heard
    assert "Pending" not in repr(heard)


def test_edge_update_set_on_an_instance_is_called(x, edge_index):
    conv, called = gnn.GATConv(WIDTH, 4), []
    original = conv.edge_update

    def mock(self: MessagePassing, *args: Any, **kwargs: Any) -> Tensor:
        called.append(1)
        return original(*args, **kwargs)

    conv.edge_update = types.MethodType(mock, conv)
    assert went(conv, x, edge_index) == [BY_PYG]
    assert len(called) == 4


class OwnMessage(gnn.GATConv):
    def message(self, x_j: Tensor, alpha: Tensor) -> Tensor:
        if not isinstance(alpha, Tensor):
            raise TypeError("alpha is no tensor")
        return 2 * super().message(x_j, alpha)


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
    assert went(kind(WIDTH, 4, heads=2).eval(), x, edge_index) == expected


def test_a_forward_of_a_transformer_that_reads_the_weights(x, edge_index):
    class Reads(gnn.TransformerConv):
        def forward(self, x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
            lift = x.view(-1, 1, WIDTH)[..., :4]
            out = self.propagate(edge_index, query=lift, key=lift, value=lift, edge_attr=None)
            return out, self._alpha

    form = "dot-product attention, fused, with weights"
    assert went(Reads(WIDTH, 4), x, edge_index) == [form]


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
        assert_same(conv(x, edge_index), expected, **SINGLE)


def test_a_propagate_of_the_instance_gets_weights(x, edge_index):
    conv, got = gnn.GATConv(WIDTH, 4), []

    def own(edge_index: Tensor, x: Any, alpha: Any, size: Any) -> Tensor:
        got.append(type(alpha))
        return x[0]

    conv.propagate = own
    with onehop.patch():
        conv(x, edge_index)
    assert got == [Tensor]
