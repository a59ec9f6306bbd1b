"""A version of onehop in a process of its own, which calls what it is told (``bench_versions.py``).

It runs with the Python of another version, so nothing is used but what every version has.
"""

import contextlib
import importlib.util
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F

import onehop

MODELS = Path(__file__).resolve().parents[2] / "src" / "onehop" / "bench" / "plain_models.py"
CLASSES = 40
# A turn lasts at least so long; before it, one call that is not counted.
TURN_S = 0.2


def model_call(
    name: str, width: int, edge_index: torch.Tensor, features: int, batch: int | None
) -> Callable[[], float]:
    """An epoch of a two-layer model: forward, backward, Adam; it returns the loss.

    With a number of edges for a batch, only so many of the edges are used, as a tensor that is new each time.
    """
    if batch is not None:
        of_batch = edge_index[:, torch.randperm(edge_index.size(1), generator=seeded(0))[:batch]]
        edge_index = of_batch.unique(return_inverse=True)[1]
    spec = importlib.util.spec_from_file_location("plain_models", MODELS)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(MODELS)
    models = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(models)
    nodes = int(edge_index.max()) + 1
    torch.manual_seed(0)
    x, y = torch.randn(nodes, features), torch.randint(CLASSES, (nodes,))
    model = models.MODELS[name.removesuffix("-sum")](features, width, CLASSES)
    if name.endswith("-sum"):
        model.first.aggr = model.second.aggr = "sum"
        for layer in (model.first, model.second):
            layer.aggr_module = type(layer)(2, 2, aggr="sum").aggr_module
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)

    def epoch() -> float:
        optimiser.zero_grad()
        loss = F.cross_entropy(model(x, edge_index if batch is None else edge_index.clone()), y)
        loss.backward()
        optimiser.step()
        return loss.item()

    return epoch


def seeded(seed: int) -> torch.Generator:
    """A generator of that seed."""
    return torch.Generator().manual_seed(seed)


def operator_call(name: str, width: int, edge_index: torch.Tensor, by_torch: bool) -> Callable[[], float]:
    """A call of an operator; it returns the sum of the result's sizes."""
    nodes = int(edge_index.max()) + 1
    torch.manual_seed(0)
    with_grad = name.endswith("+grad")
    x = torch.randn(nodes, width, requires_grad=with_grad)
    weight = torch.rand(edge_index.size(1)) if name == "weighted" else None
    if by_torch:
        values = torch.ones(edge_index.size(1)) if weight is None else weight
        matrix = torch.sparse_coo_tensor(edge_index.flip(0), values, (nodes, nodes)).to_sparse_csr()
        product: Callable[[], torch.Tensor] = partial(torch.sparse.mm, matrix, x)
    else:
        graph = onehop.Graph.from_edge_index(edge_index, num_nodes=nodes)
        reduce = "sum" if name.startswith(("sum", "weighted")) else name[:3]
        product = partial(onehop.aggregate, graph, x, weight=weight, reduce=reduce)
    ones = torch.ones(nodes, width)

    def call() -> float:
        out = product()
        if with_grad:
            x.grad = None
            out.backward(ones)
        return float(out.detach()[:1000].abs().sum())

    return call


def serve() -> None:
    """Answers requests from standard input, one JSON object a line, until it ends."""
    stack = contextlib.ExitStack()
    call: Callable[[], float] = float
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "load":
            stack.close()
            torch.set_num_threads(request["threads"])
            name, width, *batch = request["case"].split(":")
            edge_index = torch.load(request["edges"])
            if name.split("+")[0] in ("sum", "weighted", "max", "min"):
                call = operator_call(name, int(width), edge_index, request["pyg"])
            else:
                if not request["pyg"]:
                    stack.enter_context(onehop.patch())
                edges = int(batch[0]) if batch else None
                call = model_call(name, int(width), edge_index, request["features"], edges)
            answer = {"values": [call() for _ in range(3)]}
        else:
            call()
            begin, count = time.perf_counter(), 0
            while count == 0 or time.perf_counter() - begin < TURN_S:
                call()
                count += 1
            answer = {"seconds": (time.perf_counter() - begin) / count}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve()
