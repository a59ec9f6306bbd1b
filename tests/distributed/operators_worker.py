"""Run by test_operators: every operator against one process with the whole graph, on one rank."""

import datetime
import json
import sys
import unittest.mock
from collections.abc import Callable

import torch
import torch.distributed as dist

import onehop
import onehop.distributed as distributed
from onehop import Graph
from onehop.distributed import exchange
from tests.distributed.cases import NODES, hostile, leave, random

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=30))
edge_index = hostile()
whole = Graph.from_edge_index(edge_index, NODES)
EDGES = edge_index.size(1)
worst: dict[str, float] = {}
traffic: dict[str, list[int]] = {}


def gathered(part: distributed.DistributedGraph, rows: torch.Tensor) -> torch.Tensor:
    """Rows of all ranks in the graph's order."""
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, (part.owned_nodes, rows))
    out = rows.new_zeros(NODES, *rows.shape[1:])
    for nodes, values in found:
        out[nodes] = values
    return out


def compare(
    name: str,
    part: distributed.DistributedGraph,
    alone: Callable[..., torch.Tensor],
    together: Callable[..., torch.Tensor],
    of_nodes: list[torch.Tensor],
    of_edges: list[torch.Tensor] = (),
    shared: list[torch.Tensor] = (),
) -> None:
    """Outputs and all gradients; those of shared operands are added up over the ranks."""
    leaves = [t.clone().requires_grad_() for t in (*of_nodes, *of_edges, *shared)]
    out = alone(*leaves)
    grad = random(*out.shape, seed=9, dtype=out.dtype)
    exact = torch.autograd.grad(out, leaves, grad)
    nodes, edges = part.owned_nodes, part.owned_edges
    mine = [
        *(t[nodes].requires_grad_() for t in of_nodes),
        *(t[edges].requires_grad_() for t in of_edges),
        *(t.clone().requires_grad_() for t in shared),
    ]
    part.reset_traffic()
    local = together(*mine)
    assert local.shape == out[nodes].shape
    found = list(torch.autograd.grad(local, mine, grad[nodes]))
    traffic[name] = [part.traffic.sent_bytes, part.traffic.received_bytes, part.traffic.exchanges]
    for number in range(len(of_nodes) + len(of_edges), len(leaves)):
        dist.all_reduce(found[number])
    pairs = [(local.detach(), out[nodes].detach())]
    for number, (ours, theirs) in enumerate(zip(found, exact, strict=True)):
        if number < len(of_nodes):
            theirs = theirs[nodes]
        elif number < len(of_nodes) + len(of_edges):
            theirs = theirs[edges]
        pairs.append((ours, theirs))
    worst[name] = max(
        [float((ours - theirs).abs().max()) for ours, theirs in pairs if ours.numel()], default=0.0
    )


