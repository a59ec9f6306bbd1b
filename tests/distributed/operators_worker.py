"""Run by test_operators: every operator against one process with the whole graph, on one rank."""

import sys
import unittest.mock
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import onehop
import onehop.distributed as distributed
from onehop import Graph
from onehop.distributed import exchange
from tests.distributed.cases import NODES, hostile, random
from tests.distributed.worker import compared, join, report, sentence

rank, parts = join()
edge_index = hostile()
whole = Graph.from_edge_index(edge_index, NODES)
EDGES = edge_index.size(1)
worst: dict[str, float] = {}
traffic: dict[str, list[int]] = {}

WEIGHT, ROWS = random(EDGES, seed=3), [random(NODES, 3, 5, seed=seed) for seed in (6, 7, 8)]
HEADS, ATT = [random(NODES, 3, seed=seed) for seed in (10, 11)], random(3, 5, seed=12)
SCORES, FEATURES, NARROW = (random(EDGES, *shape, seed=13) for shape in ((3,), (3, 5), (2,)))
PROJECTION = random(15, 2, seed=14)
# Of a module and a graph: those of the whole, or of a part.
Call = Callable[..., Tensor]
# The call; its operands that have rows of nodes, rows of edges, and no rows of this process.
CASES: dict[str, tuple[Call, list[Tensor], list[Tensor], list[Tensor]]] = {
    **{
        f"{reduce} {width}": (
            lambda f, g, x, w, reduce=reduce: f.aggregate(g, x, w, reduce),
            *([random(NODES, width)], [WEIGHT], []),
        )
        for width in (1, 3, 17)
        for reduce in ("sum", "mean", "max", "min")
    },
    "scales": (
        lambda f, g, x, s, d: f.aggregate(g, x, None, "mean", s, d),
        *([random(NODES, 2, 4), random(NODES, seed=4), random(NODES, seed=5)], [], []),
    ),
    "gat edges": (
        lambda f, g, x, s, d, e: f.gat(g, x, s, d, edge_score=e),
        *([ROWS[0], *HEADS], [SCORES], []),
    ),
    "gatv2 edges": (lambda f, g, s, d, e, a: f.gatv2(g, s, d, a, edge=e), ROWS[:2], [FEATURES], [ATT]),
    "gatv2 projected edges": (
        lambda f, g, s, d, e, w, a: f.gatv2(g, s, d, a, edge=(e, w)),
        *(ROWS[:2], [NARROW], [PROJECTION, ATT]),
    ),
    "attention projected edges": (
        lambda f, g, q, k, v, e, w: f.attention(g, q, k, v, edge=(e, w)),
        *(ROWS, [NARROW], [PROJECTION]),
    ),
}
for ending, how in (("", {"dropout": 0.0, "seed": None}), (" dropout", {"dropout": 0.4, "seed": 5})):
    for name, rows, more in (
        ("gat", [ROWS[0], *HEADS], []),
        ("gatv2", ROWS[:2], [ATT]),
        ("attention", ROWS, []),
    ):
        call: Call = lambda f, g, *t, name=name, how=how: getattr(f, name)(g, *t, **how)  # noqa: E731
        CASES[name + ending] = call, rows, [], more


def compare(name: str, part: distributed.DistributedGraph, case: tuple[Any, ...]) -> None:
    """Outputs and all gradients, beside the whole graph's, and the traffic."""
    call, of_nodes, of_edges, of_all = case
    operands = [(each, part.owned_nodes) for each in of_nodes]
    operands += [(each, part.owned_edges) for each in of_edges]
    operands += [(each, None) for each in of_all]
    part.reset_traffic()
    worst[name] = compared(
        lambda *t: call(onehop, whole, *t),
        lambda *t: call(distributed, part, *t),
        *(operands, part.owned_nodes),
    )
    traffic[name] = [part.traffic.sent_bytes, part.traffic.received_bytes, part.traffic.exchanges]


def check(label: str, part: distributed.DistributedGraph) -> None:
    for name, case in CASES.items():
        compare(f"{label} {name}", part, case)


divided = distributed.DistributedGraph.from_edge_index(edge_index, NODES, method="greedy")
check("greedy", divided)
# Rank 0 owns every node, and the others none.
lopsided = distributed.DistributedGraph.from_edge_index(
    edge_index, NODES, owner=torch.zeros(NODES, dtype=torch.int64)
)
check("lopsided", lopsided)
scattered = distributed.DistributedGraph.from_edge_index(edge_index, NODES, owner=torch.arange(NODES) % parts)
check("scattered", scattered)
opened = distributed.DistributedGraph.open(sys.argv[1])
x = random(NODES, 4)
assert torch.equal(opened.load("x"), x[opened.owned_nodes])
assert torch.equal(opened.load_edges("w"), random(EDGES, 2)[opened.owned_edges])
compare("opened sum", opened, (lambda f, g, x: f.aggregate(g, x), [x], [], []))

