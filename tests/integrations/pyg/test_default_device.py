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
from tests.default_device.ways import WAYS
from tests.integrations.pyg import layers, small_blocks
from tests.integrations.pyg.conftest import make_edges
from tests.pairs import pairwise


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


NAMES = """
    SAGE mean; SAGE max; GCN; GCN weighted; GCN cached; Graph add; GAT dropout; GAT edges dropout;
    GATv2 dropout; GATv2 edges dropout; Transformer dropout; Transformer edges; GIN; GINE; PNA; SG; TAG;
    Cheb; SuperGAT MX; FA; AGNN; APPNP; Edge; GEN semi
"""
LAYERS = {name.strip(): layers.LAYERS[name.strip()] for name in NAMES.split(";")} | {
    "a user's": layers.Case(Named)
}
EDGE_INDEX = make_edges(layers.NODES, layers.NODES, 90)


@pytest.fixture(params=WAYS)
def elsewhere(request: pytest.FixtureRequest) -> Callable[[], AbstractContextManager[None]]:
    return WAYS[request.param]


@pytest.fixture(params=[False, True], ids=["whole", "in blocks"])
def _size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param:
        small_blocks.force(monkeypatch)


def made(name: str) -> tuple[torch.nn.Module, Callable[..., Tensor], dict[str, Tensor]]:
    """A layer, how it is called, and its operands."""
    case = LAYERS[name]
    torch.manual_seed(0)
    return case.make(), layers.case_call(case, EDGE_INDEX), layers.operands_of(case, torch.float32)


def step(
    model: torch.nn.Module,
    call: Callable[..., Tensor],
    operands: dict[str, Tensor],
    patched: bool,
    where: Any = nullcontext,
) -> Any:
    """Two outputs, all gradients, the next random number; the second call finds what the first one kept."""
    onehop.clear_cache()
    model = copy.deepcopy(model)
    leaves = {key: each.clone().requires_grad_() for key, each in operands.items()}
    torch.manual_seed(3)
    with onehop.patch() if patched else nullcontext(), where():
        first = call(model, **leaves)
        second = call(model, **leaves | {"x": leaves["x"] * 0.5})
        (first.square().sum() + second.sum()).backward()
    parameters = {key: each.grad for key, each in model.named_parameters() if each.grad is not None}
    assert leaves["x"].grad is not None
    return {
        "first": first.detach(),
        "second": second.detach(),
        **{key: each.grad for key, each in leaves.items()},
        **parameters,
        "chance": torch.rand(3, device="cpu"),
    }


@pytest.mark.usefixtures("_size")
@pairwise(name=LAYERS)
def test_layers_have_the_same_numbers(name: str, elsewhere: Any) -> None:
    layer = made(name)
    plain = step(*layer, patched=False)
    usual = step(*layer, patched=True)
    found = step(*layer, patched=True, where=elsewhere)
    assert found.keys() == usual.keys() == plain.keys()
    for key, ours in found.items():
        assert ours.is_cpu, key
        assert torch.equal(ours, usual[key]), key
        torch.testing.assert_close(
            ours, plain[key], rtol=1e-4, atol=1e-4, msg=lambda m, key=key: f"{key}: {m}"
        )


@pytest.mark.parametrize("name", LAYERS)
def test_pyg_itself_has_the_same_numbers(name: str, elsewhere: Any) -> None:
    layer = made(name)
    plain = step(*layer, patched=False)
    for key, found in step(*layer, patched=False, where=elsewhere).items():
        assert torch.equal(found, plain[key]), key


@pytest.mark.usefixtures("_size")
def test_layers_that_fail_in_pyg_fail_the_same(elsewhere: Any) -> None:
    messages, (_, call, operands) = [], made("GCN")
    for patched in (False, True):
        with pytest.raises(RuntimeError, match="device") as error:
            step(MakesItsOwn(), call, operands, patched, elsewhere)
        messages.append((type(error.value), str(error.value)))
    assert messages[0] == messages[1]


@pytest.mark.parametrize("name", LAYERS)
def test_the_same_layers_are_fast(name: str, elsewhere: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    small_blocks.force(monkeypatch)
    model, _, operands = made(name)
    before = [operands.pop(key) for key in ("x", "x_0") if key in operands]

    def explained() -> list[tuple[bool, str]]:
        rows = onehop.explain(model, *before, EDGE_INDEX, *operands.values()).layers
        return [(row.fast, row.backend) for row in rows]

    expected = explained()
    with elsewhere():
        assert explained() == expected
    assert expected
