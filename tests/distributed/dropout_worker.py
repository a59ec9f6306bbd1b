"""Run by test_dropout: the positions that every process drops, after all were seeded alike."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from torch_geometric.nn import GATConv, GATv2Conv, TransformerConv

import onehop
from onehop import distributed
from tests.distributed.cases import random
from tests.distributed.worker import join, report

NODES, WIDTH = 4000, 8
rank, ranks = join()
chance = torch.Generator().manual_seed(0)
edge_index = torch.randint(0, NODES, (2, 16000), generator=chance)
graph = distributed.DistributedGraph.from_edge_index(edge_index, NODES, method="greedy")
x = random(NODES, WIDTH)[graph.owned_nodes]
LAYERS = {
    "GATConv": (GATConv, "gat"),
    "GATv2Conv": (GATv2Conv, "gatv2"),
    "TransformerConv": (TransformerConv, "attention"),
}


@contextmanager
def masks_of(name: str) -> Iterator[list[torch.Tensor]]:
    """The masks of edges that a function of ``onehop.distributed`` gets from layers."""
    seen: list[torch.Tensor] = []
    theirs = getattr(distributed, name)

    def watched(*args: object, edge_mask: torch.Tensor, **kwargs: object) -> torch.Tensor:
        seen.append(edge_mask)
        return theirs(*args, edge_mask=edge_mask, **kwargs)

    with mock.patch.object(distributed, name, watched):
        yield seen


class Dropping(torch.nn.Module):
    """Everything that drops."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleDict(
            {name: kind(WIDTH, 4, heads=2, dropout=0.5).double() for name, (kind, _) in LAYERS.items()}
        )
        self.dropout = torch.nn.Dropout(0.5)

    def forward(self, leaf: torch.Tensor) -> dict[str, torch.Tensor]:
        found = {
            "F.dropout": F.dropout(torch.ones(graph.num_nodes, WIDTH)),
            "F.dropout in place": F.dropout(torch.ones(graph.num_nodes, WIDTH), inplace=True),
            "of edges": F.dropout(torch.ones(graph.num_edges)),
            "torch.nn.Dropout": self.dropout(torch.ones(graph.num_nodes, WIDTH)),
            "torch.bernoulli": 2 * torch.full((graph.num_nodes, WIDTH), 0.5).bernoulli(),
        }
        for name, (_, function) in LAYERS.items():
            with masks_of(function) as seen:
                self.layers[name](x, graph.edge_index)
            found[name] = seen[0]
        for reentrant in (True, False):
            leaf.grad = None
            out = checkpoint(self.dropout, leaf, use_reentrant=reentrant)
            out.sum().backward()
            assert torch.equal(out, leaf.grad), "the backward pass drew others"
        return found


def drawn() -> dict[str, torch.Tensor]:
    """The factors, by who drops."""
    torch.manual_seed(0)
    model = distributed.convert(Dropping(), graph)
    leaf = torch.ones(graph.num_nodes, WIDTH, requires_grad=True)
    found = model(leaf)
    found["gradient"] = leaf.grad
    # A module of the model that runs on its own.
    found["a part of the model"] = model.dropout(torch.ones(graph.num_nodes, WIDTH))
    with distributed.alone():
        together.append(torch.rand(1000).tolist())
    return found


together: list[list[float]] = []
with onehop.patch():
    first, again = drawn(), drawn()
    values = {name: sorted(set(kept.unique().tolist())) for name, kept in first.items()}
    everyone: list = [None] * ranks
    dist.all_gather_object(everyone, {name: (kept != 0).flatten() for name, kept in first.items()})
    equal = {}
    for name, kept in everyone[0].items():
        other = everyone[1][name]
        shared = min(len(kept), len(other))
        equal[name] = float((kept[:shared] == other[:shared]).double().mean())
    ends = {
        # Without a converted model, where nothing is drawn.
        "none": bool(torch.equal(F.dropout(x, 0.0), x)),
        "evaluation": bool(torch.equal(F.dropout(x, 0.5, training=False), x)),
        "all": bool((distributed.convert(torch.nn.Dropout(1.0), graph)(x) == 0).all()),
    }
report(
    {
        "equal": equal,
        "kept": {name: float((kept != 0).double().mean()) for name, kept in first.items()},
        "values": values,
        "repeated": {name: bool(torch.equal(kept, again[name])) for name, kept in first.items()},
        "digest": hashlib.sha256(
            b"".join(kept.detach().numpy().tobytes() for kept in first.values())
        ).hexdigest(),
        "ends": ends,
        "afterwards": together[0],
    }
)
