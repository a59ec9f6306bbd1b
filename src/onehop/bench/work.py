"""The work that an epoch of a model cannot do without, counted on a graph of seven nodes.

The model's forward pass is run once on it, and what is called is written down: products, dropout, other
elementwise steps, and the layers, whose aggregations follow from their kind. Rows are then put at the true
number of nodes or edges. The backward pass is derived: a product has two gradients, or one where its input
needs none; an elementwise step has one; aggregations run over the transposed graph.

Left out because it is small, or because no part owns it: the loss, the optimiser, normalisation by degrees,
biases, and attention's scores, which can be computed while rows are read for another reason.
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

# Features with fewer non-zeros than this share are multiplied by adding up the weights' rows of their
# non-zeros, where that is faster.
SPARSE_SHARE = 0.05
# The little graph: no two of nodes, edges, and edges with a loop at every node are equal.
_NODES = 7
_STEPS = ((0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3), (1, 2, 3, 4, 5, 6, 0, 2, 3, 4, 5))
_ELEMENTWISE = ("relu", "elu", "batch_norm", "log_softmax")

Shape = tuple[int, int]


@dataclass(frozen=True)
class Product:
    """A dense product of [rows, depth] by [depth, columns].

    Attributes:
        rows: Of the result.
        depth: Terms of each sum.
        columns: Of the result.
        nonzeros: Entries of the sparse factor that are not 0; None where both are dense.
    """

    rows: int
    depth: int
    columns: int
    nonzeros: int | None = None

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        return 2 * self.rows * self.depth * self.columns


@dataclass
class EpochWork:
    """The work of an epoch.

    Attributes:
        gathered: Bytes that aggregations move, by width of the rows.
        products: How often each product is computed.
        dropped: Passes of dropout over matrices, each read once and written once, by shape.
        elementwise: The same for all other elementwise steps.
    """

    gathered: Counter[int] = field(default_factory=Counter)
    products: Counter[Product] = field(default_factory=Counter)
    dropped: Counter[Shape] = field(default_factory=Counter)
    elementwise: Counter[Shape] = field(default_factory=Counter)


def count(model: str, task: LearningTask, hidden: int) -> EpochWork:
    """The work of an epoch over the whole graph at once, of a model that trains without mini-batches."""
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
    """Writes down what is called."""

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
        """Runs the function, and counts it."""
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
        """The aggregations of a layer of PyG, from its kind and its input."""
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
        """Sums before or after the linear step; sums of features that never change are kept."""
        if x is self.features:
            return
        # A sum of what needs no gradient runs forward only, where it comes before the linear step.
        ways = [(2 * after, after, 2), (2 * before, before, 2) if x.requires_grad else (before, before, 1)]
        _, width, passes = min(ways)
        self.work.gathered[width] += passes * aggregated_bytes(edges, self._nodes, width)