def check(label: str, part: distributed.DistributedGraph) -> None:
    weight, scale = random(EDGES, seed=3), random(NODES, seed=4)
    for width in (1, 3, 17):
        x = random(NODES, width)
        for reduce in ("sum", "mean", "max", "min"):
            compare(
                f"{label} {reduce} {width}",
                part,
                lambda x, w, reduce=reduce: onehop.aggregate(whole, x, w, reduce),
                lambda x, w, reduce=reduce: distributed.aggregate(part, x, w, reduce),
                [x],
                [weight],
            )
    compare(
        f"{label} scales",
        part,
        lambda x, s, d: onehop.aggregate(whole, x, None, "mean", s, d),
        lambda x, s, d: distributed.aggregate(part, x, None, "mean", s, d),
        [random(NODES, 2, 4), scale, random(NODES, seed=5)],
    )
    rows = [random(NODES, 3, 5, seed=seed) for seed in (6, 7, 8)]
    heads = [random(NODES, 3, seed=seed) for seed in (10, 11)]
    shared = random(15, 2, seed=14)
    compare(
        f"{label} gat edges",
        part,
        lambda x, s, d, e: onehop.gat(whole, x, s, d, edge_score=e),
        lambda x, s, d, e: distributed.gat(part, x, s, d, edge_score=e),
        [rows[0], *heads],
        [random(EDGES, 3, seed=13)],
    )
    compare(
        f"{label} gatv2 edges",
        part,
        lambda s, d, e, a: onehop.gatv2(whole, s, d, a, edge=e),
        lambda s, d, e, a: distributed.gatv2(part, s, d, a, edge=e),
        rows[:2],
        [random(EDGES, 3, 5, seed=13)],
        [random(3, 5, seed=12)],
    )
    for name, of_whole, of_part in (
        ("gatv2", onehop.gatv2, distributed.gatv2),
        ("attention", onehop.attention, distributed.attention),
    ):
        ends = rows[:2] if name == "gatv2" else rows
        # The last operand of GATv2 is its vector of attention.
        rest = [random(3, 5, seed=12)] if name == "gatv2" else []
        count = len(ends)
        compare(
            f"{label} {name} projected edges",
            part,
            lambda *t, f=of_whole, n=count: f(whole, *t[:n], *t[n + 2 :], edge=(t[n], t[n + 1])),
            lambda *t, f=of_part, n=count: f(part, *t[:n], *t[n + 2 :], edge=(t[n], t[n + 1])),
            ends,
            [random(EDGES, 2, seed=13)],
            [shared, *rest],
        )
    for name, dropout in (("", 0.0), (" dropout", 0.4)):
        options = {"dropout": dropout, "seed": 5 if dropout else None}
        compare(
            f"{label} gat{name}",
            part,
            lambda *t, o=options: onehop.gat(whole, *t, **o),
            lambda *t, o=options: distributed.gat(part, *t, **o),
            [rows[0], *heads],
        )
        compare(
            f"{label} gatv2{name}",
            part,
            lambda *t, o=options: onehop.gatv2(whole, *t, **o),
            lambda *t, o=options: distributed.gatv2(part, *t, **o),
            rows[:2],
            shared=[random(3, 5, seed=12)],
        )
        compare(
            f"{label} attention{name}",
            part,
            lambda *t, o=options: onehop.attention(whole, *t, **o),
            lambda *t, o=options: distributed.attention(part, *t, **o),
            rows,
        )


rank, parts = dist.get_rank(), dist.get_world_size()
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
compare(
    "opened sum", opened,
    lambda x: onehop.aggregate(whole, x), lambda x: distributed.aggregate(opened, x), [x],
)  # fmt: skip

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


def message(function: Callable[[], object]) -> str:
    try:
        function()
    except onehop.OnehopError as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


other = edge_index.clone()
other[0, 0] += rank
bad_range = edge_index.clone()
bad_range[0, 0] = NODES if rank == 1 else 0
errors = {
    "another graph": message(lambda: distributed.DistributedGraph.from_edge_index(other, NODES)),
    "out of range on rank 1": message(
        lambda: distributed.DistributedGraph.from_edge_index(bad_range, NODES)
    ),
    "wrong number of parts": message(lambda: distributed.DistributedGraph.open(sys.argv[2])),
    "features of the wrong length": message(lambda: distributed.aggregate(divided, random(NODES + 1, 4))),
    "weight of the wrong length": message(
        lambda: distributed.aggregate(divided, x[divided.owned_nodes], random(EDGES + 1))
    ),
    "wrong owner": message(
        lambda: distributed.DistributedGraph.from_edge_index(
            edge_index, NODES, owner=torch.full((NODES,), parts)
        )
    ),
    "a plain graph": message(lambda: distributed.aggregate(whole, x)),
    "not opened": message(lambda: divided.load("x")),
    "edges not opened": message(lambda: divided.load_edges("w")),
}  # fmt: skip


def together_missing() -> None:
    """Missing on every rank."""
    try:
        distributed.DistributedGraph.open(sys.argv[1] + "-missing")
    except FileNotFoundError as error:
        raise onehop.OnehopError(str(error)) from error


errors["no such folder"] = message(together_missing)
report = {
    "worst": worst,
    "traffic": traffic,
    "errors": errors,
    "events": events,
    "cut": {"greedy": divided.part.cut_rows, "scattered": scattered.part.cut_rows},
    "sixteen": bool(torch.equal(sixteen, exact16)),
    "repeats": bool(torch.equal(*again)),
    "nan": nan,
    "owned": opened.owned_nodes.tolist(),
}
dist.barrier()
print(json.dumps(report))
leave()
