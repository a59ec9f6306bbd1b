"""``torch.nn.functional.dropout`` with and without ``onehop.patch()``: times, and ratios of times.

    python benchmarks/layers/bench_dropout.py [--elements 1000,1000000,43000000] [--p 0.1,0.5]
                                              [--thread-counts 1,2] [--passes forward,backward,both]
                                              [--rounds 15] [--json FILE]

Both ways take turns; a ratio is torch's median time over the patched one's, and its quartiles are those of
the rounds. "backward" is the gradient alone, "both" a forward pass and its gradient. Results, gradients and
the generator's state are compared, bit by bit, before anything is timed. "one pass" is the time of
``torch.mul`` of two such tensors into a third: what reading two and writing one takes.
"""

import argparse
import contextlib
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import onehop
from onehop.bench import command
from onehop.bench.stamp import machine_line
from onehop.bench.timing import Ratio, in_turns, interleave, measure_once

ELEMENTS = (1_000, 4_000, 16_000, 100_000, 1_000_000, 4_000_000, 43_000_000)
PASSES = ("forward", "backward", "both")
SEED = 0
# A turn lasts about so long, after so many calls that are not counted.
TURN_S = 5e-3
WARM = 2


def call(x: Tensor, grad: Tensor, p: float, which: str) -> Callable[[], Tensor]:
    """One of the passes, made ready: it returns what it computes."""

    def forward() -> Tensor:
        return F.dropout(x.detach(), p)

    def both() -> Tensor:
        return torch.autograd.grad(F.dropout(x, p), x, grad)[0]

    if which == "backward":
        out = F.dropout(x, p)
        return lambda: torch.autograd.grad(out, x, grad, retain_graph=True)[0]
    return forward if which == "forward" else both


def ways() -> dict[str, Callable[[], contextlib.AbstractContextManager[Any]]]:
    """What is in place for each way."""
    return {"torch": contextlib.nullcontext, "onehop": lambda: onehop.patch(only="torch", products=False)}


def compare(x: Tensor, grad: Tensor, p: float) -> None:
    """Raises unless both ways give the same bits and leave the same state."""
    found = {}
    for name, within in ways().items():
        with within():
            torch.manual_seed(SEED)
            out = F.dropout(x, p)
            found[name] = out.detach(), torch.autograd.grad(out, x, grad)[0], torch.get_rng_state()
    for ours, theirs in zip(found["onehop"], found["torch"], strict=True):
        if not torch.equal(ours, theirs):
            raise SystemExit(f"{x.numel()} elements, p = {p}: the results differ.")


def measured(x: Tensor, grad: Tensor, p: float, which: str, rounds: int) -> dict[str, Any]:
    """Times of both ways. Entering and leaving the patch is outside what is timed."""
    once = max(measure_once(call(x, grad, p, which)), 1e-7)
    repeats = max(1, math.ceil(TURN_S / once))

    def turn(within: Callable[[], contextlib.AbstractContextManager[Any]]) -> float:
        with within():
            run = call(x, grad, p, which)
            measure_once(run, WARM)
            return measure_once(run, repeats)

    times = in_turns({name: partial(turn, within) for name, within in ways().items()}, rounds)
    ratio = Ratio.of(times["torch"], times["onehop"])
    return {
        **{f"{name}_s": time.median_s for name, time in times.items()},
        "ratio": ratio.median,
        "quartiles": [ratio.lower_quartile, ratio.upper_quartile],
    }


def cases(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Measures every case, one after the other."""
    for threads in options.thread_counts:
        torch.set_num_threads(threads)
        for elements in options.elements:
            x, grad = torch.randn(elements, requires_grad=True), torch.randn(elements)
            product = torch.empty(elements)
            mul = partial(torch.mul, x.detach(), grad, out=product)
            one_pass_s = interleave({"mul": mul}, options.rounds)["mul"].median_s
            for p in options.p:
                compare(x, grad, p)
                for which in options.passes:
                    yield {
                        "elements": elements,
                        "threads": threads,
                        "p": p,
                        "pass": which,
                        "one_pass_s": one_pass_s,
                        **measured(x, grad, p, which, options.rounds),
                    }


def main() -> None:
    """Prints a line a case."""
    parser = command.parser(__doc__, rounds=15)
    parser.add_argument("--elements", type=command.integers, default=list(ELEMENTS))
    parser.add_argument("--thread-counts", type=command.integers, default=[1, 2])
    parser.add_argument("--p", type=lambda text: [float(p) for p in text.split(",")], default=[0.1, 0.5])
    parser.add_argument("--passes", type=command.names, default=list(PASSES))
    options = command.read(parser)
    if unknown := [name for name in options.passes if name not in PASSES]:
        raise SystemExit(f"--passes: unknown {', '.join(unknown)}; there are {', '.join(PASSES)}.")
    print(machine_line())
    found = []
    for case in cases(options):
        found.append(case)
        low, high = case["quartiles"]
        print(
            f"{case['elements']:10} x {case['threads']} threads  p {case['p']:<5} {case['pass']:9} "
            f"torch {case['torch_s'] * 1e3:9.3f} ms  onehop {case['onehop_s'] * 1e3:9.3f} ms  "
            f"{case['ratio']:6.2f} ({low:.2f} to {high:.2f})  one pass {case['one_pass_s'] * 1e3:9.3f} ms",
            flush=True,
        )
    command.write(options, "benchmarks/layers/bench_dropout.py", {"cases": found})


if __name__ == "__main__":
    main()
