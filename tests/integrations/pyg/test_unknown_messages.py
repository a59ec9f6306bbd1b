"""Messages that no guard can know, traced at every call, and those that may do more than compute: never."""

import functools
import types
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch_geometric import nn as gnn

import onehop
from onehop.integrations import reports
from tests.integrations.pyg.traced_layers import (
    NODES,
    OTHER,
    SEEN,
    WIDTH,
    assert_as_without,
    layer_of,
    results,
    traces as traces,
)

FACTOR, COUNT, DEFAULT, DONE = 2.0, 0, [2.0], False

pytestmark = pytest.mark.usefixtures("in_doubles")


def appends(self, x_j: Tensor) -> Tensor:
    SEEN.append(1)
    return x_j * 2


def counts(self, x_j: Tensor) -> Tensor:
    global COUNT
    COUNT += 1
    return x_j * COUNT**0


def prints(self, x_j: Tensor) -> Tensor:
    print("here")  # noqa: T201
    return x_j * 2


def reads_an_object(self, x_j: Tensor) -> Tensor:
    return x_j * OTHER.factor


def looks(self, x_j: Tensor) -> Tensor:
    return x_j * 2 if self.weight.sum() > 0 else -x_j


def takes_a_number(self, x_j: Tensor) -> Tensor:
    return x_j * float(self.weight.detach().max())


def makes_a_tensor(self, x_j: Tensor) -> Tensor:
    return x_j * torch.tensor([OTHER.factor])


def by_its_name(self, x_j: Tensor) -> Tensor:
    return x_j * getattr(self, "rate")  # noqa: B009, as users write it


def by_its_dictionary(self, x_j: Tensor) -> Tensor:
    return x_j * self.__dict__["rate"]


def generates(self, x_j: Tensor) -> Tensor:
    return x_j * sum(each for each in (OTHER.factor, 1.0))


def tries(self, x_j: Tensor) -> Tensor:
    try:
        return x_j * OTHER.factor
    except AttributeError:
        return x_j


def without_recording(self, x_j: Tensor) -> Tensor:
    with torch.no_grad():
        scale = self.weight * 2
    return x_j * (scale + self.bias)


@functools.wraps(gnn.GINEConv.message)
def wraps_a_message(self, x_j: Tensor) -> Tensor:
    return x_j * OTHER.factor


@functools.wraps(functional.relu)
def wrapped(x: Tensor) -> Tensor:
    SEEN.append(1)
    return x * OTHER.factor


def calls_a_wrapper(self, x_j: Tensor) -> Tensor:
    return wrapped(x_j)


def calls_a_module(self, x_j: Tensor) -> Tensor:
    return self.counting(x_j)


def walks(self, x_j: Tensor) -> Tensor:
    for each in self.walked:
        x_j = x_j * each
    return x_j


def by_its_store(self, x_j: Tensor) -> Tensor:
    return x_j * self._buffers["mean"].size(0)


def by_a_list(x: Tensor, by: Any = DEFAULT) -> Tensor:
    return x * by[0]


def by_a_keyword(x: Tensor, *, by: float = 2.0) -> Tensor:
    return x * by


def again(x: Tensor, times: int = 2) -> Tensor:
    return x if times == 0 else again(x * FACTOR, times - 1)


def reads_a_default(self, x_j: Tensor) -> Tensor:
    return by_a_list(x_j)


def reads_a_keyword(self, x_j: Tensor) -> Tensor:
    return by_a_keyword(x_j)


def repeats(self, x_j: Tensor) -> Tensor:
    return again(x_j)


UNKNOWN = [
    looks, generates, wraps_a_message, takes_a_number, makes_a_tensor, reads_an_object, reads_a_default,
    reads_a_keyword,
]  # fmt: skip
MORE = {
    appends: "uses append, of which onehop cannot tell that it only computes, in line ",
    counts: "stores something outside its local variables, in line ",
    prints: "uses print, of which onehop cannot tell that it only computes, in line ",
    tries: "handles exceptions, in line ",
    walks: "uses a Walked, whose class defines __iter__",
    repeats: "uses again, which calls itself, in line ",
    calls_a_wrapper: "uses append, of which onehop cannot tell that it only computes, in line ",
    calls_a_module: "uses a Counting, whose class defines __call__",
    by_its_name: "uses getattr, of which onehop cannot tell that it only computes, in line ",
    by_its_dictionary: "uses __dict__, of which onehop cannot tell that it only computes, in line ",
    by_its_store: "uses _buffers, of which onehop cannot tell that it only computes, in line ",
    without_recording: "enters a context, in line ",
}


