"""Run by test_requests: rows of any nodes, on this rank, beside those of the whole tensor."""

import torch

from onehop import distributed
from tests.distributed.cases import NODES, hostile, random
from tests.distributed.worker import join, report, sentence

rank, parts = join()


def nodes_of(case: str, number: int) -> torch.Tensor:
    """The nodes for which a rank asks."""
    if case == "none here" and number == 0:
        return torch.empty(0, dtype=torch.int32)
    if case == "all":
        return torch.arange(NODES).flip(0)
    return torch.randint(0, NODES, (25,), generator=torch.Generator().manual_seed(number))


graphs = {
    "greedy": distributed.DistributedGraph.from_edge_index(hostile(), NODES, method="greedy"),
    "scattered": distributed.DistributedGraph.from_edge_index(
        hostile(), NODES, owner=torch.arange(NODES) % parts
    ),
    "all on the last": distributed.DistributedGraph.from_edge_index(
        hostile(), NODES, owner=torch.full((NODES,), parts - 1)
    ),
}
worst = {}
for label, graph in graphs.items():
    for case in ("some", "none here", "all"):
        x = random(NODES, 2, 3)
        mine = x[graph.owned_nodes].requires_grad_()
        request = distributed.RowRequest(graph, nodes_of(case, rank))
        found = request.rows(mine)
        factors = [random(len(nodes_of(case, each)), 2, 3, seed=each) for each in range(parts)]
        (found * factors[rank]).sum().backward()
        exact = torch.zeros_like(x)
        for each in range(parts):
            exact.index_add_(0, nodes_of(case, each), factors[each])
        same = torch.equal(found, x[nodes_of(case, rank)]) and torch.equal(request.rows(mine), found)
        error = (mine.grad - exact[graph.owned_nodes]).abs()
        worst[f"{label} {case}"] = float(error.max()) if same and error.numel() else float(not same)

bad = {
    "range": torch.tensor([NODES if rank == parts - 1 else 0]),
    "dtype": torch.ones(3) if rank == parts - 1 else torch.arange(3),
}
errors = {
    name: sentence(lambda nodes=nodes: distributed.RowRequest(graphs["greedy"], nodes))
    for name, nodes in bad.items()
}
report({"worst": worst, "errors": errors})
