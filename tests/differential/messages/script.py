"""A program as the text of a module, which a user could have written."""

import re
import string
import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tests.differential.messages.code import joined, placed
from tests.differential.messages.forms import BASES, FORMS, FORWARDS, OPERANDS, STAGES
from tests.differential.messages.steps import STEPS

if TYPE_CHECKING:
    from tests.differential.messages.program import Program

# Nodes, edges, width. By ordinary thresholds PyG's own code runs where there are few.
SIZES: Mapping[str, tuple[int, int, int]] = {
    "medium": (600, 6000, 32),
    "large": (2000, 20000, 16),
    "wide": (500, 5000, 64),
    "small": (40, 150, 8),
    "tiny": (3, 5, 4),
    "one to one": (5000, 5000, 32),
    # Up to three more edges make one less than a bound of few edges, so many, or one more.
    "around 512": (100, 511, 8),
    "around 1,024": (200, 1023, 8),
    "around 4,096": (800, 4095, 8),
    "around 131,072 numbers": (500, 2047, 64),
}

AGGREGATIONS = ("sum", "mean", "max", "min", "std", "median", "softmax", ["sum", "max"])

VALUES: Mapping[str, str] = {
    "normal": "torch.randn(nodes, WIDTH, generator=chance, dtype=DTYPE)",
    "whole": "torch.randint(-2, 3, (nodes, WIDTH), generator=chance).to(DTYPE)",
    "positive": "torch.rand(nodes, WIDTH, generator=chance, dtype=DTYPE) + 0.1",
    "special": "SPECIAL[torch.randint(0, len(SPECIAL), (nodes, WIDTH), generator=chance)]",
}

_HEAD = """import collections
import contextlib
import contextvars
import copy
import dataclasses
import enum
import functools
import gc
import heapq
import io
import itertools
import logging
import math
import operator
import os
import pathlib
import pickle
import random
import sys
import threading
import time
import traceback
import types
import warnings
import weakref
from typing import Optional

import numpy as np
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
import torch_geometric
from torch import Tensor
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import softmax

BOUNDS, EARLY, OTHERS = $bounds, $early, $others
NODES, EDGES, WIDTH, DTYPE = $nodes, $edges, $width, torch.$dtype
HEARD, COUNTED = [], collections.Counter()
"""

_CLASS = """
class Own($base):
    def __init__(self):
        super().__init__(aggr=$aggr$options)
        $init

    def forward(self, x, edge_index, $more):
        $forward

    $members


$bottom
"""

_TAIL = """
nan, inf = float("nan"), float("inf")
SPECIAL = torch.tensor(
    [0.0, -0.0, nan, inf, -inf, 1.0, -1.0, 88.8, -88.8, 104.0, -104.0, 710.0, 1e-40, -1e-40, 1e9, 1e12, 0.5, 20.0, 2.5],
    dtype=DTYPE,
)


class Sub(torch.Tensor):
    pass


class Counting(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


def tripled(message):
    @functools.wraps(message)
    def inner(*args, **kwargs):
        return message(*args, **kwargs) * 3

    return inner


def graph(s, seed, edges=EDGES):
    chance = torch.Generator().manual_seed(seed)
    index = $index
    return $form


def operands(edges, nodes=NODES):
    chance = torch.Generator().manual_seed(2)
    return {
        $given
    }


def larger(s):
    edges = EDGES + EDGES // 2 + 1
    return graph(s, 5, edges), operands(edges)


def with_few(s, edges):
    s.edges = s.edges[:, :edges]
    s.more = {name: each.detach()[:edges] if name.startswith("edge") else each for name, each in s.more.items()}


def floated(edges):
    return edges if edges.layout is torch.strided else edges.float()


def start():
    torch.manual_seed($seed)
    random.seed($seed)
    np.random.seed($seed)
    s = types.SimpleNamespace(out=None, found=None, optimiser=None)
    nodes, chance = NODES, torch.Generator().manual_seed($seed)
    s.x = ($values).requires_grad_($grad)
    s.edges, s.more = graph(s, $seed), operands(EDGES)
    s.layer = Own().to(DTYPE)
    return s


def call(s, x=None):
    return s.layer(s.x if x is None else x, s.edges, **s.more)


def change(s):
    $change


$steps
STEPS = [$names]
"""

_WHOLE = """

if __name__ == "__main__":  # in a checkout: PYTHONPATH=. python THIS_FILE
    from tests.differential.messages.judge import tell

    tell(__file__)
"""

