"""Run by test_hetero: bipartite and heterogeneous graphs, beside PyG with the whole graph."""

import contextlib
import itertools
import warnings
from collections.abc import Callable

import torch
import torch_geometric.nn as pyg
from torch import Tensor

import onehop
from onehop import distributed, thresholds
from tests.distributed import worker
from tests.distributed.cases import random

torch.set_default_dtype(torch.float64)
warnings.filterwarnings("ignore", category=UserWarning)
C, K, EPOCHS = 6, 3, 3
NODES = {"author": 40, "paper": 70, "venue": 9}
RELATIONS = {
    ("author", "writes", "paper"): 260,
    ("paper", "cites", "paper"): 300,
    ("paper", "of", "author"): 90,
    ("paper", "in", "venue"): 70,
    ("venue", "has", "paper"): 0,
}
chance = torch.Generator().manual_seed(0)
EDGES = {
    (source, name, target): torch.stack(
        [torch.randint(0, NODES[kind] - 2, (count,), generator=chance) for kind in (source, target)]
    )
    for (source, name, target), count in RELATIONS.items()
}
EDGES["author", "writes", "paper"][1, :80] = 5
X = {kind: random(nodes, C, seed=nodes) for kind, nodes in NODES.items()}
WHERE = {relation: random(count, K, seed=count).abs() for relation, count in RELATIONS.items()}
TARGET = {kind: random(nodes, C, seed=1 + nodes) for kind, nodes in NODES.items()}

rank, ranks = worker.join()


def layers(make: Callable[[], torch.nn.Module]) -> pyg.HeteroConv:
    return pyg.HeteroConv({relation: make() for relation in RELATIONS}, aggr="sum")


class Typed(torch.nn.Module):
    """Two layers over all relations, and a normalisation of each type between them."""

    def __init__(
        self, make: Callable[[], torch.nn.Module], features: bool = False, norm: bool = False
    ) -> None:
        super().__init__()
        self.first, self.second, self.features = layers(make), layers(make), features
        self.norms = torch.nn.ModuleDict({kind: pyg.BatchNorm(C) for kind in NODES} if norm else {})

    def forward(self, x: dict, edges: dict, where: dict) -> dict:
        rest = {"edge_attr_dict": where} if self.features else {}
        x = {kind: each.relu() for kind, each in self.first(x, edges, **rest).items()}
        x = {kind: self.norms[kind](each) if self.norms else each for kind, each in x.items()}
        return self.second(x, edges, **rest)


def converted(model: torch.nn.Module) -> torch.nn.Module:
    """A plain model that PyG makes heterogeneous."""
    made = pyg.to_hetero(model, (list(NODES), list(RELATIONS)))
    return worker.Using(lambda model, x, edges, where: model(x, edges), made)


