"""Layers on this processor: bytes that they keep for gradients, and times against PyG, torch and DGL."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

import onehop
from onehop.bench.timing import Compared, Context, interleave, within
from onehop.bench.variants import ONEHOP, PYG
from onehop.datasets import chung_lu
from onehop.reproduce import beside_pyg
from onehop.reproduce.io_aware import baselines
from onehop.reproduce.tables import Chart, Row, row
from onehop.reproduce.twins import Progress, Twin

# Sizes for the layers whose kept bytes are counted.
_NODES, _EDGES = 2_000, (100_000, 200_000)
_KEPT_HEADS, _KEPT_HEAD = 4, 64
_KEPT_WIDTH = _KEPT_HEADS * _KEPT_HEAD
# Sizes for the layers that are timed.
_TWIN = Twin("arxiv", 0.1)
_WIDTH, _HEADS = 64, 2
_ROUNDS, _QUICK_ROUNDS = 7, 3
# Relative to the largest magnitude, because float32 sums are added in another order.
_TOLERANCE = 1e-4

Layer = Callable[[Tensor, Tensor], Tensor]


@dataclass
class Timed(Compared):
    """Measurements of one layer in one direction.

    Attributes:
        name: The layer's family.
        step: "forward", or "forward and backward".
        graph: The twin's name.
    """

    name: str
    step: str
    graph: str


def _keeping() -> dict[str, Callable[[], Any]]:
    from torch_geometric.nn import GATConv, GATv2Conv, GCNConv, SAGEConv, TransformerConv

    return {
        "GATv2": lambda: GATv2Conv(16, _KEPT_HEAD, _KEPT_HEADS, add_self_loops=False),
        "Graph Transformer": lambda: TransformerConv(16, _KEPT_HEAD, _KEPT_HEADS),
        "GAT": lambda: GATConv(16, _KEPT_HEAD, _KEPT_HEADS, add_self_loops=False),
        "GCN": lambda: GCNConv(16, _KEPT_WIDTH, add_self_loops=False),
        "max": lambda: SAGEConv(_KEPT_WIDTH, _KEPT_WIDTH, aggr="max"),
    }


def kept_bytes(layer: Layer, x: Tensor, edge_index: Tensor) -> int:
    """Return the bytes of all storages that a forward pass saves for its gradient.

    Args:
        layer: A PyG layer.
        x: [N, F]; requires a gradient.
        edge_index: [2, E].
    """
    storages: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        # The tensor is kept too, so that no other storage can get its address.
        storages[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        out = layer(x, edge_index)
    total = sum(tensor.untyped_storage().nbytes() for tensor in storages.values())
    del out
    return total


def bytes_an_edge(make: Callable[[], Any], context: Callable[[], Any]) -> float:
    """Return how many saved bytes each edge adds; forward passes run in the context."""
    torch.manual_seed(0)
    layer = make()
    width = layer.in_channels if isinstance(layer.in_channels, int) else layer.in_channels[0]
    x = torch.randn(_NODES, width, device="cpu").requires_grad_()
    counts, sizes = [], []
    for edges in _EDGES:
        edge_index = chung_lu(_NODES, edges)
        with context():
            sizes.append(kept_bytes(layer, x, edge_index))
        counts.append(edge_index.size(1))
    return (sizes[1] - sizes[0]) / (counts[1] - counts[0])


def memory() -> Iterator[Row]:
    """Yield a row for each layer: our bytes, with PyG's in the note."""
    for name, make in _keeping().items():
        ours = bytes_an_edge(make, lambda: onehop.patch())
        theirs = bytes_an_edge(make, contextlib.nullcontext)
        figure = f"bytes an edge kept for gradients, {name}, width {_KEPT_WIDTH}"
        note = f"PyG keeps {theirs:,.0f}; the paper's kernels keep nothing of edges times width."
        yield row(figure, "bytes", note, ours)


def _families() -> dict[str, Callable[[], Any]]:
    from torch_geometric.nn import GATv2Conv, GCNConv, SAGEConv, TransformerConv

    head = _WIDTH // _HEADS
    return {
        "GATv2": lambda: GATv2Conv(_WIDTH, head, heads=_HEADS),
        "Graph Transformer": lambda: TransformerConv(_WIDTH, head, heads=_HEADS),
        "min": lambda: SAGEConv(_WIDTH, _WIDTH, aggr="min"),
        "sum (GCN)": lambda: GCNConv(_WIDTH, _WIDTH),
    }