_MODULES = {
    "lin": "torch.nn.Linear(WIDTH, WIDTH)",
    "edge": "torch.nn.Linear(3, WIDTH)",
    "pair": "torch.nn.Linear(2 * WIDTH, WIDTH)",
    "network": "torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH))",
}
_GIVEN = {
    "z": "torch.randn(nodes, WIDTH, generator=chance, dtype=DTYPE).requires_grad_(OTHERS)",
    "edge_attr": "torch.randn(edges, 3, generator=chance, dtype=DTYPE).requires_grad_(OTHERS)",
    "edge_weight": "torch.rand(edges, generator=chance, dtype=DTYPE).requires_grad_(OTHERS)",
}
_INDICES = {
    True: "torch.stack([torch.arange(edges) % NODES, (torch.arange(edges) * 7 + 3) % NODES])",
    False: "torch.randint(0, NODES, (2, edges), generator=chance)",
}
_MATRIX = "torch.sparse_coo_tensor(index, torch.ones(edges, dtype=DTYPE), (NODES, NODES)).coalesce().to_sparse_csr()"


def operands_in(text: str) -> set[str]:
    """The operands of a message that a text names."""
    return set(re.findall(r"[A-Za-z_]\w*", text)) & set(OPERANDS)


def text_of(program: "Program") -> str:
    """The text of a program's module."""
    form, stage = FORMS[program.form], STAGES[program.stage]
    code = joined(part.code(number) for number, part in enumerate(program.parts, 1))
    body = "\n".join([f"out = {BASES[program.base]}", code.body, "return out"])
    read = operands_in(body) | {"x_j"}
    takes = [name for name in OPERANDS if name in read]
    more = [name for name in takes if name not in ("x_j", "index", "ptr", "dim_size")]
    words = {
        "name": stage.name,
        "params": ", ".join(_declared(name) for name in takes),
        "annotated": ", ".join(f"{name}: {_annotation(name)}" for name in takes),
        "given": ", ".join(takes),
        "keywords": ", ".join(f"{name}={name}" for name in takes),
        "more": "".join(f", {name}" for name in more),
    }

    def around(template: str) -> str:
        return placed(template, {**words, "body": _globals_first(body)})

    given = [name for name in _GIVEN if name in read or f"{name}_j" in read or f"{name}_i" in read]
    init = [f"self.{name} = {made}" for name, made in _MODULES.items() if f"self.{name}" in body]
    nodes, edges, width = SIZES[program.size]
    keywords = {"operands": ", ".join(f"{name}={name}" for name in ["x", *given])}
    first, options = FORWARDS[program.forward]
    forward = placed(stage.forward, {**keywords, "x": placed(first, keywords)})
    head = string.Template(_HEAD).substitute(
        bounds=repr(program.bounds),
        early=program.early,
        others=program.others,
        nodes=nodes,
        edges=edges + program.more_edges,
        width=width,
        dtype=program.dtype,
    )
    members = [around(stage.members), code.members, around(form.members)]
    own = placed(
        _CLASS,
        {
            "base": form.base,
            "aggr": repr(program.aggr),
            "options": options,
            "init": "\n".join([*init, code.init, around(form.init)]),
            "more": ", ".join(f"{name}=None" for name in given) or "**more",
            "forward": forward,
            "members": "\n".join(filter(None, members)),
            "bottom": around(form.bottom),
        },
    )
    steps = [
        f"def step_{number}(s):\n{textwrap.indent(STEPS[step], '    ')}\n\n"
        for number, step in enumerate(program.steps)
    ]
    tail = placed(
        _TAIL,
        {
            "index": _INDICES[program.size == "one to one"],
            "form": _MATRIX if program.stage == "fused" else "index",
            "given": "\n".join(f'"{name}": {_GIVEN[name]},' for name in given) or "",
            "seed": str(program.seed),
            "values": VALUES[program.values],
            "grad": str(program.grad),
            "change": _globals_first(code.change or "pass"),
            "steps": "\n".join(steps),
            "names": ", ".join(f"({step!r}, step_{number})" for number, step in enumerate(program.steps)),
        },
    )
    return re.sub(r"\n{4,}", "\n\n\n", "\n".join([head, code.top, "", around(form.top), "", own, tail]))


def whole(program: "Program") -> str:
    """The text of a program's module as a script, with the data that make it."""
    return f'"""{program!r}"""\n\n{text_of(program)}{_WHOLE}'


def _globals_first(text: str) -> str:
    """The statements with those that declare names global in front, once each."""
    lines = text.splitlines()
    declared = dict.fromkeys(line for line in lines if line.startswith("global "))
    return "\n".join([*declared, *(line for line in lines if not line.startswith("global "))])


def _annotation(name: str) -> str:
    return {"ptr": "Optional[Tensor]", "size_i": "Optional[int]", "dim_size": "Optional[int]"}.get(
        name, "Tensor"
    )


def _declared(name: str) -> str:
    # PyG requires of these that they are declared as its own aggregation declares them.
    return f"{name}: {_annotation(name)}" if name in ("ptr", "dim_size") else name
