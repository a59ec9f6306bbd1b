"""Layers of users' own, among them some for whose classes PyG renders no or a common ``propagate``."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import Linear, Module, Parameter, functional
from torch.nn.functional import leaky_relu
from torch_geometric import nn as pyg
from torch_geometric.utils import softmax

from tests.differential.tensors import ATTRIBUTES


class Gated(pyg.MessagePassing):
    """A user's own layer, with a message of its own."""

    def __init__(self, inp: int, out: int, aggr: str = "sum", **kwargs: Any) -> None:
        super().__init__(aggr=aggr, **kwargs)
        self.lin = Linear(inp, out)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=self.lin(x))

    def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
        return torch.sigmoid(x_i) * x_j


class Composed(pyg.MessagePassing):
    """A user's own layer, with a message of several operations on both ends and on features of edges."""

    def __init__(
        self, inp: int, out: int, aggr: str = "sum", style: str = "heads", flow: str = "source_to_target"
    ) -> None:
        super().__init__(aggr=aggr, flow=flow)
        self.lin = Linear(inp, 4)
        self.edge = Linear(ATTRIBUTES, 4, bias=False)
        self.pair = Linear(8, 4)
        self.scale = Parameter(torch.linspace(0.5, 1.5, 4))
        self.last = Linear(4, out)
        self.style = style

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        return self.last(self.propagate(edge_index, x=self.lin(x), edge_attr=edge_attr))

    def message(self, x_i: Tensor, x_j: Tensor, edge_attr: Tensor) -> Tensor:
        if self.style == "heads":
            score = (x_i.view(-1, 2, 2) * x_j.view(-1, 2, 2)).sum(-1, keepdim=True)
            return (functional.leaky_relu(score, 0.2) * x_j.view(-1, 2, 2)).view(-1, 4)
        if self.style == "edges":
            return functional.silu(self.edge(edge_attr) + x_i) * self.scale - x_j.abs()
        if self.style == "pair":
            return functional.elu(self.pair(torch.cat([x_i, x_j], -1))) * edge_attr[:, :1].tanh()
        if self.style == "in place":
            out = x_i - x_j
            out *= 2
            return out.add_(1).sigmoid_() * self.scale.exp()
        return functional.softplus(x_j) / (1 + x_i.pow(2)) + edge_attr.mean(-1, keepdim=True)


class Plain(pyg.MessagePassing):
    """A user's own layer, with PyG's default message, that gives out what was aggregated."""

    def __init__(self, inp: int, out: int, aggr: str = "sum", **kwargs: Any) -> None:
        super().__init__(aggr=aggr, **kwargs)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x)


class Updating(Plain):
    """A user's own layer, that writes to what was aggregated."""

    def update(self, inputs: Tensor) -> Tensor:
        return inputs.mul_(2.0)


class Remembering(Plain):
    """A user's own layer, that keeps what it aggregated first and writes to what it aggregates later."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        first = self.propagate(edge_index, x=x)
        second = self.propagate(edge_index, x=x).mul_(0.5)
        return first - second


class GCNOfTheTutorial(pyg.MessagePassing):
    """The layer of PyG's tutorial."""

    def __init__(self, inp: int, out: int) -> None:
        super().__init__(aggr="add")
        self.lin = Linear(inp, out, bias=False)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        from torch_geometric.utils import add_self_loops, degree

        edge_index, _ = add_self_loops(edge_index, num_nodes=x.size(0))
        row, col = edge_index
        norm = degree(col, x.size(0), dtype=x.dtype).pow(-0.5)
        return self.propagate(edge_index, x=self.lin(x), norm=norm[row] * norm[col])

    def message(self, x_j: Tensor, norm: Tensor) -> Tensor:
        return norm.view(-1, 1) * x_j


class Unannotated(pyg.MessagePassing):
    """A layer whose message has a ``ptr`` without annotation."""

    def __init__(self, inp, out, style="attention", **kwargs):
        super().__init__(**kwargs)
        self.style = style
        self.att = Parameter(torch.linspace(-1.0, 1.0, inp))
        self.edge = Linear(ATTRIBUTES, inp)

    def forward(self, x, edge_index, edge_attr):
        return self.propagate(edge_index, x=x, edge_attr=edge_attr)

    def message(self, x_i, x_j, edge_attr, index, ptr, size_i):
        if self.style == "edges":
            return self.edge(edge_attr).tanh() * x_j
        if self.style == "pair":
            return torch.sigmoid(x_i) * x_j
        score = (leaky_relu(x_i + x_j, 0.2) * self.att).sum(-1, keepdim=True)
        return softmax(score, index, ptr, size_i) * x_j


class Enclosing(pyg.MessagePassing):
    """A layer with a ``propagate`` of its own around the plain one."""

    def __init__(self, inp, out, **kwargs):
        super().__init__(**kwargs)

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def propagate(self, edge_index, **operands):
        return 1 + super().propagate(edge_index, **operands)

    def message(self, x_i, x_j):
        return x_i.tanh() * x_j


TEXTS = {
    "product": "def message(self, x_i, x_j): return torch.sigmoid(x_i) * x_j",
    "weight": "def message(self, x_j, edge_weight):\n"
    "        return x_j if edge_weight is None else edge_weight.view(-1, 1) * x_j",
    "default message": "pass",
    "update": "def update(self, inputs, edge_weight): return inputs if edge_weight is None else inputs.exp()",
}
"""The bodies of the classes that are made of text."""


def executed(inp: int, out: int, text: str = "product", **options: Any) -> Module:
    """A layer whose class has no source, with a message as the text has it."""
    names: dict[str, Any] = {"MessagePassing": pyg.MessagePassing, "torch": torch, "__name__": "__main__"}
    exec(
        "class Executed(MessagePassing):\n"
        "    def forward(self, x, edge_index, edge_weight=None):\n"
        "        return self.propagate(edge_index, x=x, edge_weight=edge_weight)\n"
        f"    {TEXTS[text]}",
        names,
    )
    return names["Executed"](**options)  # type: ignore[no-any-return]


def executed_gcn(inp: int, out: int, **options: Any) -> Module:
    """A GCNConv whose class has no source."""
    names: dict[str, Any] = {"GCNConv": pyg.GCNConv, "__name__": "__main__"}
    exec("class Executed(GCNConv): pass", names)
    return names["Executed"](inp, out, **options)  # type: ignore[no-any-return]


def manufactured(inp: int, out: int, power: int = 1, style: str = "closure", **options: Any) -> Module:
    """A layer of a class that was made for it, with the name of others that compute something else."""
    if style == "closure":

        class Manufactured(pyg.MessagePassing):
            def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
                return self.propagate(edge_index, x=x)

            def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
                return x_j**power + x_i

        return Manufactured(**options)

    if style == "default":

        class Defaulting(pyg.MessagePassing):
            def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
                return self.propagate(edge_index, x=x)

            def message(self, x_i: Tensor, x_j: Tensor, factor: int = power) -> Tensor:
                return x_j * factor + x_i

        return Defaulting(**options)

    class Plain(pyg.MessagePassing):
        def forward(self, x, edge_index):
            return self.propagate(edge_index, x=x)

        def message(self, x_i, x_j, ptr):
            return x_j**power + x_i

    return Plain(**options)
