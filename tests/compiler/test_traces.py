"""What a trace depends on is part of its key: another key, another trace."""

import dataclasses
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

from onehop import thresholds
from onehop.compiler.arguments import Argument, Kind
from onehop.compiler.guards import _facts
from onehop.compiler.traces import _counts, _Entry, _is_watched, _key_of

ARGUMENTS = [
    Argument("x_j", Kind.SOURCE, at=0),
    Argument("w", Kind.WHOLE, at=1),
    Argument("size_i", Kind.VALUE, value=10),
    Argument("by", Kind.VALUE, value=1),
]


def graph(num_src: int = 10, num_dst: int = 12, num_edges: int = 2000) -> Any:
    return types.SimpleNamespace(num_src=num_src, num_dst=num_dst, num_edges=num_edges)


def key(arguments: list[Argument] = ARGUMENTS, x: Any = None, w: Any = None, edges: Any = None) -> Any:
    x = torch.ones(10, 4) if x is None else x
    return _key_of(arguments, [x, torch.ones(4, 6) if w is None else w], graph() if edges is None else edges)


def with_argument(number: int, **changes: Any) -> list[Argument]:
    changed = dataclasses.replace(ARGUMENTS[number], **changes)
    return [*ARGUMENTS[:number], changed, *ARGUMENTS[number + 1 :]]


DIFFERENT: dict[str, Callable[[], Any]] = {
    "another name": lambda: key(with_argument(0, name="x_i")),
    "another operand": lambda: key(with_argument(0, at=1)),
    "another value": lambda: key(with_argument(3, value=2)),
    "an equal value of another type": lambda: key(with_argument(3, value=True)),
    "dimensions in front": lambda: key(with_argument(0, leading=1)),
    "another dtype": lambda: key(x=torch.ones(10, 4).double()),
    "a gradient": lambda: key(x=torch.ones(10, 4, requires_grad=True)),
    "other columns": lambda: key(x=torch.ones(10, 5)),
    "other strides": lambda: key(x=torch.ones(4, 10).T),
    "another size of a tensor that is the same for all edges": lambda: key(w=torch.ones(5, 6)),
    "other strides of a tensor that is the same for all edges": lambda: key(w=torch.ones(6, 4).T),
    "more sources than edges": lambda: key(edges=graph(num_src=2001)),
    "more destinations than edges": lambda: key(edges=graph(num_dst=2001)),
    "no edges": lambda: key(edges=graph(0, 0, 0)),
    "few edges": lambda: key(edges=graph(num_edges=thresholds.now.compiled_edges - 1)),
}


@pytest.fixture(autouse=True)
def ordinary(monkeypatch):
    monkeypatch.setattr(thresholds, "now", dataclasses.replace(thresholds.ORDINARY, compiled_edges=100))


@pytest.mark.parametrize("other", DIFFERENT.values(), ids=DIFFERENT)
def test_what_a_trace_depends_on_is_part_of_its_key(other):
    assert other() != key()


def same_under(change: Callable[[], Any]) -> bool:
    before = key()
    with change():
        return bool(key() == before)


def test_strides_count_of_a_tensor_that_is_used_as_it_is():
    row, column = torch.ones(1, 6), torch.ones(6, 1).T
    assert row.is_contiguous()
    assert column.is_contiguous()
    assert key(w=row) != key(w=column)
    assert key(x=row) == key(x=column)


def test_modes_are_part_of_it(monkeypatch):
    assert same_under(torch.enable_grad)
    assert not same_under(torch.no_grad)
    assert not same_under(lambda: torch.autocast("cpu", torch.bfloat16))
    with torch.autocast("cpu", torch.float16):
        assert not same_under(lambda: torch.autocast("cpu", torch.bfloat16))
    before = key()
    monkeypatch.setattr(
        thresholds, "now", dataclasses.replace(thresholds.now, edge_columns=thresholds.now.edge_columns + 1)
    )
    assert key() != before


def test_defaults_of_torch_are_part_of_it():
    before, dtype = key(), torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float16)
        assert key() != before
    finally:
        torch.set_default_dtype(dtype)
    try:
        torch.use_deterministic_algorithms(True)
        assert key() != before
    finally:
        torch.use_deterministic_algorithms(False)
    assert key() == before


def test_numbers_of_nodes_and_edges_are_not():
    assert key(with_argument(2, value=11), x=torch.ones(11, 4), edges=graph(11, 12, 2001)) == key()
    assert key(edges=graph(num_edges=100)) == key()
    assert key(edges=graph(2000, 2000, 2000)) == key()


def test_a_mode_of_a_users_is_told_from_a_default_device():
    class Watching(TorchFunctionMode):
        pass

    with torch.device("cpu"):
        assert key() is None
        assert not _is_watched()
        with Watching():
            assert _is_watched()


def test_what_holds_for_one_number_holds_for_no_other():
    guard = types.SimpleNamespace(tensors=lambda layer: [])
    one = _Entry("a reason", guard, None, (), _counts(graph()))  # type: ignore[arg-type]
    layer = torch.nn.Identity()
    assert one.bound(layer, [], graph()) == "a reason"
    for other in (graph(num_src=11), graph(num_dst=11), graph(num_edges=2001)):
        assert one.bound(layer, [], other) is None
    every = dataclasses.replace(one, counts=None)
    assert every.bound(layer, [], graph(num_edges=2001)) == "a reason"
    gone = types.SimpleNamespace(tensors=lambda layer: None)
    assert dataclasses.replace(every, guard=gone).bound(layer, [], graph()) is None


def test_facts_are_known_of_plain_tensors_alone():
    plain, hooked = torch.ones(2), torch.ones(2, requires_grad=True)
    assert _facts(hooked)
    hooked.register_hook(lambda grad: grad)
    for other in (hooked, torch.ones(2, requires_grad=True) * 2, plain.to_sparse(), None, 2.0):
        assert _facts(other) is None
    others = (
        plain.double(),
        torch.ones(3),
        torch.ones(4)[::2],
        plain.to("meta"),
        plain.clone().requires_grad_(),
    )
    assert len({_facts(each) for each in (plain, *others)}) == 6
