"""Signals, returned edges, small graphs and explainers, as others build on PyG, with and without the patch.

    python -m benchmarks.layers.bench_built_on_pyg [--cases signals,returned,loading,batches,explainers]
                                                   [--scale 1.0] [--rounds 5] [--json FILE]

``signals``: one aggregation over 207 to 2,000 nodes of 8 edges each, for 48 to 192 signals of width 32: a
weighted sum, a mean, a maximum, attention. ``returned``: a block of a mesh model, whose edges are kept and
summed. ``loading``: batches of small graphs from a ``DataLoader``. ``batches``: steps of three layers on
them, with loading and the optimiser's step.
``explainers``: a GNNExplainer of five steps, and a step of PGExplainer, on a graph of ogbn-arxiv's size.

Results and gradients are compared before both ways take turns; each case has a process of its own.
``--scale`` multiplies the numbers of nodes, edges, graphs and signals.
"""

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import LayerNorm, Linear, Module, Parameter, Sequential, SiLU
from torch_geometric.data import Data, InMemoryDataset
from torch_geometric.explain import Explainer, GNNExplainer, PGExplainer
from torch_geometric.loader import DataLoader
from torch_geometric.nn import (
    GATConv,
    GCNConv,
    GINConv,
    MessagePassing,
    SimpleConv,
    global_add_pool,
)
from torch_geometric.utils import scatter, softmax

from benchmarks import harness
from benchmarks.harness import Benchmark, Option, Options, Row
from onehop.datasets import chung_lu

