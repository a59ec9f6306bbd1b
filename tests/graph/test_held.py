"""Bytes of whatever is kept, counted from the value itself."""

import weakref
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from onehop import Graph
from onehop.graph.contents import Noted
from onehop.graph.held import bytes_held
from onehop.graph.identity import IdentityCache

HOST, DEVICE = torch.device("cpu"), torch.device("cuda:1")


class Pair(NamedTuple):
    first: Tensor
    second: Tensor | None


@dataclass(frozen=True, slots=True)
class Note:
    tensor: Tensor
    inner: object = None
    reference: object = None


class Counted:
    """An object that counts itself, on two devices."""

    nbytes_by_device = {HOST: 3, DEVICE: 5}  # noqa: RUF012 - it is never changed
    nbytes = 8


class OnDevice:
    nbytes, device = 7, DEVICE


TEN = torch.zeros(10, dtype=torch.int8)
GRAPH = Graph.from_edge_index(torch.tensor([[0, 1], [1, 0]]))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (TEN, {HOST: 10}),
        (torch.zeros(2, 3), {HOST: 24}),
        (GRAPH, GRAPH.nbytes_by_device),
        (np.zeros(3), {HOST: 24}),
        (True, {}),
        (None, {}),
        ((1, 2.0, "three", torch.float32, ()), {}),
        ((TEN, None, (torch.zeros(2), 4)), {HOST: 18}),
        ([TEN, [TEN.clone()]], {HOST: 20}),
        ({"a": TEN, "b": {1: TEN.clone()}}, {HOST: 20}),
        (Pair(TEN, None), {HOST: 10}),
        (Note(TEN, Note(TEN.clone(), Pair(TEN.clone(), None))), {HOST: 30}),
        (Note(TEN, reference=weakref.ref(GRAPH)), {HOST: 10}),
        (Note, {}),
        ((TEN, TEN, Note(TEN)), {HOST: 10}),
        (Counted(), {HOST: 3, DEVICE: 5}),
        ((Counted(), OnDevice(), TEN), {HOST: 13, DEVICE: 12}),
    ],
)
def test_bytes(value, expected):
    assert bytes_held(value) == expected


def test_a_value_that_holds_itself_is_counted_once():
    value: list[object] = [TEN]
    value.append(value)
    assert bytes_held(value) == {HOST: 10}


def test_what_was_derived_from_a_graph_counts_with_it():
    graph = Graph.from_edge_index(torch.tensor([[0, 1], [1, 0]]))
    before = graph.nbytes
    graph.derived["note"] = Note(TEN, Pair(TEN.clone(), None))
    graph.derived["elsewhere"] = OnDevice()
    assert graph.nbytes_by_device == {HOST: before + 20, DEVICE: 7}


def test_growth_inside_a_value_counts_against_the_bound():
    cache, tensor = IdentityCache(lambda: 100), torch.arange(4)
    kept: dict[str, Tensor] = {"first": torch.zeros(60, dtype=torch.int8)}
    cache.store(Noted(tensor), "dictionary", kept)
    assert cache.info().bytes == 60
    kept["second"] = torch.zeros(60, dtype=torch.int8)
    assert cache.info().bytes == 120
    cache.find(tensor, "dictionary")
    other = torch.arange(5)
    cache.store(Noted(other), "other", True)
    assert cache.find(tensor, "dictionary") is None
