"""Drawing mini-batches: onehop's sampler beside the one that PyG has here, of pyg-lib or torch-sparse.

    python benchmarks/minibatch/bench_sampler.py [--graph twin:arxiv] [--fan-out 15,10] [--batches 40]

``draw`` is the sampler alone, from seeds to numbers of nodes and edges; ``batch`` is what PyG's
``NeighborLoader`` hands out, with features, in one process; ``all neighbours`` draws with a fan-out of -1.
All draw for the same seeds. Each way's batches are checked before any time is taken: the edges are edges of
the graph, and as many a node as asked for. Without pyg-lib and torch-sparse onehop stands alone, and the line
says so.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

import onehop
from onehop import datasets
from onehop.bench import command
from onehop.bench.stamp import machine_line
from onehop.bench.tasks import LearningTask
from onehop.bench.timing import Ratio, Times, in_turns, quantile

with warnings.catch_warnings():
    # PyG calls torch.jit.script while it is imported, which newer releases of torch deprecate.
    warnings.simplefilter("ignore", DeprecationWarning)
    import torch_geometric.typing
    from torch_geometric.data import Data
    from torch_geometric.loader import NeighborLoader

SEEDS = 1024


def peer() -> str | None:
    """What PyG draws with here; None if it cannot."""
    if torch_geometric.typing.WITH_PYG_LIB:
        return "pyg-lib"
    return "torch-sparse" if torch_geometric.typing.WITH_TORCH_SPARSE else None


def loader_of(data: Data, fan_out: list[int], seeds: Tensor) -> Any:
    """PyG's loader; whoever draws for it is decided when it does."""
    with warnings.catch_warnings():
        # PyG would rather have pyg-lib draw the neighbours.
        warnings.simplefilter("ignore", UserWarning)
        return NeighborLoader(data, fan_out, input_nodes=seeds, batch_size=SEEDS)


def check(data: Data, batch: Any, fan_out: list[int]) -> None:
    """Ends the program unless the batch has edges of the graph, as many as it should for each seed."""
    assert data.edge_index is not None
    same = torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
    degrees = torch.bincount(data.edge_index[1], minlength=data.num_nodes or 0)[
        batch.n_id[: batch.batch_size]
    ]
    expected = degrees if fan_out[0] < 0 else degrees.clamp(max=fan_out[0])
    found = torch.bincount(batch.edge_index[1], minlength=batch.batch_size)[: batch.batch_size]
    if not same or not torch.equal(found, expected):
        raise SystemExit("a batch is not what was asked for; nothing was measured.")


def draws(loader: Any, batches: int) -> float:
    """Median seconds of the sampler alone."""
    seconds = []
    for indices, _ in zip(loader.batch_sampler, range(batches), strict=False):
        inputs = loader.input_data[torch.tensor(indices)]
        begin = time.perf_counter()
        loader.node_sampler.sample_from_nodes(inputs)
        seconds.append(time.perf_counter() - begin)
    return quantile(seconds, 0.5)


def whole(loader: Any, batches: int) -> float:
    """Median seconds of a batch with its features."""
    seconds, iterator = [], iter(loader)
    for _ in range(min(batches, len(loader))):
        begin = time.perf_counter()
        next(iterator)
        seconds.append(time.perf_counter() - begin)
    return quantile(seconds, 0.5)


def measured(
    name: str, data: Data, fan_out: list[int], seeds: Tensor, options: argparse.Namespace
) -> dict[str, Any]:
    """One row of results, printed."""
    take = draws if name != "batch" else whole
    names = [*([] if (other := peer()) is None else [other]), "onehop"]

    def turn(ours: bool) -> float:
        with onehop.patch(sampler=ours):
            return take(loader_of(data, fan_out, seeds), options.batches)

    ways: dict[str, Callable[[], float]] = {way: partial(turn, way == "onehop") for way in names}
    for way in names:
        with onehop.patch(sampler=way == "onehop"):
            batch = next(iter(loader_of(data, fan_out, seeds)))
            check(data, batch, fan_out)
    times: dict[str, Times] = in_turns(ways, options.rounds)
    line = "   ".join(f"{way} {value.median_s * 1e3:8.2f} ms" for way, value in times.items())
    row: dict[str, Any] = {
        "case": name, "fan_out": fan_out, "nodes": batch.num_nodes, "edges": batch.num_edges,
        "seconds": {way: value.to_dict() for way, value in times.items()},
    }  # fmt: skip
    if other is None:
        line += "   (PyG has nothing to draw with here)"
    else:
        ratio = Ratio.of(times[other], times["onehop"])
        line += f"   {ratio.median:5.2f}x ({ratio.lower_quartile:.2f} to {ratio.upper_quartile:.2f})"
        row |= {"speedup": ratio.median, "speedup_quartiles": [ratio.lower_quartile, ratio.upper_quartile]}
    print(f"{name:15} {batch.num_nodes} nodes, {batch.num_edges} edges   {line}", flush=True)
    return row


def main() -> None:
    """Reads the options, measures, prints."""
    parser = command.parser(__doc__, rounds=5, threads=True)
    parser.add_argument("--graph", default="twin:arxiv")
    parser.add_argument("--fan-out", type=command.integers, default="15,10")
    parser.add_argument("--batches", type=int, default=40)
    options = command.read(parser)
    torch.manual_seed(0)
    print(machine_line())
    task = LearningTask.of(datasets.load(options.graph))
    data = Data(x=task.x, edge_index=task.edge_index)
    seeds = torch.randperm(task.x.size(0))[: SEEDS * options.batches]
    rows = [
        measured(name, data, fan_out, seeds, options)
        for name, fan_out in (
            ("draw", options.fan_out),
            ("batch", options.fan_out),
            ("all neighbours", [-1] * len(options.fan_out)),
        )
    ]
    command.write(options, "bench sampler", {"graph": options.graph, "results": rows})


if __name__ == "__main__":
    main()