Call = Callable[[], list[Tensor]]
WIDTH, EDGES_OF_A_SENSOR = 32, 8
# Nodes and signals: METR-LA's and PEMS-BAY's sensors, and two larger graphs.
SIGNALS = ((207, 192), (325, 192), (2_000, 64), (1_500, 48))
REDUCES = ("sum", "mean", "max", "attention")
# Nodes, edges and width of a mesh.
MESHES = ((15_000, 90_000, 96), (40_000, 240_000, 128))
# Graphs of a batch, and nodes of a graph.
BATCHES = ((32, 18), (256, 23), (64, 100))
LAYERS: dict[str, Callable[[int, int], Module]] = {
    "GIN": lambda inp, out: GINConv(Sequential(Linear(inp, out), torch.nn.ReLU(), Linear(out, out))),
    "GCN": GCNConv,
    "GAT": lambda inp, out: GATConv(inp, out // 4, heads=4),
}
STEPS, FEATURES, CLASSES = 4, 16, 8
ARXIV = (169_343, 1_166_242, 128)


class Attention(MessagePassing):
    """GATv2's attention over signals ``[..., N, F]``, which PyG's class refuses."""

    def __init__(self, width: int) -> None:
        super().__init__(aggr="sum")
        self.att = Parameter(torch.linspace(-0.3, 0.3, width))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Aggregates."""
        return self.propagate(edge_index, x=x)

    def message(self, x_i: Tensor, x_j: Tensor, index: Tensor, size_i: int) -> Tensor:
        """Weights the source by a softmax."""
        score = (F.leaky_relu(x_i + x_j, 0.2) * self.att).sum(-1, keepdim=True)
        return softmax(score, index, None, size_i, dim=self.node_dim) * x_j


class MeshBlock(MessagePassing):
    """A block of a mesh model: an MLP over both ends and the edge, whose result is kept and summed."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.of_edges = Sequential(Linear(3 * width, width), SiLU(), Linear(width, width), LayerNorm(width))
        self.of_nodes = Sequential(Linear(2 * width, width), SiLU(), Linear(width, width), LayerNorm(width))

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the nodes and the edges."""
        sums, edges = self.propagate(edge_index, x=x, edge_attr=edge_attr)
        return x + self.of_nodes(torch.cat([x, sums], -1)), edges

    def message(self, x_i: Tensor, x_j: Tensor, edge_attr: Tensor) -> Tensor:
        """The edge after the block."""
        return edge_attr + self.of_edges(torch.cat([x_i, x_j, edge_attr], -1))

    def aggregate(self, inputs: Tensor, index: Tensor, dim_size: int) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """Sums the edges, and returns them."""
        return scatter(inputs, index, 0, dim_size), inputs


class Classifier(Module):
    """Three layers, a sum over each graph, and a linear step."""

    def __init__(self, make: Callable[[int, int], Module]) -> None:
        super().__init__()
        widths = FEATURES, 2 * WIDTH, 2 * WIDTH, 2 * WIDTH
        self.layers = torch.nn.ModuleList(make(*each) for each in itertools.pairwise(widths))
        self.last = Linear(2 * WIDTH, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, graphs: int) -> Tensor:
        """Classifies each graph."""
        for layer in self.layers:
            x = layer(x, edge_index).relu()
        return self.last(global_add_pool(x, batch, graphs))


class Graphs(InMemoryDataset):
    """Random trees, each edge in both directions."""

    def __init__(self, count: int, nodes: int) -> None:
        super().__init__()
        self.data, self.slices = self.collate([self._tree(nodes) for _ in range(count)])

    @staticmethod
    def _tree(nodes: int) -> Data:
        child = torch.arange(1, nodes)
        parent = (torch.rand(nodes - 1) * child).long()
        edges = torch.stack([torch.cat([child, parent]), torch.cat([parent, child])])
        return Data(torch.randn(nodes, FEATURES), edges, y=torch.randint(CLASSES, (1,)))


class Explained(Module):
    """Two layers of GCN whose nodes are classified."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = GCNConv(width, 2 * WIDTH), GCNConv(2 * WIDTH, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Classifies each node."""
        return self.second(self.first(x, edge_index).relu(), edge_index)


def of_signals(order: Row) -> Call:
    """An aggregation of each signal, forward and backward."""
    nodes, signals = (_scaled(each, order) for each in order["size"])
    x = torch.randn(signals, nodes, WIDTH, requires_grad=True)
    edges = torch.randint(nodes, (2, EDGES_OF_A_SENSOR * nodes))
    weight = (torch.rand(edges.size(1)),) if order["how"] == "sum" else ()
    layer = Attention(WIDTH) if order["how"] == "attention" else SimpleConv(order["how"])
    return _differentiated(lambda: [layer(x, edges, *weight)], [x, *layer.parameters()])


def of_mesh(order: Row) -> Call:
    """A block of a mesh model, forward and backward."""
    nodes, count = (_scaled(each, order) for each in order["size"][:2])
    width = order["size"][2]
    layer, edges = MeshBlock(width), torch.randint(nodes, (2, count))
    x = torch.randn(nodes, width, requires_grad=True)
    attr = torch.randn(count, width, requires_grad=True)
    return _differentiated(lambda: list(layer(x, edges, attr)), [x, attr, *layer.parameters()])


def of_loading(order: Row) -> Call:
    """The batches of an epoch."""
    graphs, nodes = order["size"]
    loader = DataLoader(Graphs(STEPS * graphs, nodes), _scaled(graphs, order))
    return lambda: [each for batch in loader for each in (batch.x, batch.edge_index, batch.batch + 1)]


def of_batches(order: Row) -> Call:
    """Steps of an epoch, from the same parameters each time."""
    graphs, nodes = order["size"]
    loader = DataLoader(Graphs(STEPS * graphs, nodes), _scaled(graphs, order))
    model = Classifier(LAYERS[order["how"]])
    begin = {name: each.clone() for name, each in model.state_dict().items()}

    def once() -> list[Tensor]:
        model.load_state_dict(begin)
        optimiser = torch.optim.Adam(model.parameters(), lr=0.001)
        losses = []
        for batch in loader:
            out = model(batch.x, batch.edge_index, batch.batch, batch.num_graphs)
            loss = F.cross_entropy(out, batch.y)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.detach())
        return [torch.stack(losses)]

    return once


