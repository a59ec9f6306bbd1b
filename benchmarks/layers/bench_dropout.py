"""``torch.nn.functional.dropout`` with and without ``onehop.patch()``: times, and ratios of times.

    python -m benchmarks.layers.bench_dropout [--elements 1000,1000000,43000000] [--p 0.1,0.5]
                                              [--threads 1,2] [--passes forward,backward,both]
                                              [--rounds 15] [--json FILE]

Both ways take turns; a ratio is torch's median time over the patched one's, and its quartiles are those of
the rounds. "backward" is the gradient alone, "both" a forward pass and its gradient. Results, gradients and
the generator's state are compared, bit by bit, before anything is timed. "one pass" is the time of
``torch.mul`` of two such tensors into a third: what reading two and writing one takes.
"""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

import onehop
from benchmarks import harness
from benchmarks.harness import Benchmark, Option, Options, Row
from onehop.bench.timing import Ratio, interleave

ELEMENTS = (1_000, 4_000, 16_000, 100_000, 1_000_000, 4_000_000, 43_000_000)
PASSES = ("forward", "backward", "both")
WAYS = {"torch": nullcontext, "onehop": partial(onehop.patch, only="torch", products=False)}
SEED = 0
# A turn takes about so long, after so many calls that are not counted.
TURN_S = 5e-3
WARM = 2


def call(x: Tensor, grad: Tensor, p: float, which: str) -> Callable[[], Tensor]:
    """One of the passes, made ready: it returns what it computes."""
    if which == "backward":
        out = F.dropout(x, p)
        return lambda: torch.autograd.grad(out, x, grad, retain_graph=True)[0]
    if which == "forward":
        return lambda: F.dropout(x.detach(), p)
    return lambda: torch.autograd.grad(F.dropout(x, p), x, grad)[0]


def compare(x: Tensor, grad: Tensor, p: float) -> None:
    """Raises unless both ways give the same bits and leave the same state."""
    found = {}
    for name, within in WAYS.items():
        with within():
            torch.manual_seed(SEED)
            out = F.dropout(x, p)
            found[name] = out.detach(), torch.autograd.grad(out, x, grad)[0], torch.get_rng_state()
    for ours, theirs in zip(found["onehop"], found["torch"], strict=True):
        if not torch.equal(ours, theirs):
            raise SystemExit(f"{x.numel()} elements, p = {p}: the results differ.")


def rows(options: Options) -> Iterator[Row]:
    """Measures every case, one after the other."""
    for threads in options.threads:
        torch.set_num_threads(threads)
        for elements in options.elements:
            x, grad = torch.randn(elements, requires_grad=True), torch.randn(elements)
            mul = partial(torch.mul, x.detach(), grad, out=torch.empty(elements))
            one_pass_s = interleave({"mul": mul}, options.rounds)["mul"].median_s
            for p in options.p:
                compare(x, grad, p)
                for which in options.passes:
                    # The pass is made inside the context, which its graph of gradients belongs to.
                    def turn(p: float = p, which: str = which, x: Tensor = x, grad: Tensor = grad) -> float:
                        return harness.steady(call(x, grad, p, which), TURN_S, WARM)()

                    times = harness.in_ways(WAYS, turn, options.rounds)
                    yield {
                        "elements": elements,
                        "threads": threads,
                        "p": p,
                        "pass": which,
                        "one_pass_s": one_pass_s,
                        **{f"{name}_s": taken.median_s for name, taken in times.items()},
                        **harness.spread(Ratio.of(times["torch"], times["onehop"])),
                    }


BENCHMARK = Benchmark(
    "benchmarks/layers/bench_dropout.py",
    rows,
    "elements; threads; p; pass; torch, ms | torch_s | ms; onehop, ms | onehop_s | ms;"
    "over torch | ratio | gain quartiles; one pass, ms | one_pass_s | ms",
    {"elements": ELEMENTS, "threads": (1, 2), "p": (0.1, 0.5), "passes": Option(PASSES, known=PASSES)},
    key="cases",
    rounds=15,
    threads=False,
)

if __name__ == "__main__":
    BENCHMARK.main()
