"""GCN's weights of the edges of one part, which are products of two scales and need not be made."""

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from onehop.distributed.edges import LOOKS
from onehop.distributed.graph import DistributedGraph


class PartWeights(torch.Tensor):
    """The weights [e] as a tensor of their shape, without memory.

    A sum takes the scales in their place. Everything else that is computed with it gets the weights
    themselves, which are then made, once, by all processes together.
    """

    graph: DistributedGraph
    scale: Tensor
    """[n]: 1 / sqrt(degree) of the owned rows; 0 where there are no edges."""

    @staticmethod
    def of(graph: DistributedGraph, dtype: torch.dtype) -> "PartWeights":
        """The weights of a graph whose edges weigh 1 before they are normalised."""
        shape = torch.zeros(1, dtype=dtype, device=graph.device).expand(graph.num_edges)
        weights: PartWeights = torch.Tensor._make_subclass(PartWeights, shape)
        weights.graph = graph
        weights.scale = graph.derived(("gcn_scale", dtype), lambda: _scale(graph.in_degrees.to(dtype)))
        return weights

    def made(self) -> Tensor:
        """The weights as a plain tensor."""
        return made_weights(self.graph, self.scale.dtype)

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Runs what looks at the shape as it is, and all else on the weights themselves."""
        with torch._C.DisableTorchFunctionSubclass():
            if func not in LOOKS:
                args, kwargs = tree_map(_plain, (args, kwargs))
            return func(*args, **(kwargs or {}))


def _plain(operand: Any) -> Any:
    return operand.made() if isinstance(operand, PartWeights) else operand


def made_weights(graph: DistributedGraph, dtype: torch.dtype) -> Tensor:
    """Return [e]: the weights of edges that weigh 1 before they are normalised; kept with the graph."""

    def make() -> Tensor:
        with torch.inference_mode(False), torch.no_grad():
            return normalised_weights(graph, torch.ones(graph.num_edges, dtype=dtype, device=graph.device))

    weights: Tensor = graph.derived(("gcn_norm", dtype), make)
    return weights


def normalised_weights(graph: DistributedGraph, weight: Tensor) -> Tensor:
    """Return [e]: weight / sqrt(degree of the source * degree of the destination). Differentiable.

    After ``torch_geometric.nn.conv.gcn_conv.gcn_norm``.
    """
    source, target = graph.ends()
    scale = _scale(weight.new_zeros(graph.num_nodes).index_add(0, target, weight))
    everywhere = torch.cat([scale, graph.exchange.values(scale.unsqueeze(1)).squeeze(1)])
    return everywhere[source] * weight * scale[target]


def _scale(degree: Tensor) -> Tensor:
    scale = degree.pow(-0.5)
    return scale.masked_fill(scale == float("inf"), 0)
