"""Arguments that count take any integer, and no truth value, float or text."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import onehop
from onehop import ArgumentError, Graph, datasets
from onehop.distributed import partition
from onehop.errors import integer

EDGES = torch.tensor([[0, 1, 2], [1, 2, 0]])
GRAPH = Graph.from_edge_index(EDGES, 4)
X = torch.arange(8.0).view(4, 2)


def drawn(**options: Any) -> list[int]:
    pytest.importorskip("torch_geometric")
    sampler = onehop.NeighborSampler(GRAPH, **{"num_neighbors": [2]} | options.pop("of_sampler", {}))
    nodes: list[int] = next(iter(onehop.loader(sampler, batch_size=4, **options))).n_id.tolist()
    return nodes


# By the argument: what a call with 4 gives.
COUNTS: dict[str, Callable[[Any], Any]] = {
    "num_nodes": lambda n: Graph.from_edge_index(EDGES, n).num_dst,
    "size": lambda n: Graph.from_edge_index(EDGES, size=(n, n)).num_src,
    "num_src": lambda n: Graph.from_csr(torch.tensor([0, 1]), torch.tensor([2]), n).num_src,
    "k": lambda n: Graph.from_points(X, k=n).num_edges,
    "num_rows": lambda n: onehop.scatter(X, torch.tensor([0, 1, 1, 2]), n).tolist(),
    "num_neighbors": lambda n: drawn(of_sampler={"num_neighbors": [n]}),
    "seed": lambda n: drawn(of_sampler={"seed": n}),
    "threads": lambda n: drawn(of_sampler={"seed": 1}, threads=n),
    "ahead": lambda n: drawn(of_sampler={"seed": 1}, ahead=n),
    "rows": lambda n: datasets.grid(n, n).tolist(),
    "num_edges": lambda n: datasets.chung_lu(9, n).tolist(),
    "seed of a graph": lambda n: datasets.chung_lu(9, 4, seed=n).tolist(),
    "seed of a twin": lambda n: datasets.twin("cora", seed=n, scale=0.05).edge_index.tolist(),
    "undirected": lambda n: datasets.undirected(EDGES, n).tolist(),
    "parts": lambda n: partition(GRAPH, n, "greedy").tolist(),
}


@pytest.mark.parametrize("argument", COUNTS)
def test_any_integer_is_a_number(argument: str) -> None:
    call = COUNTS[argument]
    for given in (np.int64(4), np.uint8(4), np.array(4), torch.tensor(4), torch.tensor(4, dtype=torch.int8)):
        assert call(given) == call(4)


@pytest.mark.parametrize("argument", COUNTS)
@pytest.mark.parametrize("wrong", [True, np.True_, torch.tensor(True), 4.0, np.float64(4), "4"])
def test_what_is_no_integer_is_refused(argument: str, wrong: Any) -> None:
    with pytest.raises(ArgumentError, match=r"^\w+: expected "):
        COUNTS[argument](wrong)


def test_bounds() -> None:
    assert (integer("n", 3, 3), integer("n", -3, None), type(integer("n", np.int8(3)))) == (3, -3, int)
    for wrong, least, message in ((-1, 0, "of 0 or more, got -1"), (2.5, None, "an integer, got 2.5")):
        with pytest.raises(ArgumentError, match=f"^n: expected .*{message}"):
            integer("n", wrong, least)
