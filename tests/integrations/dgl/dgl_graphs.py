"""Small graphs of every shape that has been trouble."""

import pytest
import torch

dgl = pytest.importorskip("dgl", reason="dgl is not installed here: make test-dgl runs these tests")


def edges(num_src: int, num_dst: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random, with repeated edges, and last nodes that have none."""
    generator = torch.Generator().manual_seed(count)
    source = torch.randint(0, num_src - 1, (count,), generator=generator)
    target = torch.randint(0, num_dst - 1, (count,), generator=generator)
    if count > 4:
        source[1], target[1] = source[0], target[0]
        source[2:4], target[2:4] = 3, 3
    return source, target


def bipartite(num_src: int, num_dst: int, count: int) -> "dgl.DGLGraph":
    return dgl.heterograph(
        {("user", "likes", "thing"): edges(num_src, num_dst, count)},
        num_nodes_dict={"user": num_src, "thing": num_dst},
    )


def hub() -> "dgl.DGLGraph":
    """All edges end at one node."""
    source, _ = edges(30, 30, 200)
    return dgl.graph((source, torch.zeros_like(source)), num_nodes=30)


def block() -> "dgl.DGLGraph":
    """A block of a mini-batch: its destinations are the first of its sources."""
    return dgl.to_block(dgl.graph(edges(30, 30, 100)), dst_nodes=torch.arange(30))


GRAPHS = {
    "random": lambda: dgl.graph(edges(30, 30, 150), num_nodes=30),
    "int32": lambda: dgl.graph(edges(30, 30, 150), num_nodes=30).int(),
    "bipartite": lambda: bipartite(25, 14, 90),
    "block": block,
    "hub": hub,
    "sorted": lambda: dgl.reorder_graph(
        dgl.graph(edges(30, 30, 150), num_nodes=30), node_permute_algo=None, edge_permute_algo="dst"
    ),
    "no edges": lambda: dgl.graph(edges(5, 5, 0), num_nodes=5),
    "no nodes": lambda: dgl.graph(([], []), num_nodes=0),
}


def features(rows: int, *shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> torch.Tensor:
    """Multiples of a quarter, so that many of them tie."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-8, 9, (rows, *shape), generator=generator).to(dtype) / 4