def measured(quick: bool, progress: Progress) -> list[Timed]:
    """Time every family, forward, and forward with backward."""
    one = _TWIN.of_run(quick)
    data = one.data()
    x = torch.randn(data.num_nodes, _WIDTH, generator=torch.Generator().manual_seed(0), device="cpu")
    timed: list[Timed] = []
    families = _families()
    for name, make in families.items():
        progress(name, len(timed) / 2 / len(families))
        torch.manual_seed(0)
        timed += _layer(name, make(), one.label, x, data.edge_index, quick)
    return timed


def _layer(name: str, layer: Any, graph: str, x: Tensor, edge_index: Tensor, quick: bool) -> list[Timed]:
    ways = _ways(layer, x, edge_index)
    # Without this, aggregates of constant features would be cached between calls, and the kernels would not
    # run.
    contexts: dict[str, Context] = {ONEHOP.name: lambda: onehop.patch(reuse=False)}
    by_step = []
    for step in ("forward", "forward and backward"):
        timed = Timed(name, step, graph)
        calls = {way: partial(_step, step, layer, forward, x) for way, forward in ways.items()}
        results = {
            way: within(contexts.get(way, contextlib.nullcontext), call) for way, call in calls.items()
        }
        for way, result in results.items():
            expected = results[PYG.name]
            apart = float((result - expected).abs().max() / expected.abs().max())
            if not apart <= _TOLERANCE:
                timed.wrong[way] = f"results differ by {apart:.2g}"
        right = {way: call for way, call in calls.items() if way not in timed.wrong}
        timed.times = interleave(right, _QUICK_ROUNDS if quick else _ROUNDS, contexts=contexts)
        by_step.append(timed)
    return by_step


def _ways(layer: Any, x: Tensor, edge_index: Tensor) -> dict[str, baselines.Forward]:
    """Return the layer as PyG, onehop and the available baselines run it."""
    edges = baselines.Edges.of(layer, edge_index, x.size(0))
    ways: dict[str, baselines.Forward] = dict.fromkeys(
        (PYG.name, ONEHOP.name), lambda rows: layer(rows, edge_index)
    )
    product = baselines.by_sparse_products(layer, edges)
    if product is not None:
        ways[baselines.SPARSE] = product
    if baselines.why_not_dgl() is None:
        ways[baselines.DGL] = baselines.by_dgl(layer, edges)
    return ways


def _step(step: str, layer: Any, forward: baselines.Forward, x: Tensor) -> Tensor:
    """Return the result of a forward pass, [N, F], or, with backward, the features' gradient, [N, F]."""
    if step == "forward":
        with torch.no_grad():
            return forward(x)
    layer.zero_grad()
    leaf = x.detach().requires_grad_()
    forward(leaf).sum().backward()
    assert leaf.grad is not None
    return leaf.grad


def rows(results: Sequence[Timed]) -> list[Row]:
    """Return the time of each baseline divided by ours, with the quartiles of the rounds."""
    over = {PYG.name: "PyG", baselines.SPARSE: baselines.SPARSE, baselines.DGL: baselines.DGL}
    timed = [
        beside_pyg.row(
            f"{one.name} over {text} on this processor, {one.step}, F = {_WIDTH}, {one.graph}",
            one,
            "here; the paper's is over DGL on a GPU.",
            way,
            text,
        )
        for one in results
        for way, text in over.items()
        if way == PYG.name or way in {**one.times, **one.wrong}
    ]
    if (reason := baselines.why_not_dgl()) is not None:
        timed.append(row("layers over DGL on this processor", "x", f"Needs DGL: {reason}."))
    return timed


def charts(results: Sequence[Timed]) -> tuple[Chart, ...]:
    """Return a chart with the ms of each layer, PyG and ours; no chart if nothing was timed."""
    title = f"One layer, F = {_WIDTH}, {results[0].graph}"
    return beside_pyg.charts("layers", title, {f"{one.name} {one.step}": one for one in results})
