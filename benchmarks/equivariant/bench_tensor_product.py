"""``onehop.tensor_product`` beside e3nn's ``TensorProduct`` and a scatter: times and peak memory.

    python -m benchmarks.equivariant.bench_tensor_product [--degrees 1,2,3] [--nodes 1000] [--neighbours 30]
        [--channels 128] [--passes forward,backward,second] [--ways e3nn,compiled,onehop,components-first]
        [--threads 1] [--rounds 5] [--json FILE]

e3nn must be importable; it is no dependency of onehop. Features are even scalars and odd
vectors, harmonics and results have degrees up to the given one, and each edge has weights of its own, as in
NequIP and MACE. "compiled" is the same under ``torch.compile``; where that fails, the reason is in the row.
"components-first" is ``onehop.tensor_product`` in the order of columns that kernels read, "onehop" in e3nn's.

"backward" is a forward pass and all gradients; "second" differentiates the gradient of an energy to the
harmonics once more, as training on forces does. Results are compared before anything is timed. Peak memory is
what two calls add to a process of their own.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

import onehop
from benchmarks import harness
from benchmarks.harness import Benchmark, Option, Options, Row, steady
from onehop.bench.timing import in_turns

PASSES = ("forward", "backward", "second")
WAYS = ("e3nn", "compiled", "onehop", "components-first")
TOLERANCE = 1e-3
TURN_S = 0.1

Product = Callable[[Tensor, Tensor, Tensor], Tensor]


def paths_of(channels: int, degree: int) -> onehop.TensorPaths:
    """The paths whose results have the parity of harmonics, as in the interaction of MACE."""
    x = f"{channels}x0e+{channels}x1o"
    harmonics = "+".join(f"{each}{'eo'[each % 2]}" for each in range(degree + 1))
    every = onehop.TensorPaths.between(x, harmonics, up_to=degree)
    kept = [path for path in every.paths if every.out[path.out].parity == (-1) ** every.out[path.out].degree]
    out = "+".join(str(every.out[path.out]) for path in kept)
    steps = [(path.x, path.harmonics, place) for place, path in enumerate(kept)]
    return onehop.TensorPaths(x, harmonics, out, steps)


def product(way: str, edge_index: Tensor, nodes: int, paths: onehop.TensorPaths) -> Product:
    """One of the ways."""
    if way in ("onehop", "components-first"):
        graph = onehop.Graph.from_edge_index(edge_index, nodes)
        layout = "mul_ir" if way == "onehop" else "ir_mul"
        return lambda x, y, w: onehop.tensor_product(graph, x, y, w, paths, layout=layout)
    from e3nn import o3

    irreps = paths.x_irreps, paths.harmonics_irreps, paths.out_irreps
    steps = [(path.x, path.harmonics, path.out, path.mode, True) for path in paths.paths]
    each = o3.TensorProduct(*irreps, steps, shared_weights=False, internal_weights=False)

    def summed(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        messages = each(x[edge_index[0]], y, w)
        return messages.new_zeros(nodes, messages.size(1)).index_add(0, edge_index[1], messages)

    return torch.compile(summed) if way == "compiled" else summed  # type: ignore[no-any-return]


def call(order: Row) -> Callable[[], list[Tensor]]:
    """One pass in one way, made ready: it returns what it computes."""
    torch.manual_seed(0)
    nodes, neighbours = order["nodes"], order["neighbours"]
    paths = paths_of(order["channels"], order["degree"])
    target = torch.arange(nodes).repeat_interleave(neighbours)
    edge_index = torch.stack([torch.randint(nodes, target.shape), target])
    x, y, w = leaves = [
        torch.randn(rows, columns, requires_grad=order["pass"] != "forward")
        for rows, columns in (
            (nodes, paths.dim_x),
            (target.numel(), paths.dim_harmonics),
            (target.numel(), paths.weight_numel),
        )
    ]
    pull = torch.randn(nodes, paths.dim_out)
    multiply = product(order["way"], edge_index, nodes, paths)

    def once() -> list[Tensor]:
        out = multiply(x, y, w)
        if order["pass"] == "forward":
            return [out]
        if order["pass"] == "backward":
            return list(torch.autograd.grad(out, leaves, pull))
        (force,) = torch.autograd.grad(out.square().mean(), y, create_graph=True)
        return list(torch.autograd.grad(force.square().sum(), leaves))

    return once


def peak(order: Row) -> int:
    """The memory that two calls add to this process."""
    torch.set_num_threads(order["threads"])
    return harness.added_bytes(call(order))


def rows(options: Options) -> Iterator[Row]:
    """Measures every case, one after the other."""
    for degree in options.degrees:
        for which in options.passes:
            what = {
                "degree": degree, "pass": which, "nodes": options.nodes, "neighbours": options.neighbours,
                "channels": options.channels, "threads": torch.get_num_threads(),
            }  # fmt: skip
            yield what | _measured(what, options)


def _measured(what: Row, options: Options) -> Row:
    calls: dict[str, Callable[[], list[Tensor]]] = {}
    failed: dict[str, str] = {}
    expected: list[Tensor] | None = None
    for way in options.ways:
        calls[way] = call(what | {"way": way})
        try:
            found = calls[way]()
        except Exception as error:  # torch's compiler raises errors of many types
            if way != "compiled":
                raise
            failed[way] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            del calls[way]
            continue
        if way != "components-first":  # its columns are others
            expected = found if expected is None else expected
            harness.must_agree(harness.apart_by(found, expected), TOLERANCE, f"{what}: {way}")
    times = in_turns({way: steady(each, TURN_S) for way, each in calls.items()}, options.rounds)
    memory: dict[str, Any] = {
        way: harness.apart(peak, what | {"way": way}, f"the memory of {way}") for way in calls
    }
    slow = "e3nn" if {"e3nn", "onehop"} <= calls.keys() else None
    return harness.compared(times, slow, "onehop") | {"peak_bytes": memory, "failed": failed}


BENCHMARK = Benchmark(
    "benchmarks/equivariant/bench_tensor_product.py",
    rows,
    "degree; pass; nodes; neighbours; channels; threads; e3nn, ms | seconds/e3nn/median_s | ms;"
    "compiled, ms | seconds/compiled/median_s | ms; onehop, ms | seconds/onehop/median_s | ms;"
    "components first, ms | seconds/components-first/median_s | ms;"
    "speedup | speedup | gain speedup_quartiles;"
    "e3nn, MiB | peak_bytes/e3nn | MiB; onehop, MiB | peak_bytes/onehop | MiB",
    {
        "degrees": (1, 2, 3),
        "nodes": 1000,
        "neighbours": 30,
        "channels": 128,
        "passes": Option(PASSES, known=PASSES),
        "ways": Option(WAYS, known=WAYS),
    },
    rounds=5,
    kept=("ways",),
)

if __name__ == "__main__":
    BENCHMARK.main()