@pytest.mark.parametrize("message", [*UNKNOWN, *MORE], ids=lambda message: message.__name__)
def test_messages_that_read_more_are_traced_at_every_call_and_others_never(
    message, edge_index, traces, monkeypatch, capsys
):
    x, sizes = torch.randn(NODES, WIDTH), []

    def run(layer: Any) -> list[Any]:
        found = []
        for step in range(4):
            monkeypatch.setattr(OTHER, "factor", 2.0 + step)
            DEFAULT[0] = 2.0 + step
            layer.mean = torch.rand(step + 1)
            monkeypatch.setattr(by_a_keyword, "__kwdefaults__", {"by": 2.0 + step})
            layer.weight.data = layer.weight.data.neg() * (step + 1)
            layer.rate += 1.0
            before = len(SEEN), COUNT
            found.append(results(layer, x, edge_index))
            sizes.append((len(SEEN) - before[0], COUNT - before[1], len(capsys.readouterr().out)))
        return found

    assert_as_without(layer_of(message), run)
    assert len(traces) == (4 if message in UNKNOWN else 0)
    assert sizes[:4] == sizes[4:]  # effects are those of PyG's code, which ran first


@pytest.mark.parametrize("message", MORE, ids=lambda message: message.__name__)
def test_the_sentence_says_what_a_message_may_do(message, edge_index):
    with onehop.patch(), reports.recorded() as calls:
        layer_of(message)(torch.randn(NODES, WIDTH), edge_index)
    (call,) = calls
    assert call.reason.startswith(f"its message {MORE[message]}")


class Noting(TorchFunctionMode):
    """Notes how many rows a function of torch gets."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[int] = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is Tensor.exp:
            self.rows.append(args[0].size(0))
        return function(*args, **(kwargs or {}))


def raises_e(self, x_j: Tensor) -> Tensor:
    return x_j.exp()


def test_a_mode_of_a_user_sees_the_real_edges_alone(edge_index, traces):
    layer, x = layer_of(raises_e), torch.randn(NODES, WIDTH)
    with onehop.patch(), Noting() as noted:
        layer(x, edge_index)
    assert noted.rows == [edge_index.size(1)]
    assert not traces


def sets_a_global(self, x_j: Tensor) -> Tensor:
    global DONE
    DONE = True
    return x_j * 2


def seeds(self, x_j: Tensor) -> Tensor:
    torch.manual_seed(5)
    return x_j * 2


def test_what_a_message_sets_is_set_at_every_call(edge_index, monkeypatch):
    setting, seeding = layer_of(sets_a_global), layer_of(seeds)
    x = torch.randn(NODES, WIDTH)
    with onehop.patch():
        for _ in range(3):
            monkeypatch.setitem(globals(), "DONE", False)
            torch.manual_seed(1)
            setting(x, edge_index)
            seeding(x, edge_index)
            assert DONE
            assert torch.initial_seed() == 5


@pytest.mark.parametrize("message", [by_its_name, without_recording], ids=lambda message: message.__name__)
def test_functions_of_a_trusted_package(message, edge_index):
    """They may get attributes by texts and stop recording, which functions of others may not."""
    layer, x = layer_of(message), torch.randn(NODES, WIDTH)
    trusted = {**globals(), "__name__": "torch_geometric.messages"}
    type(layer).message = types.FunctionType(message.__code__, trusted, "message")

    def run(layer: Any) -> list[Any]:
        found = []
        for layer.rate in (1.0, 1.0, 2.0, 3.0):
            found.append(results(layer, x, edge_index))
        return found

    assert_as_without(layer, run)
