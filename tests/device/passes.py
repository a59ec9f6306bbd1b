"""An operator's forward and backward pass on a hostile graph, as often and wherever a test wants them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.gpu.correctness import TESTED_HUB, hostile_edges
from benchmarks.gpu.operators import Inputs, Operator, Size
from benchmarks.gpu.untimed import CHECKED
from onehop import Graph
from onehop.kernels.triton import availability

# Heads and the width of each.
HEADS, WIDTH = (2, 8) if availability.interpreted() else (4, 64)


def edges_on(device: torch.device) -> tuple[Tensor, int]:
    """:func:`hostile_edges`, and the number of nodes; few for the interpreter, which takes long.

    Those few have a hub that is a long row, a row with an edge of each source, repeats, and a node without
    edges. In the transposed graph, if it is made on the device, one of the short rows runs as a long one.
    """
    if not availability.interpreted():
        return hostile_edges(device, TESTED_HUB)
    source = torch.arange(36, device=device) % 3
    target = torch.ones_like(source)
    target[-3:] = 0
    return torch.stack([source, target]), 4


@dataclass(frozen=True)
class Passes:
    """What is run, again and again."""

    operator: Operator  # the operator
    edge_index: Tensor  # [2, E], on the device
    size: Size  # of the graph and the tensors
    inputs: Inputs  # the tensors, by name
    grad: Tensor  # gradient of the output

    @classmethod
    def of(cls, name: str, device: torch.device) -> "Passes":
        """Those of an operator, in float32, on :func:`edges_on`."""
        edge_index, nodes = edges_on(device)
        return cls.on(name, edge_index, Size(nodes, edge_index.size(1), HEADS, WIDTH), torch.float32)

    @classmethod
    def on(cls, name: str, edge_index: Tensor, size: Size, dtype: torch.dtype) -> "Passes":
        """Those of an operator on some edges, with random tensors."""
        operator, device = CHECKED[name], edge_index.device
        inputs = operator.inputs(size, dtype, device)
        with torch.no_grad():
            shape = operator.naive(edge_index, size.nodes, inputs).shape
        grad = torch.randn(shape, generator=torch.Generator(device).manual_seed(1), device=device)
        return cls(operator, edge_index, size, inputs, grad.to(dtype))

    def graph(self) -> Graph:
        """A graph that nobody has used."""
        return Graph.from_edge_index(self.edge_index, self.size.nodes)

    def __call__(self, graph: Graph) -> dict[str, Tensor]:
        """The output, and the gradients by name."""
        out = self.forward(graph)
        return {"output": out.detach(), **self.backward(out)}

    def forward(self, graph: Graph) -> Tensor:
        """The output."""
        return self.operator.ours(graph, self.inputs)

    def backward(self, out: Tensor, retain_graph: bool = False) -> dict[str, Tensor]:
        """The gradients by name."""
        grads = torch.autograd.grad(out, list(self.inputs.values()), self.grad, retain_graph)
        return dict(zip(self.inputs, grads, strict=True))


def assert_same_bits(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    """Fails, by name, where dtypes or numbers differ."""
    assert {name: each.dtype for name, each in found.items()} == {
        name: each.dtype for name, each in expected.items()
    }
    assert [name for name, each in found.items() if not torch.equal(each, expected[name])] == []
