"""Outputs and all gradients of the GPU kernels against the reference in float64, before anything is timed."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.gpu.operators import OPERATORS, Inputs, Operator, Size
from onehop import Graph

# A result may err so many times as much as the naive computation of the same precision, and by so many of
# the smallest differences that its dtype knows around 1.
SLACK = 4.0
# Edges of the hub in tests on a GPU: so many pieces that they are merged in two levels.
TESTED_HUB = 20_000


@dataclass(frozen=True, slots=True)
class Verdict:
    """Of one operator, dtype and tensor.

    Attributes:
        operator: Its name.
        dtype: Of the features.
        of: "output", or whose gradient.
        error: Largest error, as a share of the largest number of the exact result.
        allowed: What it may be.
    """

    operator: str
    dtype: str
    of: str
    error: float
    allowed: float

    @property
    def passes(self) -> bool:
        """Whether it is right; an error that is NaN is not."""
        return self.error <= self.allowed

    def __str__(self) -> str:
        """The error, in words."""
        return f"{self.of}: error {self.error:.2g}, allowed {self.allowed:.2g}"


def judge(
    operator: Operator, edge_index: Tensor, size: Size, dtype: torch.dtype, graph: Graph | None = None
) -> list[Verdict]:
    """Runs an operator and its backward pass three times: ours, naive, and naive in float64.

    Args:
        operator: The operator.
        edge_index: [2, E], on the device that is judged.
        size: Of the graph and the tensors.
        dtype: Of the tensors.
        graph: The graph of these edges; None means that it is made on the host.
    """
    if graph is None:
        graph = Graph.from_edge_index(edge_index.cpu(), size.nodes)
    inputs = operator.inputs(size, dtype, edge_index.device)
    ours = _results(inputs, lambda given: operator.ours(graph, given))
    naive = _results(inputs, lambda given: operator.naive(edge_index, size.nodes, given))
    wide = {name: tensor.detach().double().requires_grad_() for name, tensor in inputs.items()}
    exact = _results(wide, lambda given: operator.naive(edge_index, size.nodes, given))
    found = []
    for of, truth in exact.items():
        scale = max(float(truth.abs().max()), 1e-30)
        error, usual = (float((result[of].double() - truth).abs().max()) / scale for result in (ours, naive))
        # The naive version may happen to have no error, where sums in another order have some roundings.
        allowed = SLACK * (usual + 2 * torch.finfo(dtype).eps)
        found.append(Verdict(operator.name, str(dtype).removeprefix("torch."), of, error, allowed))
    return found


def judge_all(edge_index: Tensor, nodes: int, dtypes: list[torch.dtype]) -> list[Verdict]:
    """Every operator in every dtype, with two heads of an odd width."""
    size = Size(nodes, edge_index.size(1), 2, 9)
    return [
        verdict
        for operator in OPERATORS.values()
        for dtype in dtypes
        for verdict in judge(operator, edge_index, size, dtype)
    ]


def hostile_edges(device: torch.device, hub: int) -> tuple[Tensor, int]:
    """Edges with a hub in both directions, repeats, loops, and nodes without any; and the number of nodes."""
    generator = torch.Generator().manual_seed(0)
    nodes = 24
    edges = torch.randint(0, nodes - 4, (2, 60), generator=generator, device="cpu")
    spokes = torch.stack(
        [
            torch.randint(0, nodes - 4, (hub,), generator=generator, device="cpu"),
            torch.full((hub,), 3, device="cpu"),
        ]
    )
    return torch.cat([edges, spokes, spokes.flip(0), edges[:, :5]], 1).to(device), nodes


def _results(inputs: Inputs, run: Callable[[Inputs], Tensor]) -> dict[str, Tensor]:
    out = run(inputs)
    generator = torch.Generator(out.device).manual_seed(1)
    grad = torch.randn(out.shape, generator=generator, device=out.device)
    grads = torch.autograd.grad(out, list(inputs.values()), grad.to(out.dtype))
    return {"output": out.detach(), **dict(zip(inputs, grads, strict=True))}
