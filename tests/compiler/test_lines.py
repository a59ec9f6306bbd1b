"""Sentences about a user's message name the line of it that is in the way."""

import inspect
from pathlib import Path

import pytest
import torch
from torch.nn import Module, Parameter

import onehop
from onehop import Graph
from onehop.compiler.lines import without_line
from onehop.errors import ArgumentError

GRAPH = Graph.from_edge_index(torch.tensor([[0, 1, 2, 0], [0, 0, 1, 2]]))
X = torch.ones(3, 2)
THIS = Path(__file__).name


class Layer(Module):
    def __init__(self):
        super().__init__()
        self.scale = Parameter(torch.ones(2))
        self.seen = {}
        self.last = None


class OnData(Layer):
    def forward(self, x_j):
        out = x_j * self.scale
        if out.sum() > 0:  # here
            out = -out
        return out


class OutsideItsRow(Layer):
    def forward(self, x_j):
        out = x_j * self.scale
        return (
            out - out.mean(0)  # here
        )


class ByAFunction(Layer):
    def forward(self, x_j):
        centred = centred_over_edges(x_j)  # here
        return centred * self.scale


def centred_over_edges(rows):
    return rows - rows.mean(0)


class Random(Layer):
    def forward(self, x_j):
        x_j = x_j * self.scale
        return x_j * torch.rand(2)  # here


class Stateful(Layer):
    def forward(self, x_j):
        out = x_j * self.scale
        self.last = out  # here
        return out


class StatefulInside(Layer):
    def forward(self, x_j):
        out = x_j * self.scale
        self.seen["last"] = out  # here
        return out


class Keeping(Layer):
    def forward(self, x_j):
        out = x_j * self.scale
        self.seen.setdefault("first", out)  # here
        return out


class Counting(Layer):
    def forward(self, x_j):
        count = x_j.size(0)
        out = x_j * self.scale
        return out / count  # here


class Reading(Layer):
    def forward(self, x_j):
        first = x_j.tolist()  # here
        return x_j * first[0][0]


class Failing(Layer):
    def forward(self, x_j):
        out = x_j * self.scale
        return out @ X  # here


LAYERS = [
    OnData,
    OutsideItsRow,
    ByAFunction,
    Random,
    Stateful,
    StatefulInside,
    Keeping,
    Counting,
    Reading,
    Failing,
]


@pytest.mark.parametrize("kind", LAYERS)
def test_the_line_is_named(kind):
    lines, first = inspect.getsourcelines(kind.forward)
    (number,) = [first + at for at, line in enumerate(lines) if line.rstrip().endswith("# here")]
    with pytest.raises(ArgumentError) as raised:
        onehop.message(GRAPH, kind(), x=X)
    text = f", in line {number} of {THIS} (`{lines[number - first].strip()}`)."
    assert str(raised.value).endswith(text), str(raised.value)
    assert without_line(str(raised.value)) == str(raised.value).removesuffix(text)


def test_a_method_and_a_function_are_named_too():
    layer = Stateful()
    with pytest.raises(ArgumentError, match=r"in line \d+ of test_lines.py \(`self.last = out  # here`\)"):
        onehop.message(GRAPH, layer.forward, x=X)
    with pytest.raises(ArgumentError, match=r"in line \d+ of test_lines.py \(`onehop.message.*roll"):
        onehop.message(GRAPH, lambda x_j: x_j.roll(1, 0), x=X)


def test_code_without_a_file_has_a_number_alone():
    names = {}
    exec("def fn(x_j):\n    return x_j.roll(1, 0)", names)
    with pytest.raises(ArgumentError, match=r"in line 2 of <string>\.$"):
        onehop.message(GRAPH, names["fn"], x=X)


def test_what_another_module_stores_has_the_line_of_that_module():
    inner = Stateful()
    with pytest.raises(ArgumentError, match=r"stores something .*self.last = out  # here`\)\.$"):
        onehop.message(GRAPH, lambda x_j: inner(x_j), x=X)
