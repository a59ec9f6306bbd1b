"""Run by test_training: unchanged PyG models on this process's part; prints losses and traffic."""

import json
import sys

import torch
import torch.nn.functional as F
from torch_geometric.nn import GATConv, GATv2Conv, GCNConv, GINEConv, SAGEConv, TransformerConv

import onehop
from onehop import distributed
from tests.distributed.worker import join, report, sentence, two

torch.set_num_threads(1)
NODES, FEATURES, HIDDEN, CLASSES, EPOCHS = 400, 12, 8, 5, 4


MODELS = {
    "gcn": lambda: two(GCNConv(FEATURES, HIDDEN), GCNConv(HIDDEN, CLASSES)),
    "sage": lambda: two(SAGEConv(FEATURES, HIDDEN), SAGEConv(HIDDEN, CLASSES, aggr="max")),
    "gatv2": lambda: two(GATv2Conv(FEATURES, HIDDEN, heads=2), GATv2Conv(2 * HIDDEN, CLASSES)),
    "gat": lambda: two(GATConv(FEATURES, HIDDEN, heads=2), GATConv(2 * HIDDEN, CLASSES)),
    "transformer": lambda: two(TransformerConv(FEATURES, HIDDEN), TransformerConv(HIDDEN, CLASSES)),
}


def data() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    edge_index = torch.randint(0, NODES, (2, 3000), generator=generator)
    edge_index[1, :200] = 11
    edge_index[0, 300:310] = edge_index[1, 300:310]
    x = torch.randn(NODES, FEATURES, generator=generator, dtype=torch.float64)
    return edge_index, x, torch.randint(CLASSES, (NODES,), generator=generator)


def train(
    name: str,
    edges: torch.Tensor,
    x: torch.Tensor,
    y: torch.Tensor,
    graph: distributed.DistributedGraph | None,
) -> list[float]:
    torch.manual_seed(0)
    model = MODELS[name]().double()
    if graph is not None:
        model = distributed.convert(model, graph)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    losses = []
    for _ in range(EPOCHS):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x, edges), y, reduction="sum") / NODES
        loss.backward()
        whole = loss.detach().clone()
        if graph is not None:
            distributed.add_gradients(model.parameters())
            distributed.total(whole)
        optimizer.step()
        losses.append(float(whole))
    return losses


def main() -> None:
    edge_index, x, y = data()
    if sys.argv[1] == "alone":
        print(json.dumps({name: train(name, edge_index, x, y, None) for name in MODELS}))
        return
    join()
    graph = distributed.DistributedGraph.from_edge_index(edge_index, NODES, method="greedy")
    x, y = x[graph.owned_nodes], y[graph.owned_nodes]
    losses, sent = {}, {}
    with onehop.patch():
        for name in MODELS:
            graph.reset_traffic()
            losses[name] = train(name, graph.edge_index, x, y, graph)
            sent[name] = graph.traffic.sent_bytes
        explanation = str(onehop.explain(MODELS["gcn"]().double(), x, graph.edge_index, verbose=True))
        refusals = [
            sentence(lambda layer=layer, operands=operands: layer(x, graph.edge_index, **operands))
            for layer, operands in (
                (
                    GINEConv(torch.nn.Linear(FEATURES, 3), edge_dim=2).double(),
                    {"edge_attr": torch.ones(1, 2)},
                ),
                (SAGEConv(FEATURES, 3, flow="target_to_source").double(), {}),
                (GATConv(FEATURES, 3).double(), {"return_attention_weights": True}),
                (GCNConv(FEATURES, 3).double(), {"edge_weight": torch.ones(2)}),
            )
        ]
        # Weights of edges, with gradients, through GCN's normalisation.
        torch.manual_seed(0)
        weighted = GCNConv(FEATURES, 3).double()
        weight = torch.rand(3000, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
        mine = weight[graph.owned_edges].requires_grad_()
        weighted(x, graph.edge_index, mine).square().sum().backward()
        everyone = weight.clone().requires_grad_()
        whole_x = data()[1]
        weighted(whole_x, edge_index, everyone).square().sum().backward()
        weight_error = float((mine.grad - everyone.grad[graph.owned_edges]).abs().max())
    report(
        {
            "losses": losses,
            "sent": sent,
            "cut": graph.part.cut_rows,
            "explanation": explanation,
            "refusals": refusals,
            "weight_error": weight_error,
        }
    )


main()
