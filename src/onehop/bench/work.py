"""The minimum work of an epoch of a model, counted on a graph of seven nodes.

The model's forward pass runs once on this graph, and all calls are recorded: products, dropout, other
elementwise steps, and the layers, whose aggregations follow from their kind. Numbers of rows are then
replaced by the true number of nodes or edges. The backward pass is derived: a product has two gradients, or
one if its input needs none; an elementwise step has one gradient; aggregations run over the transposed graph.

Some work is left out because it is small or because it belongs to no part: the loss, the optimiser,
normalisation by degrees, biases, and attention's scores, which can be computed while rows are read for
another purpose.
"""

import inspect
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from onehop.bench.limits import aggregated_bytes, attention_bytes
from onehop.bench.recipes import network
from onehop.bench.tasks import LearningTask

# If features have a smaller share of non-zeros than this, their product is computed by adding up the weight's
# rows of the non-zeros, if that is faster.
SPARSE_SHARE = 0.05
# The small graph: its numbers of nodes, of edges, and of edges with a loop at every node are all different.
_NODES = 7
_STEPS = ((0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3), (1, 2, 3, 4, 5, 6, 0, 2, 3, 4, 5))
_ELEMENTWISE = ("relu", "elu", "batch_norm", "log_softmax")

Shape = tuple[int, int]


@dataclass(frozen=True)
class Product:
    """A dense product of [rows, depth] by [depth, columns].

    Attributes:
        rows: Number of rows of the result.
        depth: Number of terms of each sum.
        columns: Number of columns of the result.
        nonzeros: Number of non-zero entries of the sparse factor; None if both factors are dense.
    """

    rows: int
    depth: int
    columns: int
    nonzeros: int | None = None

    @property
    def flops(self) -> int:
        """Number of multiplications and additions."""
        return 2 * self.rows * self.depth * self.columns


@dataclass
class EpochWork:
    """The work of an epoch.

    Attributes:
        gathered: Bytes that aggregations move, by width of the rows.
        products: How often each product is computed.
        dropped: Number of dropout passes over matrices, each read once and written once, by shape.
        elementwise: Number of passes of all other elementwise steps, by shape.
    """

    gathered: Counter[int] = field(default_factory=Counter)
    products: Counter[Product] = field(default_factory=Counter)
    dropped: Counter[Shape] = field(default_factory=Counter)
    elementwise: Counter[Shape] = field(default_factory=Counter)


def count(model: str, task: LearningTask, hidden: int) -> EpochWork:
    """Count the work of an epoch over the whole graph, for a model that trains without mini-batches."""
    from torch_geometric.nn import MessagePassing

    watch = _Watch(task)
    with torch.random.fork_rng(devices=[]):
        little = network(model, task.x.size(1), hidden, task.num_classes)
        for layer in little.modules():
            if isinstance(layer, MessagePassing):
                layer.register_forward_pre_hook(watch.layer)
        features = torch.ones(_NODES, task.x.size(1), device="cpu")
        watch.features = features
        with watch:
            little(features, torch.tensor(_STEPS, device="cpu"))
    return watch.work


class _Watch(TorchFunctionMode):
    """Records which functions are called."""

    def __init__(self, task: LearningTask) -> None:
        super().__init__()
        self.work = EpochWork()
        self.features: Tensor | None = None
        self._nodes, self._edges = task.x.size(0), task.edge_index.size(1)
        steps = len(_STEPS[0])
        self._rows = {
            _NODES: self._nodes,
            steps: self._edges,
            steps + _NODES: self._edges + self._nodes,
        }
        nonzeros = int(task.x.count_nonzero())
        self._nonzeros = nonzeros if nonzeros < SPARSE_SHARE * task.x.numel() else None
        self._width = task.x.size(1)

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run the function, and count its work."""
        kwargs = kwargs or {}
        name = getattr(function, "__name__", "")
        if name == "linear":
            self._product(args[0], args[1])
        elif name == "dropout":
            bound = inspect.signature(F.dropout).bind(*args, **kwargs)
            bound.apply_defaults()
            if bound.arguments["training"] and bound.arguments["p"] > 0:
                self._passes(self.work.dropped, bound.arguments["input"])
        elif name in _ELEMENTWISE:
            self._passes(self.work.elementwise, args[0])
        return function(*args, **kwargs)

    def _product(self, x: Tensor, weight: Tensor) -> None:
        rows, (columns, depth) = self._rows[x.size(0)], weight.shape
        sparse = self._nonzeros if not x.requires_grad and depth == self._width else None
        self.work.products[Product(rows, depth, columns, sparse)] += 1
        self.work.products[Product(columns, rows, depth, sparse)] += 1  # the weight's gradient
        if x.requires_grad:
            self.work.products[Product(rows, columns, depth)] += 1

    def _passes(self, into: Counter[Shape], x: Tensor) -> None:
        shape = self._rows[x.size(0)], x.numel() // x.size(0)
        into[shape] += 2 if x.requires_grad else 1

    def layer(self, layer: Any, args: tuple[Any, ...]) -> None:
        """Count the aggregations of a PyG layer, from its kind and its input."""
        from torch_geometric import nn

        for kind, name, loops in (
            (nn.GATConv, "gat", True),
            (nn.GATv2Conv, "gatv2", True),
            (nn.TransformerConv, "transformer", False),
        ):
            if isinstance(layer, kind):
                edges = self._edges + (self._nodes if loops else 0)
                moved = attention_bytes(name, edges, self._nodes, layer.heads, layer.out_channels)
                self.work.gathered[layer.heads * layer.out_channels] += sum(moved)
                return
        if isinstance(layer, nn.GINConv):
            first = next(step for step in layer.nn.modules() if isinstance(step, torch.nn.Linear))
            self._sums(args[0], first.in_features, first.out_features, self._edges)
        elif isinstance(layer, nn.GCNConv):
            edges = self._edges + self._nodes
            self._sums(args[0], layer.in_channels, layer.out_channels, edges)
        elif isinstance(layer, nn.SAGEConv):
            self._sums(args[0], layer.in_channels, layer.out_channels, self._edges)
        else:
            raise NotImplementedError(f"no count is known for {type(layer).__name__}")

    def _sums(self, x: Tensor, before: int, after: int, edges: int) -> None:
        """Count sums before or after the linear step; sums of constant features are kept, so not counted."""
        if x is self.features:
            return
        # If its input needs no gradient, a sum before the linear step runs forward only.
        ways = [(2 * after, after, 2), (2 * before, before, 2) if x.requires_grad else (before, before, 1)]
        _, width, passes = min(ways)
        self.work.gathered[width] += passes * aggregated_bytes(edges, self._nodes, width)
