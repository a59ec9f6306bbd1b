"""Checks a timed case on the graph that is timed: some rows, with the gradients that follow from them.

The naive form of a whole case may not fit into memory. But a loss of some destinations depends on the edges
of these destinations alone. So onehop runs on the whole graph, with a gradient that is zero elsewhere, and
the naive form, in float64, on those edges. The output of these rows and every gradient must agree, and
gradients of nodes that have no part in the loss must be zero.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.gpu.correctness import SLACK, Verdict
from benchmarks.gpu.operators import Inputs, Operator

# Destinations that are checked, and the most edges that they may have together.
ROWS = 512
MOST_EDGES = 200_000


@dataclass(frozen=True, slots=True)
class Part:
    """Some destinations of a graph, and their edges between nodes numbered anew.

    Attributes:
        rows: [R]: the destinations.
        edges: [e]: the numbers of their edges in the graph, ascending.
        nodes: [n]: the nodes that take part, ascending.
        edge_index: [2, e]: the edges, between places in ``nodes``.
        places: [R]: the rows' places in ``nodes``.
    """

    rows: Tensor
    edges: Tensor
    nodes: Tensor
    edge_index: Tensor
    places: Tensor


def part_of(edge_index: Tensor, nodes: int, rows: int = ROWS, most_edges: int = MOST_EDGES) -> Part:
    """Destinations of every length: the longest that fits, and others drawn from all, within ``most_edges``.

    Args:
        edge_index: [2, E], int64.
        nodes: N.
        rows: The most destinations.
        most_edges: The most edges that they have together.
    """
    device = edge_index.device
    degree = torch.bincount(edge_index[1], minlength=nodes)
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randperm(nodes, generator=generator, device="cpu")[: rows - 1].to(device)
    fitting = torch.where(degree <= most_edges // 2, degree, -1)
    chosen = torch.cat([fitting.argmax().view(1), drawn]).unique()
    shortest_first = chosen[degree[chosen].argsort()]
    # The longest of all is kept where its edges leave room.
    hub = fitting.argmax()
    others = shortest_first[shortest_first != hub]
    fits = degree[others].cumsum(0) + degree[hub] <= most_edges
    picked = torch.cat([hub.view(1), others[fits]]).sort().values
    wanted = torch.zeros(nodes, dtype=torch.bool, device=device)
    wanted[picked] = True
    edges = wanted[edge_index[1]].nonzero().view(-1)
    taking = torch.cat([edge_index[:, edges].reshape(-1), picked]).unique()
    return Part(
        rows=picked,
        edges=edges,
        nodes=taking,
        edge_index=torch.searchsorted(taking, edge_index[:, edges]),
        places=torch.searchsorted(taking, picked),
    )


def judge_part(operator: Operator, ours: Tensor, inputs: Inputs, part: Part, of_dtype: str) -> list[Verdict]:
    """Compares an operator's output on the whole graph, and its gradients, with the naive form on a part.

    Returns:
        A verdict for the output and for each gradient; one more where a gradient that must be zero is not.
    """
    generator = torch.Generator(ours.device).manual_seed(1)
    shape = (part.rows.numel(), *ours.shape[1:])
    of_rows = torch.randn(shape, generator=generator, device=ours.device).to(ours.dtype)
    grad = torch.zeros_like(ours).index_copy_(0, part.rows, of_rows)
    found = torch.autograd.grad(ours, list(inputs.values()), grad)
    own = {"output": ours.detach()[part.rows]}
    verdicts = []
    for name, gradient in zip(inputs, found, strict=True):
        own[name] = _part_of(operator.shapes[name], gradient, part)
        # 0 for what has a row for neither nodes nor edges, which is whole.
        rest = gradient.abs().sum(dtype=torch.float64) - own[name].abs().sum(dtype=torch.float64)
        if float(rest.abs()) > 1e-9 * float(own[name].abs().sum() + 1):
            verdicts.append(Verdict(operator.name, of_dtype, f"{name}, elsewhere", float(rest), 0.0))
    same, wide = (_naive(operator, inputs, part, of_rows, dtype) for dtype in (ours.dtype, torch.float64))
    for of, truth in wide.items():
        scale = max(float(truth.abs().max()), 1e-30)
        error, usual = (float((each[of].double() - truth).abs().max()) / scale for each in (own, same))
        allowed = SLACK * (usual + torch.finfo(ours.dtype).eps)
        verdicts.append(Verdict(operator.name, of_dtype, of, error, allowed))
    return verdicts


def _part_of(letters: str, tensor: Tensor, part: Part) -> Tensor:
    rows = {"N": part.nodes, "E": part.edges}.get(letters[0])
    return tensor if rows is None else tensor[rows]


def _naive(
    operator: Operator, inputs: Inputs, part: Part, of_rows: Tensor, dtype: torch.dtype
) -> dict[str, Tensor]:
    given = {
        name: _part_of(operator.shapes[name], tensor.detach(), part).to(dtype).requires_grad_()
        for name, tensor in inputs.items()
    }
    out = operator.naive(part.edge_index, part.nodes.numel(), given)[part.places]
    grads = torch.autograd.grad(out, list(given.values()), of_rows.to(out.dtype))
    return {"output": out.detach(), **dict(zip(given, grads, strict=True))}
