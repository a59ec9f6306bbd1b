"""Layer-wise samples of graphs with several types, drawn as for the Heterogeneous Graph Transformer.

Source: Z. Hu, Y. Dong, K. Wang, Y. Sun, "Heterogeneous Graph Transformer", WWW 2020, algorithms 1 and 2, with
torch-sparse's limit on neighbours.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from onehop.loaders.engine import Batch, Choices, Engine
from onehop.loaders.keys import mixed
from onehop.loaders.relation import Relation

MOST_NEIGHBOURS = 50
"""Maximum number of a node's neighbours that are considered, drawn anew each time (as in torch-sparse)."""


class _Budget(NamedTuple):
    """Nodes of one type that may be drawn.

    Attributes:
        nodes: [n], int64, ascending.
        scores: [n], float64: the sum, over edges to nodes drawn so far, of 1 / (number of edges of that
            node).
    """

    nodes: Tensor
    scores: Tensor

    def with_more(self, nodes: Tensor, scores: Tensor) -> "_Budget":
        """Return the budget with added scores, for nodes in any order."""
        found, place = torch.cat([self.nodes, nodes]).unique(return_inverse=True)
        sums = torch.zeros(found.numel(), dtype=torch.float64, device="cpu")
        return _Budget(found, sums.index_add_(0, place, torch.cat([self.scores, scores])))


class LayerwiseEngine:
    """Draws a requested number of nodes of each type in each layer; nodes with many edges are preferred.

    It is used like :class:`Engine`, but fan-outs are ignored.
    """

    def __init__(self, num_nodes: Sequence[int], relations: Sequence[Relation]) -> None:
        self._relations = tuple(replace(each, fan_out=(MOST_NEIGHBOURS,)) for each in relations)
        self._engine = Engine(num_nodes, self._relations, Choices(hops=1))

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return (LayerwiseEngine, (self._engine.num_nodes, self._relations))

    def draw(self, seeds: Sequence[Tensor | None], num_samples: Sequence[Sequence[int]], key: int) -> Batch:
        """Draw a batch as :meth:`Engine.draw` does; ``num_samples`` has the nodes per layer for each type.

        The batch has all considered edges between its nodes, and no numbers per hop.
        """
        nothing = torch.empty(0, dtype=torch.int64, device="cpu")
        nodes = [nothing if each is None else each.to(device="cpu", dtype=torch.int64) for each in seeds]
        budgets = [_Budget(nothing, nothing.double()) for _ in nodes]
        layers = max((len(each) for each in num_samples), default=0)
        fresh = list(nodes)
        for layer in range(layers):
            self._update(budgets, fresh, nodes, mixed(key, layer, 0))
            for number, counts in enumerate(num_samples):
                count = counts[layer] if layer < len(counts) else 0
                place = _drawn(budgets[number].scores, count, mixed(key, layer, 1, number))
                fresh[number] = budgets[number].nodes[place]
                kept = torch.ones(budgets[number].nodes.numel(), dtype=torch.bool, device="cpu")
                kept[place] = False
                budgets[number] = _Budget(budgets[number].nodes[kept], budgets[number].scores[kept])
                nodes[number] = torch.cat([nodes[number], fresh[number]])
        return self._between(nodes, mixed(key, layers, 0))

    def _update(self, budgets: list[_Budget], fresh: list[Tensor], nodes: list[Tensor], key: int) -> None:
        """Add the neighbours of fresh nodes to the budgets, except nodes that are already in the batch."""
        batch = self._engine.draw(fresh, key)
        for relation, edge_index in zip(self._relations, batch.edge_index, strict=True):
            source, target = edge_index
            neighbours = batch.nodes[relation.src][source]
            scores = torch.bincount(target, minlength=1).double().reciprocal()[target]
            is_new = torch.isin(neighbours, nodes[relation.src], invert=True)
            budgets[relation.src] = budgets[relation.src].with_more(neighbours[is_new], scores[is_new])

    def _between(self, nodes: list[Tensor], key: int) -> Batch:
        """Return the batch of these nodes."""
        batch = self._engine.draw(nodes, key)
        edge_index, edges = [], []
        for relation, ends, numbers in zip(self._relations, batch.edge_index, batch.edges, strict=True):
            # Seeds come first, so neighbours that are among the nodes have the nodes' numbers.
            inside = ends[0] < nodes[relation.src].numel()
            edge_index.append(ends[:, inside])
            edges.append(numbers[inside])
        return Batch(nodes, None, edge_index, edges, nodes_per_hop=[], edges_per_hop=None, graphs=None)


def _drawn(scores: Tensor, count: int, key: int) -> Tensor:
    """Return the positions of ``count`` entries, drawn without replacement with squared scores as weights.

    The method is the same as in ``Picker::weighted_without_replacement`` in csrc/sampling/picks.hpp.
    """
    if count >= scores.numel():
        return torch.arange(scores.numel(), device="cpu")
    generator = torch.Generator(device="cpu").manual_seed(key >> 1)
    uniform = torch.rand(scores.numel(), generator=generator, dtype=torch.float64, device="cpu")
    return (-uniform.log() / scores.square()).topk(count, largest=False).indices.sort().values
