"""Layers on the CPU while torch's default device is another: PyG's numbers, or PyG's own error."""

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric import nn as gnn

import onehop
from tests.default_device.ways import EDGE_INDEX, EDGES, NODES, WAYS, number
from tests.integrations.pyg import small_blocks
from tests.pairs import pairwise

WIDTH, DIM = 6, 3
DEGREES = EDGE_INDEX[1].bincount(minlength=NODES).bincount()


class MakesItsOwn(gnn.MessagePassing):
    """A user's layer, whose message makes a tensor on the default device."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x)

    def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
        return (x_i - x_j).tanh() + torch.ones(x_j.size(0), 1)


class Named(MakesItsOwn):
    """The same with a device."""

    def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
        return (x_i - x_j).tanh() + torch.ones(x_j.size(0), 1, device=x_j.device)


def mlp(width: int) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(width, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4))


def pna() -> torch.nn.Module:
    return gnn.PNAConv(WIDTH, 4, ["mean", "max", "std"], ["identity", "amplification"], DEGREES)


ATTENTION = {"heads": 2, "dropout": 0.5}
# Each with the names of the operands that it takes beside x.
LAYERS: dict[str, tuple[Callable[[], torch.nn.Module], str]] = {
    "SAGE": (lambda: gnn.SAGEConv(WIDTH, 4), ""),
    "SAGE max": (lambda: gnn.SAGEConv(WIDTH, 4, aggr="max"), ""),
    "GCN": (lambda: gnn.GCNConv(WIDTH, 4), ""),
    "GCN weighted": (lambda: gnn.GCNConv(WIDTH, 4), "edge_weight"),
    "GCN cached": (lambda: gnn.GCNConv(WIDTH, 4, cached=True), ""),
    "GraphConv": (lambda: gnn.GraphConv(WIDTH, 4), "edge_weight"),
    "GAT": (lambda: gnn.GATConv(WIDTH, 3, **ATTENTION), ""),
    "GAT edges": (lambda: gnn.GATConv(WIDTH, 3, edge_dim=DIM, **ATTENTION), "edge_attr"),
    "GATv2": (lambda: gnn.GATv2Conv(WIDTH, 3, **ATTENTION), ""),
    "GATv2 edges": (lambda: gnn.GATv2Conv(WIDTH, 3, edge_dim=DIM, **ATTENTION), "edge_attr"),
    "Transformer": (lambda: gnn.TransformerConv(WIDTH, 3, **ATTENTION), ""),
    "Transformer edges": (lambda: gnn.TransformerConv(WIDTH, 3, edge_dim=DIM, **ATTENTION), "edge_attr"),
    "GIN": (lambda: gnn.GINConv(mlp(WIDTH)), ""),
    "GINE": (lambda: gnn.GINEConv(mlp(WIDTH), edge_dim=DIM), "edge_attr"),
    "PNA": (pna, ""),
    "SG": (lambda: gnn.SGConv(WIDTH, 4, K=2), ""),
    "TAG": (lambda: gnn.TAGConv(WIDTH, 4), ""),
    "Cheb": (lambda: gnn.ChebConv(WIDTH, 4, K=3), ""),
    "SuperGAT": (lambda: gnn.SuperGATConv(WIDTH, 3, heads=2), ""),
    "FA": (lambda: gnn.FAConv(WIDTH), "x_0"),
    "AGNN": (lambda: gnn.AGNNConv(), ""),
    "APPNP": (lambda: gnn.APPNP(3, 0.1), ""),
    "Edge": (lambda: gnn.EdgeConv(mlp(2 * WIDTH)), ""),
    "GEN": (lambda: gnn.GENConv(WIDTH, 4), ""),
    "a user's": (Named, ""),
}
OPERANDS = {"edge_weight": number(EDGES), "edge_attr": number(EDGES, DIM), "x_0": number(NODES, WIDTH)}


@pytest.fixture(params=WAYS)
def elsewhere(request: pytest.FixtureRequest) -> Callable[[], AbstractContextManager[None]]:
    return WAYS[request.param]


@pytest.fixture(params=[False, True], ids=["whole", "in blocks"])
def _size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param:
        small_blocks.force(monkeypatch, edges=100)


def made(name: str) -> tuple[torch.nn.Module, dict[str, Tensor]]:
    make, operand = LAYERS[name]
    torch.manual_seed(0)
    return make(), {operand: OPERANDS[operand]} if operand else {}


def step(model: torch.nn.Module, operands: dict[str, Tensor], patched: bool, where: Any = nullcontext) -> Any:
    """Two outputs, all gradients, the next random number; the second call finds what the first one kept."""
    onehop.clear_cache()
    model = copy.deepcopy(model)
    x = number(NODES, WIDTH).requires_grad_()
    leaves = {key: each.clone().requires_grad_() for key, each in operands.items()}
    torch.manual_seed(3)
    with onehop.patch() if patched else nullcontext(), where():
        first = model(x, edge_index=EDGE_INDEX, **leaves)
        second = model(x * 0.5, edge_index=EDGE_INDEX, **leaves)
        (first.square().sum() + second.sum()).backward()
    parameters = {key: each.grad for key, each in model.named_parameters() if each.grad is not None}
    assert x.grad is not None
    return {
        "first": first.detach(),
        "second": second.detach(),
        "x": x.grad,
        **{key: each.grad for key, each in leaves.items()},
        **parameters,
        "chance": torch.rand(3, device="cpu"),
    }


@pytest.mark.usefixtures("_size")
@pairwise(name=LAYERS)
def test_layers_have_the_same_numbers(name: str, elsewhere: Any) -> None:
    model, operands = made(name)
    plain = step(model, operands, patched=False)
    usual = step(model, operands, patched=True)
    found = step(model, operands, patched=True, where=elsewhere)
    assert found.keys() == usual.keys() == plain.keys()
    for key, ours in found.items():
        assert ours.is_cpu, key
        assert torch.equal(ours, usual[key]), key
        torch.testing.assert_close(
            ours, plain[key], rtol=1e-4, atol=1e-4, msg=lambda m, key=key: f"{key}: {m}"
        )


@pytest.mark.parametrize("name", LAYERS)
def test_pyg_itself_has_the_same_numbers(name: str, elsewhere: Any) -> None:
    model, operands = made(name)
    plain = step(model, operands, patched=False)
    for key, found in step(model, operands, patched=False, where=elsewhere).items():
        assert torch.equal(found, plain[key]), key


@pytest.mark.usefixtures("_size")
def test_layers_that_fail_in_pyg_fail_the_same(elsewhere: Any) -> None:
    messages = []
    for patched in (False, True):
        with pytest.raises(RuntimeError, match="device") as error:
            step(MakesItsOwn(), {}, patched, elsewhere)
        messages.append((type(error.value), str(error.value)))
    assert messages[0] == messages[1]


@pytest.mark.parametrize("name", LAYERS)
def test_the_same_layers_are_fast(name: str, elsewhere: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    small_blocks.force(monkeypatch, edges=100)
    model, operands = made(name)
    x = number(NODES, WIDTH)

    def explained() -> list[tuple[bool, str]]:
        rows = onehop.explain(model, x, edge_index=EDGE_INDEX, **operands).layers
        return [(row.fast, row.backend) for row in rows]

    expected = explained()
    with elsewhere():
        assert explained() == expected
    assert expected
