"""Run by test_halo_modes: exact and rounded halos, beside what they should be."""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import GCNConv, SAGEConv

import onehop
from onehop import distributed
from tests.distributed.cases import NODES, hostile, random
from tests.distributed.worker import join, report, two

rank, ranks = join()
PLANTED, CLASSES, FEATURES, EPOCHS = 600, 4, 16, 40


def steps_of(mode: str) -> dict[str, float]:
    """The largest errors of sums, and of their gradients, over steps whose rows change."""
    edge_index = hostile()
    owner = torch.arange(NODES) % ranks
    source, target = edge_index
    cut = owner[source] != owner[target]
    graph = distributed.DistributedGraph.from_edge_index(edge_index, NODES, owner=owner)
    mine = graph.owned_nodes
    errors = {"out": 0.0, "gradient": 0.0}
    rows = [random(NODES, 3, seed=seed) for seed in range(4)]
    grads = [random(NODES, 3, seed=10 + seed) for seed in range(4)]
    graph.reset_traffic()
    halos = graph.halos(mode)
    for x, grad in zip(rows, grads, strict=True):
        leaf = x[mine].requires_grad_()
        with halos:
            out = distributed.aggregate(graph, leaf)
        out.backward(grad[mine])
        far = x.bfloat16().double() if mode == "bfloat16" else x
        expected = torch.zeros(NODES, 3).double()
        expected.index_add_(0, target[~cut], x[source[~cut]]).index_add_(0, target[cut], far[source[cut]])
        errors["out"] = max(errors["out"], float((out - expected[mine]).detach().abs().max()))
        back = torch.zeros(NODES, 3).double().index_add_(0, source[~cut], grad[target[~cut]])
        for receiver in range(ranks):
            here = cut & (owner[target] == receiver)
            of_halo = torch.zeros(NODES, 3).double()
            of_halo.index_add_(0, source[here], grad[target[here]])
            back += of_halo.bfloat16().double() if mode == "bfloat16" else of_halo
        errors["gradient"] = max(errors["gradient"], float((leaf.grad - back[mine]).abs().max()))
    return errors | {"sent": graph.traffic.sent_bytes}


def planted() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Edges, features, labels, and the nodes to train on: seven edges of ten stay in their class."""
    generator = torch.Generator().manual_seed(3)
    label = torch.randint(CLASSES, (PLANTED,), generator=generator)
    source, target = torch.randint(PLANTED, (2, 12 * PLANTED), generator=generator)
    chance = torch.rand(len(source), generator=generator)
    kept = (label[source] == label[target]) & (chance < 0.7) | (chance < 0.12)
    edge_index = torch.stack([source[kept], target[kept]])
    x = 0.35 * F.one_hot(label, FEATURES) + 0.5 * torch.randn(PLANTED, FEATURES, generator=generator)
    return torch.cat([edge_index, edge_index.flip(0)], 1), x, label, torch.arange(PLANTED) % 4 == 0


def trained(kind: type, mode: str, graph: distributed.DistributedGraph, data: tuple[Tensor, ...]) -> dict:
    """The share of right answers on the nodes that were not trained on, and the last loss."""
    x, label, train = (each[graph.owned_nodes] for each in data)
    with distributed.same_random(0):
        model = two(kind(FEATURES, 16), kind(16, CLASSES))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    graph.reset_traffic()
    halos = graph.halos(mode)
    for _ in range(EPOCHS):
        optimizer.zero_grad()
        with halos:
            out = model(x, graph.edge_index)
        loss = F.cross_entropy(out[train], label[train], reduction="sum") / int(data[2].sum())
        loss.backward()
        distributed.add_gradients(model.parameters())
        optimizer.step()
    sent = distributed.total(torch.tensor(graph.traffic.sent_bytes))
    with torch.no_grad():
        right = (model(x, graph.edge_index).argmax(1) == label)[~train].sum()
    return {
        "right": int(distributed.total(right)) / int((~data[2]).sum()),
        "loss": float(distributed.total(loss.detach().clone())),
        "sent": int(sent),
    }


def main() -> None:
    exact = {mode: steps_of(mode) for mode in ("exact", "bfloat16")}
    edge_index, *data = planted()
    owner = torch.arange(PLANTED) % ranks  # the worst of partitions: most edges are cut
    graph = distributed.DistributedGraph.from_edge_index(edge_index, PLANTED, owner=owner)
    table = {}
    with onehop.patch():
        for kind in (GCNConv, SAGEConv):
            for mode in ("exact", "bfloat16"):
                table[f"{kind.__name__} {mode}"] = trained(kind, mode, graph, data)
    cut = float((owner[edge_index[0]] != owner[edge_index[1]]).float().mean())
    report({"exact": exact, "table": table, "cut": cut})


main()
