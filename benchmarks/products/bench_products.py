"""The products of linear steps: every library beside torch's own, and the patched step beside the plain one.

    python -m benchmarks.products.bench_products [--shapes 169343x256x256,...] [--rounds 9] [--threads N]
                                                 [--json FILE]

A shape is ROWSxINPUTSxOUTPUTS. Libraries take turns; a ratio is torch's median time over the library's, and
its quartiles are those of the rounds. "three products" is a step forward and backward, by torch and as
``onehop.patch()`` runs it, with what it chose. Results are compared with torch's before anything is timed.
With ``ONEHOP_DATA`` set, the last lines are the first linear step of real, sparse features (Cora).
"""

import math
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

import onehop
from benchmarks import columns
from benchmarks.harness import Benchmark, Options, Row
from onehop import datasets
from onehop.bench.timing import Ratio, interleave
from onehop.kernels.products import FORWARD, KINDS, TO_INPUT, TORCH, libraries
from onehop.tuner import products

SHAPES = (
    "169343x256x256", "169343x128x256", "169343x128x32", "169343x256x40", "65536x256x256", "8192x256x256",
    "2708x1433x64",
)  # fmt: skip
# Of the largest entry of torch's result.
TOLERANCE = 1e-4
SPARSE_OUTPUTS = (16, 64)


def operands(kind: str, rows: int, inputs: int, outputs: int) -> tuple[Tensor, Tensor]:
    """Random operands of one product."""
    x, weight, grad = torch.randn(rows, inputs), torch.randn(outputs, inputs), torch.randn(rows, outputs)
    return {FORWARD: (x, weight), TO_INPUT: (grad, weight)}.get(kind, (grad, x))


def compare(found: Tensor, expected: Tensor) -> None:
    """Raises if two results differ by more than rounding."""
    torch.testing.assert_close(found, expected, rtol=0, atol=TOLERANCE * float(expected.abs().max()))


def line(about: Row, ratio: Ratio, seconds: float, work: int) -> Row:
    """A line of results."""
    return {
        **about,
        "milliseconds": seconds * 1e3,
        "gflops": work / seconds * 1e-9,
        "ratio": ratio.median,
        "lower_quartile": ratio.lower_quartile,
        "upper_quartile": ratio.upper_quartile,
    }


def each_library(text: str, rounds: int) -> Iterator[Row]:
    """Every product by every library."""
    shape = tuple(int(part) for part in text.split("x"))
    for kind in KINDS:
        left, right = operands(kind, *shape)
        calls = {name: partial(run, left, right, None) for name, run in libraries(kind).items()}
        expected = calls[TORCH]()
        for call in calls.values():
            compare(call(), expected)
        times = interleave(calls, rounds)
        for name, taken in times.items():
            about = {"shape": text, "product": kind, "library": name}
            yield line(about, Ratio.of(times[TORCH], taken), taken.median_s, 2 * math.prod(shape))


def step(
    x: Tensor, weight: Tensor, linear: Callable[..., Tensor] | None = None
) -> Callable[[], list[Tensor]]:
    """A linear step forward and backward; it returns the result and the gradients."""
    bias = torch.zeros(weight.size(0), requires_grad=True)
    wanted = [each for each in (x, weight, bias) if each.requires_grad]
    upstream = torch.linspace(-1, 1, len(x) * len(weight)).view(len(x), len(weight))

    def once() -> list[Tensor]:
        out = (linear or F.linear)(x, weight, bias)
        return [out.detach(), *torch.autograd.grad(out, wanted, upstream)]

    return once


def whole_step(about: Row, x: Tensor, weight: Tensor, rounds: int) -> Row:
    """A step forward and backward under the patch, beside torch's."""
    work = 2 * x.numel() * weight.size(0) * (3 if x.requires_grad else 2)
    with onehop.patch():
        ours, theirs = step(x, weight), step(x, weight, torch._C._nn.linear)
        for _ in range(3):  # measures the classes, and finds out about sparse features
            found = ours()
            for got, want in zip(found, theirs(), strict=True):
                compare(got, want)
        times = interleave({TORCH: theirs, "patched": ours}, rounds)
    ratio = Ratio.of(times[TORCH], times["patched"])
    return line({**about, "library": "patched"}, ratio, times["patched"].median_s, work)


def rows(options: Options) -> Iterator[Row]:
    """Measures every case, one after the other."""
    for text in options.shapes:
        yield from each_library(text, options.rounds)
        rows, inputs, outputs = (int(part) for part in text.split("x"))
        x = torch.randn(rows, inputs, requires_grad=True)
        weight = torch.randn(outputs, inputs, requires_grad=True)
        yield whole_step({"shape": text, "product": "three products"}, x, weight, options.rounds)
    if folder := os.environ.get("ONEHOP_DATA"):
        features = datasets.from_file(Path(folder) / "cora.npz").x
        for outputs in SPARSE_OUTPUTS:
            weight = torch.randn(outputs, features.size(1), requires_grad=True)
            about = {"shape": f"Cora to {outputs}", "product": "sparse features"}
            yield whole_step(about, features, weight, options.rounds)


BENCHMARK = Benchmark(
    __doc__,
    "bench_products",
    rows,
    columns.of(
        "shape; product; library; ms | milliseconds | {:.3f}; GFLOP/s | gflops | {:.0f}; "
        "over torch | ratio | x; from | lower_quartile | x; to | upper_quartile | x"
    ),
    {"shapes": SHAPES},
    key="cases",
    rounds=9,
    notes=lambda options, rows: [f"{chosen.case}: {chosen.library}" for chosen in products.known()],
)

if __name__ == "__main__":
    BENCHMARK.main()
