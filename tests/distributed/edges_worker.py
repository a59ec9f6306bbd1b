"""Run by test_edges: layers with features of edges, beside PyG with the whole graph."""

import contextlib
import warnings
from collections.abc import Callable

import torch
import torch_geometric.nn as pyg
from torch import Tensor

import onehop
from onehop import distributed, thresholds
from tests.distributed import worker
from tests.distributed.cases import NODES, hostile, random

torch.set_default_dtype(torch.float64)
warnings.filterwarnings("ignore", category=UserWarning)
C, K = 6, 3


def weighted(conv: torch.nn.Module) -> torch.nn.Module:
    """A conv whose weight of an edge is made from the edge's features."""

    def use(
        conv: torch.nn.Module, weigh: torch.nn.Module, x: Tensor, edges: Tensor, features: Tensor
    ) -> Tensor:
        return conv(x, edges, weigh(features).sigmoid().squeeze(1))

    return worker.Using(use, conv, torch.nn.Linear(K, 1))


def featureless(conv: torch.nn.Module) -> torch.nn.Module:
    """A layer that takes no features of edges, and had no path of its own."""
    return worker.Using(lambda conv, x, edges, features: conv(x, edges), conv)


class Message(pyg.MessagePassing):
    """A layer of one's own, with the destinations' features, and the variance."""

    def __init__(self) -> None:
        super().__init__(aggr="var")
        self.lin = torch.nn.Linear(K, C)

    def forward(self, x: Tensor, edges: Tensor, features: Tensor) -> Tensor:
        return self.propagate(edges, x=x, z=x, features=features)

    def message(self, x_j: Tensor, z_i: Tensor, features: Tensor) -> Tensor:
        return x_j * z_i + self.lin(features)


def perceptron(inside: int = C) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(inside, C), torch.nn.ReLU(), torch.nn.Linear(C, C))


MODELS: dict[str, Callable[[], torch.nn.Module]] = {
    "GCNConv, weights": lambda: weighted(pyg.GCNConv(C, C)),
    "GraphConv, weights": lambda: weighted(pyg.GraphConv(C, C, aggr="max")),
    "GATConv": lambda: pyg.GATConv(C, C, heads=2, edge_dim=K),
    "GATConv, no loops": lambda: pyg.GATConv(C, C, edge_dim=K, add_self_loops=False),
    "GATConv, loops of 0.5": lambda: pyg.GATConv(C, C, edge_dim=K, fill_value=0.5),
    "GATv2Conv": lambda: pyg.GATv2Conv(C, C, heads=2, edge_dim=K),
    "GATv2Conv, loops of the largest": lambda: pyg.GATv2Conv(C, C, edge_dim=K, fill_value="max"),
    "TransformerConv": lambda: pyg.TransformerConv(C, C, heads=2, concat=False, edge_dim=K, beta=True),
    "GINEConv": lambda: pyg.GINEConv(perceptron(), edge_dim=K, train_eps=True),
    "two GINEConv": lambda: worker.two(*(pyg.GINEConv(perceptron(), edge_dim=K) for _ in range(2))),
    "two GATv2Conv": lambda: worker.two(*(pyg.GATv2Conv(C, C, edge_dim=K) for _ in range(2))),
    "NNConv": lambda: pyg.NNConv(C, C, torch.nn.Linear(K, C * C), aggr="mean"),
    "GENConv": lambda: pyg.GENConv(C, C, edge_dim=K, learn_t=True),
    "CGConv": lambda: pyg.CGConv(C, K),
    "GMMConv": lambda: pyg.GMMConv(C, C, dim=K, kernel_size=2),
    "ResGatedGraphConv": lambda: pyg.ResGatedGraphConv(C, C, edge_dim=K),
    "GeneralConv": lambda: pyg.GeneralConv(C, C, in_edge_channels=K, attention=True),
    "PNAConv": lambda: pyg.PNAConv(
        C, C, ["mean", "max", "std"], ["identity", "amplification"], torch.arange(30), edge_dim=K
    ),
    "PDNConv": lambda: pyg.PDNConv(C, C, K, 4),
    "a layer of one's own": Message,
    "EdgeConv": lambda: featureless(pyg.EdgeConv(perceptron(2 * C))),
    "LEConv": lambda: featureless(pyg.LEConv(C, C)),
    "AGNNConv": lambda: featureless(pyg.AGNNConv()),
    "SuperGATConv": lambda: featureless(pyg.SuperGATConv(C, C, heads=2).eval()),
    "SAGEConv, several": lambda: featureless(pyg.SAGEConv(C, C, aggr=["mean", "softmax"])),
}