class Sage(torch.nn.Module):
    """Two layers of SAGE."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = pyg.SAGEConv((C, C), C), pyg.SAGEConv((C, C), C, aggr="max")

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index).relu(), edge_index)


def perceptron() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(C, C), torch.nn.ReLU(), torch.nn.Linear(C, C))


PAIR = (C, C)
CONVS: dict[str, Callable[[], torch.nn.Module]] = {
    "SAGEConv": lambda: pyg.SAGEConv(PAIR, C),
    "SAGEConv, max": lambda: pyg.SAGEConv(PAIR, C, aggr="max"),
    "SAGEConv, median and sum": lambda: pyg.SAGEConv(PAIR, C, aggr=["std", "sum"]),
    "GraphConv": lambda: pyg.GraphConv(PAIR, C),
    "GATConv": lambda: pyg.GATConv(PAIR, C, heads=2, concat=False, add_self_loops=False),
    "GATv2Conv": lambda: pyg.GATv2Conv(PAIR, C, add_self_loops=False),
    "TransformerConv": lambda: pyg.TransformerConv(PAIR, C),
}
FEATURED: dict[str, Callable[[], torch.nn.Module]] = {
    "GATConv, features": lambda: pyg.GATConv(PAIR, C, add_self_loops=False, edge_dim=K),
    "GATv2Conv, features": lambda: pyg.GATv2Conv(PAIR, C, add_self_loops=False, edge_dim=K),
    "TransformerConv, features": lambda: pyg.TransformerConv(PAIR, C, edge_dim=K),
    "GINEConv": lambda: pyg.GINEConv(perceptron(), edge_dim=K),
    "NNConv": lambda: pyg.NNConv(PAIR, C, torch.nn.Linear(K, C * C)),
}
MODELS: dict[str, Callable[[], torch.nn.Module]] = {
    **{name: lambda make=make: Typed(make) for name, make in CONVS.items()},
    **{name: lambda make=make: Typed(make, features=True) for name, make in FEATURED.items()},
    "to_hetero": lambda: converted(Sage()),
}


def train(model: torch.nn.Module, graph: distributed.DistributedHeteroGraph | None) -> dict[str, Tensor]:
    """Losses of some epochs; outputs and gradients of the first one."""
    x, edges, where, target = X, EDGES, WHERE, TARGET
    if graph is not None:
        x, target = ({kind: each[graph.owned_nodes[kind]] for kind, each in of.items()} for of in (X, TARGET))
        edges = graph.edge_index_dict
        where = {relation: graph.relations[relation].edge_rows(each) for relation, each in WHERE.items()}
    x = {kind: each.clone().requires_grad_() for kind, each in x.items()}
    where = {relation: each.clone().requires_grad_() for relation, each in where.items()}
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    found: dict[str, Tensor] = {}
    losses = []
    for _ in range(EPOCHS):
        optimizer.zero_grad()
        out = model(x, edges, where)
        loss = sum(((out[kind] - target[kind]) ** 3).sum() for kind in out) / 100
        loss.backward()
        if graph is not None:
            distributed.add_gradients(model.parameters())
            loss = distributed.total(loss.detach().clone())
        losses.append(loss.detach())
        if not found:
            found = {f"out {kind}": each.detach().clone() for kind, each in out.items()}
            found |= {f"x {kind}": each.grad.clone() for kind, each in x.items()}
            # Of the relation without edges, PyG makes no gradient.
            found |= {
                f"where {relation}": each.grad.clone()
                for relation, each in where.items()
                if each.grad is not None
            }
            found |= worker.gradients(model)
        optimizer.step()
    return found | {"losses": torch.stack(losses)}


def part_of(name: str, exact: Tensor, graph: distributed.DistributedHeteroGraph) -> Tensor:
    """The rows of this process of what the whole graph gave."""
    kind = name.partition(" ")[2]
    if name.startswith(("out ", "x ")):
        return exact[graph.owned_nodes[kind]]
    found = next((relation for relation in RELATIONS if name == f"where {relation}"), None)
    return exact if found is None else graph.relations[found].edge_rows(exact)


def error(
    make: Callable[[], torch.nn.Module],
    graph: distributed.DistributedHeteroGraph,
    expected: dict[str, Tensor],
) -> float:
    """The largest difference to what PyG alone gave with the whole graph."""
    found = train(distributed.convert(worker.seeded(make), graph), graph)
    return worker.difference(found, expected, lambda name, whole: part_of(name, whole, graph))


# RGCN on one graph of edges of several types; without features the first layer has a row of weights a node.
RELATIONAL: dict[str, Callable[[], torch.nn.Module]] = {
    "RGCNConv": lambda: worker.two(*(pyg.RGCNConv(C, C, 4) for _ in range(2))),
    "RGCNConv, bases": lambda: worker.two(*(pyg.RGCNConv(C, C, 4, num_bases=2) for _ in range(2))),
    "RGCNConv, blocks": lambda: worker.two(
        *(pyg.RGCNConv(C, C, 4, num_blocks=2, aggr="sum") for _ in range(2))
    ),
    "FastRGCNConv": lambda: worker.two(*(pyg.FastRGCNConv(C, C, 4) for _ in range(2))),
    "RGCNConv, no features": lambda: worker.Using(
        lambda model, x, edges, types: model(None, edges, types),
        worker.two(pyg.RGCNConv(80, C, 4), pyg.RGCNConv(C, C, 4)),
    ),
}


def relational(patch) -> dict[str, float]:
    edge_index = torch.randint(0, 80, (2, 500), generator=torch.Generator().manual_seed(4))
    types, x, target = torch.arange(500) % 7 % 4, random(80, C), random(80, C, seed=6)
    graph = distributed.DistributedGraph.from_edge_index(edge_index, 80, method="greedy")
    mine = graph.owned_nodes
    errors = {}

    def step(model: torch.nn.Module, rows: Tensor | slice, edges: Tensor, kinds: Tensor) -> dict[str, Tensor]:
        here = x[rows].clone().requires_grad_()
        out = model(here, edges, kinds)
        (out - target[rows]).pow(3).sum().backward()
        return (
            {"out": out.detach()} | ({} if here.grad is None else {"x": here.grad}) | worker.gradients(model)
        )

    for (name, make), lifted in itertools.product(RELATIONAL.items(), (False, True)):
        whole, part = worker.seeded(make), worker.seeded(make)
        with patch.paused():
            expected = step(whole, slice(None), edge_index, types)
        with thresholds.lifted() if lifted else contextlib.nullcontext():
            found = step(part, mine, graph.edge_index, graph.edge_rows(types))
        distributed.add_gradients(part.parameters())
        errors[f"{name}{', lifted' if lifted else ''}"] = worker.difference(
            found | worker.gradients(part),
            expected,
            lambda name, whole: whole[mine] if name in ("out", "x") else whole,
        )
    return errors


def operators() -> dict[str, float]:
    """The operators over a bipartite graph, with an owner of each end, and without edges here."""
    relation = ("author", "writes", "paper")
    edge_index, sources, targets = EDGES[relation], NODES["author"], NODES["paper"]
    whole = onehop.Graph.from_edge_index(edge_index, size=(sources, targets))
    x, y, scale = random(sources, 2, C), random(targets, 2, C), random(sources)
    weight, score = random(RELATIONS[relation]), random(RELATIONS[relation], 2)
    errors = {}
    for label, owner in {
        "divided": None,
        "apart": (torch.arange(sources) % ranks, (1 + torch.arange(targets)) % ranks),
        "lopsided": (torch.zeros(sources).int(), torch.full((targets,), ranks - 1)),
    }.items():
        graph = distributed.DistributedGraph.from_edge_index(
            edge_index, size=(sources, targets), owner=owner, method="greedy"
        )
        j, i, e = graph.owned_sources, graph.owned_nodes, graph.owned_edges
        ends = [(x, j), (y, i)]
        cases = {
            **{
                reduce: (
                    lambda f, g, x, w, c, r=reduce: f.aggregate(g, x, w, r, src_scale=c),
                    [(x, j), (weight, e), (scale, j)],
                )
                for reduce in ("sum", "mean", "max")
            },
            "gat": (
                lambda f, g, x, y, s: f.gat(g, x, x.sum(2), y.sum(2), edge_score=s),
                [*ends, (score, e)],
            ),
            "gatv2": (lambda f, g, x, y: f.gatv2(g, x, y, ATT), ends),
            "attention": (lambda f, g, x, y: f.attention(g, y, x, x), ends),
        }
        for name, (call, operands) in cases.items():
            errors[f"{label} {name}"] = worker.compared(
                lambda *t, call=call: call(onehop, whole, *t),
                lambda *t, call=call, graph=graph: call(distributed, graph, *t),
                *(operands, i),
            )
    return errors


ATT = random(2, C, seed=9)


def refusals() -> dict[str, str]:
    make = distributed.DistributedHeteroGraph.from_edge_index_dict
    relation = ("author", "writes", "paper")
    one = {relation: EDGES[relation]}
    other = {relation: EDGES[relation] + (0 if rank == 0 else 1)}
    graph = distributed.DistributedGraph.from_edge_index(EDGES[relation], size=(40, 70), method="greedy")
    x = X["author"][graph.owned_sources], X["paper"][graph.owned_nodes]
    whole = make(EDGES, NODES, method="greedy")
    rows = {kind: each[whole.owned_nodes[kind]] for kind, each in X.items()}
    hgt = pyg.HGTConv(C, C, (list(NODES), list(RELATIONS)), heads=2)
    calls = {
        "HGTConv": lambda: hgt(rows, whole.edge_index_dict),
        "a type without a number": lambda: make(one, {"author": 40}),
        "a number out of range": lambda: make(one, {"author": 40, "paper": 5}),
        "another graph": lambda: make(other, NODES),
        "owners of some types": lambda: make(one, NODES, owner={"author": torch.zeros(40).int()}),
        "self loops": lambda: pyg.GATConv(PAIR, C)(x, graph.edge_index),
        "one tensor": lambda: pyg.SAGEConv(C, C)(x[0], graph.edge_index),
        "sources of others": lambda: pyg.SAGEConv(PAIR, C)((X["author"][:3], x[1]), graph.edge_index),
        "not a pair": lambda: distributed.DistributedGraph.from_edge_index(
            EDGES[relation], size=(40, 70), owner=torch.zeros(70).int()
        ),
    }
    return {name: worker.sentence(call) for name, call in calls.items()}


def main() -> None:
    errors: dict[str, float] = {}
    expected = worker.shared(
        {name: lambda make=make: train(worker.seeded(make), None) for name, make in MODELS.items()}
    )
    with onehop.patch() as patch:
        for partition, label in enumerate(("greedy", "apart")):
            owner = None
            if label == "apart":  # the last one owns no authors and one paper
                owner = {kind: (7 * torch.arange(nodes) % 5) % ranks for kind, nodes in NODES.items()}
                owner["author"][owner["author"] == ranks - 1] = 0
                owner["paper"][owner["paper"] == ranks - 1] = 0
                owner["paper"][5] = ranks - 1
            graph = distributed.DistributedHeteroGraph.from_edge_index_dict(
                EDGES, NODES, method="greedy", owner=owner
            )
            for place, (name, make) in enumerate(MODELS.items()):
                for lifted in worker.with_pairs(place, partition):
                    with thresholds.lifted() if lifted else contextlib.nullcontext():
                        errors[f"{label}, {name}, {lifted}"] = error(make, graph, expected[name])
            traffic = graph.traffic
            shown = repr(graph)
            owned = {kind: nodes.tolist() for kind, nodes in graph.owned_nodes.items()}
            del graph
        errors |= relational(patch)
        errors |= operators()
        said = refusals()
    worker.report(
        {
            "errors": errors,
            "owned": owned,
            "refusals": said,
            "shown": shown,
            "sent": traffic.sent_bytes,
            "received": traffic.received_bytes,
        }
    )


main()
