"""Layers that return their messages beside the sums of these, and messages that ask for ``edge_index``."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import LayerNorm, Linear, Sequential, SiLU
from torch_geometric import nn as pyg
from torch_geometric.utils import scatter, softmax

from tests.differential.tensors import ATTRIBUTES

_WIDTH = 4

RESULTS = ("messages", "other end", "written", "written later", "three", "scaled", "parent", "list")
"""What the layer's ``aggregate`` does."""


class Returning(pyg.MessagePassing):
    """Two steps of a model of meshes, which keep the edges of the first for the second."""

    def __init__(self, inp: int, out: int, results: str = "messages", **options: Any) -> None:
        super().__init__(**options)
        self.nodes, self.edges = Linear(inp, _WIDTH), Linear(ATTRIBUTES, _WIDTH)
        steps = Linear(3 * _WIDTH, 5), SiLU(), Linear(5, _WIDTH), LayerNorm(_WIDTH)
        self.mlp, self.last, self.results = Sequential(*steps), Linear(_WIDTH, out), results

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        x, edge_attr = self.nodes(x), self.edges(edge_attr)
        for _ in range(2):
            sums, edge_attr, *others = self.propagate(edge_index, x=x, edge_attr=edge_attr)
            x = x + sums
            for each in others:
                edge_attr = edge_attr + each
        return self.last(x) + edge_attr.sum().tanh()

    def message(self, x_i: Tensor, x_j: Tensor, edge_attr: Tensor) -> Tensor:
        return self.mlp(torch.cat([x_i, x_j, edge_attr], -1)) + edge_attr

    def aggregate(self, inputs: Tensor, edge_index: Tensor, index: Tensor, dim_size: int) -> Any:
        if self.results == "other end":
            return scatter(inputs, edge_index[1], 0, dim_size), inputs
        if self.results == "written":
            inputs *= 2
        out = scatter(inputs, index, 0, dim_size)
        if self.results == "parent":
            out = super().aggregate(inputs, index, None, dim_size)
        if self.results == "written later":
            inputs += 1
        if self.results == "three":
            return out, inputs, inputs.tanh()
        if self.results == "list":
            return [out, inputs, inputs]
        return (out * 2 if self.results == "scaled" else out), inputs


MESSAGES = ("softmax", "softmax over edges", "unpacked", "compared", "counted")
"""What the layer's message makes of the numbers."""


class Asking(pyg.MessagePassing):
    """A layer whose message takes the numbers of both ends."""

    def __init__(self, inp: int, out: int, numbers: str = "softmax", **options: Any) -> None:
        super().__init__(**options)
        self.lin, self.score, self.numbers = Linear(inp, out), Linear(out, 1), numbers

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=self.lin(x))

    def message(self, x_i: Tensor, x_j: Tensor, edge_index: Tensor, size_i: int) -> Tensor:
        if self.numbers == "compared":
            return x_j * (edge_index[0] > edge_index[1]).view(-1, 1)
        if self.numbers == "counted":
            return x_j / (1 + edge_index.sum())
        target = edge_index[1]
        if self.numbers == "unpacked":
            _, target = edge_index
        count = x_i.size(0) if self.numbers == "softmax over edges" else size_i
        return softmax(self.score(x_i - x_j), target, num_nodes=count) * x_j