def of_explainers(order: Row) -> Call:
    """The masks that an explainer finds of one node, at one seed."""
    nodes, count = (_scaled(each, order) for each in ARXIV[:2])
    model, x = Explained(ARXIV[2]).eval(), torch.randn(nodes, ARXIV[2])
    edges = chung_lu(nodes, count // 2 * 2)
    # A node with neighbours.
    index = int(edges[1].mode().values)
    target, learns = torch.arange(nodes) % CLASSES, order["how"] == "PGExplainer"

    def once() -> list[Tensor]:
        torch.manual_seed(0)
        algorithm: Any = PGExplainer(epochs=1) if learns else GNNExplainer(epochs=5)
        explainer = Explainer(
            model,
            algorithm,
            explanation_type="phenomenon" if learns else "model",
            node_mask_type=None if learns else "attributes",
            edge_mask_type="object",
            model_config={"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"},
        )
        if not learns:
            found = explainer(x, edges, index=index)
            return [found.node_mask, found.edge_mask]
        with warnings.catch_warnings():
            # PyG makes a number of a tensor that has a gradient.
            warnings.filterwarnings("ignore", "Converting a tensor")
            algorithm.train(0, model, x, edges, target=target, index=index)
        return [explainer(x, edges, target=target, index=index).edge_mask]

    return once


def _scaled(number: int, order: Row) -> int:
    return max(int(number * order["scale"]), 4)


def _differentiated(call: Call, operands: list[Tensor]) -> Call:
    """The outputs of a call, and the gradients of its operands."""
    grads = [torch.randn_like(each) for each in call()]

    def once() -> list[Tensor]:
        outs = call()
        return [*(each.detach() for each in outs), *torch.autograd.grad(outs, operands, grads)]

    return once


KINDS: dict[str, Callable[[Row], Call]] = {
    "signals": of_signals,
    "returned": of_mesh,
    "loading": of_loading,
    "batches": of_batches,
    "explainers": of_explainers,
}


def _orders(case: str) -> Iterator[tuple[str, Row]]:
    """What is measured of a case: its name, and what makes it."""
    if case == "signals":
        for how in REDUCES:
            for nodes, signals in SIGNALS:
                yield f"{how}, {nodes:,} nodes, {signals} signals", {"how": how, "size": (nodes, signals)}
    elif case == "returned":
        for nodes, edges, width in MESHES:
            yield f"mesh, {nodes:,} nodes, {edges:,} edges, {width}", {"size": (nodes, edges, width)}
    elif case == "loading":
        for graphs, nodes in BATCHES:
            yield f"loading, {graphs} graphs of {nodes} nodes", {"size": (graphs, nodes)}
    elif case == "batches":
        for how in LAYERS:
            for graphs, nodes in BATCHES:
                yield f"{how}, {graphs} graphs of {nodes} nodes", {"how": how, "size": (graphs, nodes)}
    else:
        for how in ("GNNExplainer", "PGExplainer"):
            yield how, {"how": how}


def rows(options: Options) -> Iterator[Row]:
    """Measures every case."""
    shared = {name: getattr(options, name) for name in ("scale", "rounds", "threads")}
    for case in options.cases:
        for what, order in _orders(case):
            row = harness.beside_pyg_apart(KINDS[case], {**shared, **order}, what)
            harness.must_agree(row["difference"], harness.TOLERANCE, what)
            yield {"case": what, **row}


BENCHMARK = Benchmark(
    "benchmarks/layers/bench_built_on_pyg.py",
    rows,
    "case; PyG, ms | pyg_s | ms; onehop, ms | onehop_s | ms; gain | ratio | gain",
    {"cases": Option(tuple(KINDS), known=tuple(KINDS)), "scale": 1.0},
    rounds=5,
    kept=("scale",),
)

if __name__ == "__main__":
    BENCHMARK.main()
