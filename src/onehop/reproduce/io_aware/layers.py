"""The paper's families of layers on this processor, PyG alone and under the patch, in turns."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import onehop
from onehop.bench.timing import Times, interleave
from onehop.bench.variants import ONEHOP, PYG
from onehop.datasets import load
from onehop.reproduce import beside_pyg
from onehop.reproduce.graphs import label
from onehop.reproduce.progress import Progress
from onehop.reproduce.rows import Chart, Row

_TWIN, _QUICK_SCALE = "arxiv", 0.1
_WIDTH, _HEADS = 64, 2
_ROUNDS, _QUICK_ROUNDS = 7, 3
# Of the largest magnitude: sums of float32 in another order.
_TOLERANCE = 1e-4


@dataclass(frozen=True, slots=True)
class Layer:
    """Measurements of one layer in one direction.

    Attributes:
        name: Family.
        step: "forward", or "forward and backward".
        graph: Name of the twin.
        times: Of PyG and of ours; empty where results differ.
        apart: Largest difference of the outputs, over the largest magnitude.
    """

    name: str
    step: str
    graph: str
    times: dict[str, Times]
    apart: float


def _families() -> dict[str, Callable[[], Any]]:
    from torch_geometric.nn import GATv2Conv, GCNConv, SAGEConv, TransformerConv

    head = _WIDTH // _HEADS
    return {
        "GATv2": lambda: GATv2Conv(_WIDTH, head, heads=_HEADS),
        "Graph Transformer": lambda: TransformerConv(_WIDTH, head, heads=_HEADS),
        "min": lambda: SAGEConv(_WIDTH, _WIDTH, aggr="min"),
        "sum (GCN)": lambda: GCNConv(_WIDTH, _WIDTH),
    }


def measured(quick: bool, progress: Progress) -> list[Layer]:
    """Every family, forward, and with its gradient."""
    scale = _QUICK_SCALE if quick else 1.0
    data = load(f"twin:{_TWIN}", scale=scale, features=False)
    x = torch.randn(data.num_nodes, _WIDTH, generator=torch.Generator().manual_seed(0), device="cpu")
    found: list[Layer] = []
    families = _families()
    for name, make in families.items():
        progress(name, len(found) / 2 / len(families))
        torch.manual_seed(0)
        found += _layer(name, make(), label(_TWIN, scale), x, data.edge_index, quick)
    return found


def _layer(name: str, layer: Any, graph: str, x: Tensor, edge_index: Tensor, quick: bool) -> list[Layer]:
    def forward(context: Callable[[], Any]) -> Callable[[], Tensor]:
        def call() -> Tensor:
            with context(), torch.no_grad():
                out: Tensor = layer(x, edge_index)
            return out

        return call

    def both(context: Callable[[], Any]) -> Callable[[], None]:
        def call() -> None:
            layer.zero_grad()
            leaf = x.detach().requires_grad_()
            with context():
                layer(leaf, edge_index).sum().backward()

        return call

    # Aggregates of constant features would be kept from call to call, and the kernels not run at all.
    contexts: dict[str, Callable[[], Any]] = {
        PYG.name: contextlib.nullcontext,
        ONEHOP.name: lambda: onehop.patch(reuse=False),
    }
    expected, ours = (forward(context)() for context in contexts.values())
    apart = float((ours - expected).abs().max() / expected.abs().max())
    rounds = _QUICK_ROUNDS if quick else _ROUNDS
    found = []
    for step, make in (("forward", forward), ("forward and backward", both)):
        times: dict[str, Times] = {}
        if apart <= _TOLERANCE:
            times = interleave({each: make(context) for each, context in contexts.items()}, rounds)
        found.append(Layer(name, step, graph, times, apart))
    return found


def rows(found: Sequence[Layer]) -> list[Row]:
    """PyG's time over ours, with the quartiles of the rounds."""
    lines = []
    for one in found:
        figure = f"{one.name} over PyG on this processor, {one.step}, F = {_WIDTH}, {one.graph}"
        if not one.times:
            lines.append(Row(figure=figure, unit="x", note=f"Not timed: results differ by {one.apart:.2g}."))
            continue
        lines.append(beside_pyg.row(figure, one.times, "here; the paper's is over DGL on a GPU."))
    return lines


def charts(found: Sequence[Layer]) -> tuple[Chart, ...]:
    """Milliseconds of each layer, PyG beside ours; none where nothing was timed."""
    timed = [one for one in found if one.times]
    if not timed:
        return ()
    times = {f"{one.name} {one.step}": one.times for one in timed}
    return (beside_pyg.chart("layers", f"One layer, F = {_WIDTH}, {timed[0].graph}", times),)
