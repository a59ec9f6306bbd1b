"""PyG's functions that models call themselves, with and without the patch: read-outs, softmax and spmm.

    python benchmarks/layers/bench_direct.py [--rows 8000,200000] [--width 64] [--rounds 9]
                                             [--threads N] [--json FILE]

Read-outs and softmax run over a sorted index, the same in every call ("known") and new in every call
("fresh"), forward and backward; ``spmm`` over one CSR matrix of 10 entries a row. The two ways take turns,
after their results were compared; a ratio is PyG's time over the patched one's, with its quartiles over the
rounds.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch_geometric.utils
from torch import Tensor
from torch_geometric import nn

from onehop.bench import command
from onehop.bench.patched import beside_pyg
from onehop.bench.stamp import machine_line

WIDTH, HEADS, ROWS_A_GROUP, ENTRIES_A_ROW = 64, 4, 50, 10
TOLERANCE = 1e-4


def calls(rows: int, width: int) -> dict[str, Callable[[], list[Tensor]]]:
    """Forward and backward passes, by name; each returns its output and gradient."""
    utils = torch_geometric.utils
    generator = torch.Generator().manual_seed(0)
    groups = max(rows // ROWS_A_GROUP, 1)
    index = torch.randint(groups, (rows,), generator=generator).sort().values
    x = torch.randn(rows, width, generator=generator, requires_grad=True)
    scores = torch.randn(rows, HEADS, generator=generator, requires_grad=True)
    at = torch.randint(rows, (2, ENTRIES_A_ROW * rows), generator=generator)
    ones = torch.ones(at.size(1))
    matrix = torch.sparse_coo_tensor(at, ones, (rows, rows), check_invariants=True).to_sparse_csr()

    def passed(function: Callable[[Tensor], Tensor], operand: Tensor) -> list[Tensor]:
        out = function(operand)
        return [out.detach(), *torch.autograd.grad(out.square().sum(), operand)]

    made: dict[str, Callable[[], list[Tensor]]] = {}
    for fresh in (False, True):
        over: dict[str, tuple[Any, Tensor]] = {
            "add": (lambda x, i: nn.global_add_pool(x, i, groups), x),
            "mean": (lambda x, i: nn.global_mean_pool(x, i, groups), x),
            "max": (lambda x, i: nn.global_max_pool(x, i, groups), x),
            "softmax": (lambda x, i: utils.softmax(x, i, num_nodes=groups), scores),
        }
        for name, (function, operand) in over.items():

            def once(
                function: Any = function, operand: Tensor = operand, fresh: bool = fresh
            ) -> list[Tensor]:
                given = index.clone() if fresh else index
                return passed(lambda x: function(x, given), operand)

            made[f"{name} ({'fresh' if fresh else 'known'})"] = once
    for reduce in ("sum", "mean", "max"):
        made[f"spmm {reduce}"] = partial(passed, partial(_product, matrix, reduce), x)
    return made


def _product(matrix: Tensor, reduce: str, x: Tensor) -> Tensor:
    out: Tensor = torch_geometric.utils.spmm(matrix, x, reduce)
    return out


def main() -> None:
    """Prints a line a function and size."""
    parser = command.parser(__doc__, rounds=9, threads=True)
    parser.add_argument("--rows", type=command.integers, default="8000,200000")
    parser.add_argument("--width", type=int, default=WIDTH, help=f"of read-outs and products ({WIDTH})")
    options = command.read(parser)
    print(machine_line())
    found = []
    for rows in options.rows:
        for name, once in calls(rows, options.width).items():
            found.append(row := {"rows": rows, "name": name, **beside_pyg(once, options.rounds, TOLERANCE)})
            ratio, wrong = row["ratio"], " WRONG" if row["wrong"] else ""
            print(
                f"{rows:8,} rows, {name:15} PyG {row['pyg_s'] * 1e3:7.2f} ms, "
                f"onehop {row['onehop_s'] * 1e3:7.2f} ms, {ratio['median']:.2f}x "
                f"({ratio['lower_quartile']:.2f} to {ratio['upper_quartile']:.2f}){wrong}",
                flush=True,
            )
            command.write(options, "bench direct", {"results": found})


if __name__ == "__main__":
    main()