rank, ranks = worker.join()
edge_index = hostile()
EDGES = edge_index.size(1)
x, features, target = random(NODES, C), random(EDGES, K, seed=5).abs(), random(NODES, C, seed=4)
scattered = torch.randint(0, ranks, (NODES,), generator=torch.Generator().manual_seed(0))
if ranks > 2:  # the last one owns a single node
    scattered[scattered == ranks - 1] = 0
    scattered[7] = ranks - 1
OWNERS = {"scattered": scattered, "lopsided": torch.zeros(NODES, dtype=torch.int64)}


def step(model: torch.nn.Module, graph: distributed.DistributedGraph | None) -> dict[str, Tensor]:
    """The output, the loss and all gradients; those of edges as a part of the whole graph's."""
    nodes = slice(None) if graph is None else graph.owned_nodes
    here = x[nodes].clone().requires_grad_()
    everyone = features.clone().requires_grad_()
    edges, mine = (edge_index, everyone) if graph is None else (graph.edge_index, graph.edge_rows(everyone))
    out = model(here, edges, mine)
    out = out.unflatten(1, (-1, C)).sum(1)
    loss = ((out - target[nodes]) ** 3).sum() / NODES
    loss.backward()
    if graph is not None:
        # Those of a tensor that all have count as a parameter's.
        distributed.add_gradients([*model.parameters(), everyone])
        loss = distributed.total(loss.detach().clone())
    found = {"out": out.detach(), "loss": loss.detach(), "x": here.grad}
    if everyone.grad is not None:
        found["features"] = everyone.grad
    return found | worker.gradients(model)


def error(
    make: Callable[[], torch.nn.Module], graph: distributed.DistributedGraph, expected: dict[str, Tensor]
) -> float:
    """The largest difference to what PyG alone gave with the whole graph."""
    found = step(distributed.convert(worker.seeded(make), graph), graph)
    nodes = graph.owned_nodes
    return worker.difference(
        found, expected, lambda name, whole: whole[nodes] if name in ("out", "x") else whole
    )


def main() -> None:
    errors: dict[str, float] = {}
    expected = worker.shared(
        {name: lambda make=make: step(worker.seeded(make), None) for name, make in MODELS.items()}
    )
    with onehop.patch():
        for partition, (label, owner) in enumerate(OWNERS.items()):
            graph = distributed.DistributedGraph.from_edge_index(edge_index, NODES, owner=owner)
            for place, (name, make) in enumerate(MODELS.items()):
                for lifted in worker.with_pairs(place, partition):
                    # What compiles and runs in blocks on larger graphs.
                    with thresholds.lifted() if lifted else contextlib.nullcontext():
                        errors[f"{label}, {name}, {lifted}"] = error(make, graph, expected[name])
            del graph
        graph = distributed.DistributedGraph.from_edge_index(edge_index, NODES, owner=scattered)
        here = x[graph.owned_nodes]
        others = {"of the whole": features, "of another graph": random(EDGES + 7, K)}
        layers = {
            "GINEConv": pyg.GINEConv(perceptron(), edge_dim=K),
            "TransformerConv": pyg.TransformerConv(C, C, edge_dim=K),
            "GATConv": pyg.GATConv(C, C, edge_dim=K, add_self_loops=False),
            "GATv2Conv": pyg.GATv2Conv(C, C, edge_dim=K),
        }
        refusals = {
            f"{name} {label}": worker.sentence(
                lambda layer=layer, rows=rows: layer(here, graph.edge_index, rows)
            )
            for name, layer in layers.items()
            for label, rows in others.items()
            if graph.num_edges != len(rows)
        }
        conv = pyg.GraphConv(C, C)
        refusals["GraphConv of another graph"] = worker.sentence(
            lambda: conv(here, graph.edge_index, random(EDGES + 7))
        )
        refusals["nodes"] = worker.sentence(lambda: layers["GINEConv"](x[:-1], graph.edge_index, features))
        divided = worker.sentence(lambda: graph.edge_rows(random(EDGES + 7, K)))
        looped = worker.sentence(lambda: graph.with_self_loops().edge_rows(features))
        shown = str(
            onehop.explain(
                layers["GINEConv"], here, graph.edge_index, graph.edge_rows(features), verbose=True
            )
        )
    worker.report(
        {
            "errors": errors,
            "refusals": refusals,
            "divided": divided,
            "looped": looped,
            "shown": shown,
            "edges": graph.num_edges,
        }
    )


main()