empty = distributed.DistributedGraph.from_edge_index(torch.empty(2, 0, dtype=torch.int64), 3)
assert distributed.aggregate(empty, torch.ones(empty.num_nodes, 2)).eq(0).all()

# Scales too are applied in 32 bits: the rows are those of the whole graph to the last bit.
x16, *scales16 = (random(NODES, *width, dtype=torch.float32).bfloat16() for width in ((6,), (), ()))
owned16 = [each[scattered.owned_nodes] for each in (x16, *scales16)]
sixteen = torch.cat([
    distributed.aggregate(
        scattered, owned16[0], None, reduce, src_scale=owned16[1], dst_scale=owned16[2]
    )
    for reduce in ("sum", "mean", "max")
])  # fmt: skip
exact16 = torch.cat([
    onehop.aggregate(whole, x16, None, reduce, *scales16)[scattered.owned_nodes]
    for reduce in ("sum", "mean", "max")
])  # fmt: skip
again = [distributed.aggregate(divided, x[divided.owned_nodes]) for _ in range(2)]

# NaN reaches those that have an edge from it, and nobody else.
damaged = random(NODES, 3)
damaged[3] = float("nan")
ours = distributed.aggregate(scattered, damaged[scattered.owned_nodes], reduce="max")
nan = torch.equal(ours.isnan(), onehop.aggregate(whole, damaged, reduce="max")[scattered.owned_nodes].isnan())


# What happens in which order, forward and backward.
events: list[str] = []


class Noted(torch.autograd.Function):
    """Notes when the gradient of what follows has been computed."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        events.append("computed")
        return grad


def noting(function: Callable[..., object], event: str, with_gradient: bool = False) -> Callable[..., object]:
    def noted(first, second=None, *rest, **options):
        if with_gradient:
            out = function(first, Noted.apply(second), *rest, **options)
        elif second is None:
            out = function(first)
        else:
            out = function(first, second, *rest, **options)
        events.append(event)
        return out

    return noted


with (
    unittest.mock.patch.multiple(
        sys.modules["onehop.distributed.aggregate"],
        aggregate_here=noting(onehop.aggregate, "computed", with_gradient=True),
    ),
    unittest.mock.patch.object(exchange.Exchange, "_post", noting(exchange.Exchange._post, "posted")),
    unittest.mock.patch.object(exchange.Messages, "wait", noting(exchange.Messages.wait, "waited")),
):
    leaf = random(NODES, 3)[scattered.owned_nodes].requires_grad_()
    distributed.aggregate(scattered, leaf).sum().backward()


other = edge_index.clone()
other[0, 0] += rank
bad_range = edge_index.clone()
bad_range[0, 0] = NODES if rank == 1 else 0
make, open_ = distributed.DistributedGraph.from_edge_index, distributed.DistributedGraph.open
calls = {
    "another graph": lambda: make(other, NODES),
    "out of range on rank 1": lambda: make(bad_range, NODES),
    "wrong number of parts": lambda: open_(sys.argv[2]),
    "features of the wrong length": lambda: distributed.aggregate(divided, random(NODES + 1, 4)),
    "weight of the wrong length": lambda: distributed.aggregate(
        divided, x[divided.owned_nodes], random(EDGES + 1)
    ),
    "wrong owner": lambda: make(edge_index, NODES, owner=torch.full((NODES,), parts)),
    "a plain graph": lambda: distributed.aggregate(whole, x),
    "not opened": lambda: divided.load("x"),
    "edges not opened": lambda: divided.load_edges("w"),
    # Missing on every rank.
    "no such folder": lambda: open_(sys.argv[1] + "-missing"),
}


report(
    {
        "worst": worst,
        "traffic": traffic,
        "errors": {name: sentence(call) for name, call in calls.items()},
        "events": events,
        "cut": {"greedy": divided.part.cut_rows, "scattered": scattered.part.cut_rows},
        "sixteen": bool(torch.equal(sixteen, exact16)),
        "repeats": bool(torch.equal(*again)),
        "nan": nan,
        "owned": opened.owned_nodes.tolist(),
    }
)
