"""Interatomic potentials, with and without ``onehop.patch()``: energy and forces, and a training step.

    python -m benchmarks.equivariant.bench_potentials [--potentials mace-small,nequip-medium] [--side 6]
        [--neighbours 30] [--passes forces,training] [--threads 2] [--rounds 5] [--json FILE]

MACE and NequIP need different releases of e3nn, so each runs in an environment of its own; a potential whose
package is not installed is left out, and named. Atoms are drawn (:mod:`.potentials`). "forces" is an
evaluation of energy and forces, as a step of molecular dynamics needs it; "training" adds the gradients of a
loss of both to all parameters. Results are compared before anything is timed. Peak memory is what two calls
add to a process of their own.
"""

from collections.abc import Callable, Iterator
from contextlib import nullcontext

import torch
from torch import Tensor

import onehop
from benchmarks import harness
from benchmarks.equivariant.potentials import POTENTIALS, Atoms, results
from benchmarks.harness import Benchmark, Option, Options, Row

PASSES = ("forces", "training")
WAYS = {"theirs": nullcontext, "onehop": onehop.patch}
TOLERANCE = 1e-3
TURN_S = 0.1


def call(order: Row) -> Callable[[], list[Tensor]]:
    """One pass of a potential, made ready: it returns what it computes."""
    torch.manual_seed(0)
    potential = POTENTIALS[order["potential"]](order["neighbours"])
    atoms = Atoms.drawn(order["side"], order["neighbours"], torch.get_default_dtype())

    def once() -> list[Tensor]:
        return results(potential, atoms, order["pass"] == "training")

    return once


def peak(order: Row) -> int:
    """The memory that two calls add to this process."""
    torch.set_num_threads(order["threads"])
    once = call(order)
    return harness.within(WAYS[order["way"]], lambda: harness.added_bytes(once))


def rows(options: Options) -> Iterator[Row]:
    """Measures every case, one after the other."""
    for potential in options.potentials:
        for which in options.passes:
            what = {
                "potential": potential, "pass": which, "side": options.side,
                "neighbours": options.neighbours, "threads": torch.get_num_threads(),
            }  # fmt: skip
            try:
                once = call(what)
            except ImportError as error:
                options.noted.setdefault("left_out", {})[potential] = str(error)
                print(f"{potential} is left out: {error}")
                break
            yield what | _measured(what, once, options.rounds)


def _measured(what: Row, once: Callable[[], list[Tensor]], rounds: int) -> Row:
    expected = once()
    difference = harness.apart_by(harness.within(onehop.patch, once), expected)
    harness.must_agree(difference, TOLERANCE, str(what))
    times = harness.in_ways(WAYS, harness.steady(once, TURN_S), rounds)
    memory = {
        way: harness.apart(peak, what | {"way": way}, f"the memory of {what['potential']}, {way}")
        for way in WAYS
    }
    atoms = {"atoms": what["side"] ** 3, "difference": difference}
    return atoms | harness.compared(times, "theirs") | {"peak_bytes": memory}


BENCHMARK = Benchmark(
    "benchmarks/equivariant/bench_potentials.py",
    rows,
    "potential; pass; atoms; neighbours; threads; theirs, ms | seconds/theirs/median_s | ms;"
    "onehop, ms | seconds/onehop/median_s | ms; speedup | speedup | gain speedup_quartiles;"
    "theirs, MiB | peak_bytes/theirs | MiB; onehop, MiB | peak_bytes/onehop | MiB",
    {
        "potentials": Option(tuple(POTENTIALS), known=tuple(POTENTIALS)),
        "side": Option(6, help="atoms along an edge of the cell"),
        "neighbours": 30,
        "passes": Option(PASSES, known=PASSES),
    },
    rounds=5,
)

if __name__ == "__main__":
    BENCHMARK.main()
