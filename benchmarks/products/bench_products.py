"""The products of linear steps: every library beside torch's own, and the patched step beside the plain one.

    python benchmarks/products/bench_products.py [--shapes 169343x256x256,...] [--rounds 9] [--threads N]
                                                 [--json FILE]

A shape is ROWSxINPUTSxOUTPUTS. Libraries take turns; a ratio is torch's median time over the library's, and
its quartiles are those of the rounds. "three products" is a step forward and backward, by torch and as
``onehop.patch()`` runs it, with what it chose. Results are compared with torch's before anything is timed.
With ``ONEHOP_DATA`` set, the last lines are the first linear step of real, sparse features (Cora).
"""

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import onehop
from onehop import datasets
from onehop.bench import command
from onehop.bench.stamp import machine_line
from onehop.bench.timing import Ratio, interleave
from onehop.kernels.products import FORWARD, KINDS, TO_INPUT, TORCH, libraries
from onehop.tuner import products

SHAPES = "169343x256x256,169343x128x256,169343x128x32,169343x256x40,65536x256x256,8192x256x256,2708x1433x64"
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


def each_library(shape: tuple[int, int, int], rounds: int) -> Iterator[dict[str, Any]]:
    """Every product by every library."""
    work = 2 * shape[0] * shape[1] * shape[2]
    for kind in KINDS:
        left, right = operands(kind, *shape)
        calls = {name: partial(run, left, right, None) for name, run in libraries(kind).items()}
        expected = calls[TORCH]()
        for call in calls.values():
            compare(call(), expected)
        times = interleave(calls, rounds)
        for name, taken in times.items():
            yield result(shape, kind, name, Ratio.of(times[TORCH], taken), taken.median_s, work)


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


def whole_step(
    shape: tuple[int, int, int] | str, x: Tensor, weight: Tensor, what: str, rounds: int
) -> dict[str, Any]:
    """A step forward and backward under the patch, beside torch's."""
    products_of_step = 3 if x.requires_grad else 2
    work = 2 * x.numel() * weight.size(0) * products_of_step
    with onehop.patch():
        ours, theirs = step(x, weight), step(x, weight, torch._C._nn.linear)
        for _ in range(3):  # measures the classes, and finds out about sparse features
            found = ours()
        for got, want in zip(found, theirs(), strict=True):
            compare(got, want)
        times = interleave({TORCH: theirs, "patched": ours}, rounds)
    return result(
        shape, what, "patched", Ratio.of(times[TORCH], times["patched"]), times["patched"].median_s, work
    )


def result(shape: Any, product: str, library: str, ratio: Ratio, seconds: float, work: int) -> dict[str, Any]:
    """A line of results."""
    return {
        "shape": shape if isinstance(shape, str) else "x".join(map(str, shape)),
        "product": product,
        "library": library,
        "milliseconds": seconds * 1e3,
        "gflops": work / seconds * 1e-9,
        "ratio": ratio.median,
        "lower_quartile": ratio.lower_quartile,
        "upper_quartile": ratio.upper_quartile,
    }


def cases(options: Any) -> Iterator[dict[str, Any]]:
    """Measures every case, one after the other."""
    for text in command.names(options.shapes):
        rows, inputs, outputs = (int(part) for part in text.split("x"))
        yield from each_library((rows, inputs, outputs), options.rounds)
        x, weight = (
            torch.randn(rows, inputs, requires_grad=True),
            torch.randn(outputs, inputs, requires_grad=True),
        )
        yield whole_step((rows, inputs, outputs), x, weight, "three products", options.rounds)
    folder = os.environ.get("ONEHOP_DATA")
    if folder:
        features = datasets.from_file(Path(folder) / "cora.npz").x
        for outputs in SPARSE_OUTPUTS:
            weight = torch.randn(outputs, features.size(1), requires_grad=True)
            yield whole_step(f"Cora to {outputs}", features, weight, "sparse features", options.rounds)


def main() -> None:
    """Prints a line a measurement, and the choices."""
    parser = command.parser(__doc__, rounds=9, threads=True)
    parser.add_argument("--shapes", default=SHAPES, help=f"shapes ({SHAPES})")
    options = command.read(parser)
    print(machine_line())
    found = []
    for case in cases(options):
        found.append(case)
        print(
            f"{case['shape']:>16} {case['product']:24} {case['library']:16} {case['milliseconds']:9.3f} ms "
            f"{case['gflops']:7.0f} GFLOP/s {case['ratio']:6.2f}x ({case['lower_quartile']:.2f} to "
            f"{case['upper_quartile']:.2f})",
            flush=True,
        )
    for chosen in products.known():
        print(f"{chosen.case}: {chosen.library}")
    command.write(options, "bench_products", {"cases": found})


if __name__ == "__main__":
    main()
