"""Models that use no layer: they multiply by torch's sparse matrices, as their authors write it.

Each function returns a training step, which returns tensors to compare.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Step = Callable[[], list[Tensor]]


class Library(NamedTuple):
    """How a library makes square matrices of entries at [2, E] with values, [E], and multiplies by them."""

    matrix: Callable[[Tensor, Tensor, int], Any]
    prepared: Callable[[Any], Any]
    """Makes what a matrix that stays the same caches."""
    product: Callable[[Any, Tensor], Tensor]


TORCH = Library(
    matrix=lambda at, values, nodes: torch.sparse_coo_tensor(at, values, (nodes, nodes)),
    prepared=torch.Tensor.coalesce,
    product=torch.sparse.mm,
)


def torch_sparse() -> Library:
    """Return torch_sparse's matrices."""
    from torch_sparse import SparseTensor, matmul

    return Library(
        matrix=lambda at, values, nodes: SparseTensor(
            row=at[0], col=at[1], value=values, sparse_sizes=(nodes, nodes)
        ),
        prepared=SparseTensor.fill_cache_,
        product=matmul,
    )


def random_edges(nodes: int, edges: int, seed: int = 0) -> Tensor:
    """[2, E]: different edges, as many as ``edges`` or a few less, in the order of their destinations."""
    generator = torch.Generator().manual_seed(seed)
    keys = torch.randint(0, nodes * nodes, (edges,), generator=generator).unique()
    return torch.stack([keys // nodes, keys % nodes])


def normalised(edges: Tensor, nodes: int) -> tuple[Tensor, Tensor]:
    """Entries, [2, E], and values, [E], of edges in both directions, scaled by the roots of both degrees."""
    both = torch.cat([edges, edges.flip(0)], 1)
    degrees = torch.bincount(both[0], minlength=nodes).clamp(min=1).float().rsqrt()
    values = degrees[both[0]] * degrees[both[1]]
    matrix = torch.sparse_coo_tensor(both, values, (nodes, nodes)).coalesce()
    return matrix.indices(), matrix.values()


def _taken(loss: Tensor, parameters: list[nn.Parameter], optimiser: torch.optim.Optimizer) -> list[Tensor]:
    optimiser.zero_grad()
    loss.backward()
    results = [loss.detach(), *(p.grad.clone() for p in parameters if p.grad is not None)]
    optimiser.step()
    return results


def lightgcn(nodes: int, edges: int, width: int = 64, library: Library = TORCH) -> Step:
    """LightGCN: three products of embeddings, whose mean scores users and items of 2,048 triplets (BPR)."""
    adjacency = library.prepared(library.matrix(*normalised(random_edges(nodes, edges), nodes), nodes))
    embedding = nn.Embedding(nodes, width)
    optimiser = torch.optim.Adam(embedding.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(1)

    def step() -> list[Tensor]:
        rows = [embedding.weight]
        for _ in range(3):
            rows.append(library.product(adjacency, rows[-1]))
        final = torch.stack(rows, 1).mean(1)
        users, liked, others = (
            final[torch.randint(0, nodes, (2048,), generator=generator)] for _ in range(3)
        )
        loss = -F.logsigmoid((users * liked).sum(1) - (users * others).sum(1)).mean()
        return _taken(loss, [embedding.weight], optimiser)

    return step


def sgl(nodes: int, edges: int, width: int = 64, library: Library = TORCH) -> Step:
    """LightGCN whose every step drops a tenth of the edges: the matrix is new, and not coalesced."""
    indices, values = normalised(random_edges(nodes, edges), nodes)
    embedding = nn.Embedding(nodes, width)
    optimiser = torch.optim.Adam(embedding.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(1)

    def step() -> list[Tensor]:
        kept = torch.rand(values.size(0), generator=generator) >= 0.1
        adjacency = library.matrix(indices[:, kept], values[kept] / 0.9, nodes)
        rows = [embedding.weight]
        for _ in range(3):
            rows.append(library.product(adjacency, rows[-1]))
        loss = torch.stack(rows, 1).mean(1)[:2048].square().sum(1).mean()
        return _taken(loss, [embedding.weight], optimiser)

    return step


def kipf(
    nodes: int, edges: int, inputs: int, width: int, classes: int = 16, library: Library = TORCH
) -> Step:
    """Kipf's GCN: ``mm(adj, x @ W) + b``, twice, with dropout between."""
    adjacency = library.prepared(library.matrix(*normalised(random_edges(nodes, edges), nodes), nodes))
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(nodes, inputs, generator=generator)
    labels = torch.randint(0, classes, (nodes,), generator=generator)
    weights = nn.ParameterList(
        nn.Parameter(torch.randn(rows, columns, generator=generator) * rows**-0.5)
        for rows, columns in ((inputs, width), (width, classes))
    )
    biases = nn.ParameterList(nn.Parameter(torch.zeros(columns)) for columns in (width, classes))
    parameters = [*weights, *biases]
    optimiser = torch.optim.Adam(parameters, lr=1e-2)

    def step() -> list[Tensor]:
        hidden = torch.relu(library.product(adjacency, x @ weights[0]) + biases[0])
        hidden = F.dropout(hidden, 0.5)
        scores = library.product(adjacency, hidden @ weights[1]) + biases[1]
        return _taken(F.cross_entropy(scores, labels), parameters, optimiser)

    return step


def attention(nodes: int, edges: int, width: int = 64) -> Step:
    """Attention as pyGAT and KGAT write it: scores of edges, a sparse softmax, and a product with it."""
    at = random_edges(nodes, edges)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(nodes, width, generator=generator)
    weight = nn.Parameter(torch.randn(width, width, generator=generator) * width**-0.5)
    to_scores = nn.Parameter(torch.randn(width, 2, generator=generator) * width**-0.5)
    optimiser = torch.optim.Adam([weight, to_scores], lr=1e-3)

    def step() -> list[Tensor]:
        hidden = x @ weight
        of_ends = hidden @ to_scores
        scores = F.leaky_relu(of_ends[at[0], 0] + of_ends[at[1], 1], 0.2)
        matrix = torch.sparse_coo_tensor(at, scores, (nodes, nodes))
        out = torch.sparse.mm(torch.sparse.softmax(matrix, dim=1), hidden)
        return _taken(out.square().mean(), [weight, to_scores], optimiser)

    return step
