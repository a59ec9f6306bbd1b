"""PyG's functions that models call themselves, with and without the patch.

    python -m benchmarks.layers.bench_direct [--rows 8000,200000] [--width 64] [--rounds 9] [--threads N]
                                             [--json FILE]

Read-outs and softmax run over a sorted index, the same in every call ("known") and new in every call
("fresh"), forward and backward; ``spmm`` over one CSR matrix of 10 entries a row. Negative sampling draws as
many pairs as there are edges, one for each row. The two ways take turns, after their results were compared;
a ratio is PyG's time over the patched one's, with its quartiles over the rounds.
"""

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch_geometric import nn, utils

from benchmarks import columns
from benchmarks.harness import Benchmark, Option, Options, Row
from onehop.bench.patched import beside_pyg

HEADS, ROWS_A_GROUP, ENTRIES_A_ROW = 4, 50, 10
TOLERANCE = 1e-4


def calls(rows: int, width: int) -> dict[str, Callable[[], list[Tensor]]]:
    """Forward and backward passes, by name; each returns its output and gradient."""
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

    def over_index(function: Any, operand: Tensor, fresh: bool) -> list[Tensor]:
        given = index.clone() if fresh else index
        return passed(lambda x: function(x, given), operand)

    over = {
        "add": (partial(nn.global_add_pool, size=groups), x),
        "mean": (partial(nn.global_mean_pool, size=groups), x),
        "max": (partial(nn.global_max_pool, size=groups), x),
        "softmax": (partial(utils.softmax, num_nodes=groups), scores),
    }
    made = {
        f"{name} ({kind})": partial(over_index, *call, kind == "fresh")
        for kind in ("known", "fresh")
        for name, call in over.items()
    }
    for reduce in ("sum", "mean", "max"):
        made[f"spmm {reduce}"] = partial(passed, lambda x, reduce=reduce: utils.spmm(matrix, x, reduce), x)
    edges = at[:, :rows]
    made["negative sampling"] = partial(drawn, lambda: [utils.negative_sampling(edges, rows)])
    made["structured"] = partial(drawn, lambda: list(utils.structured_negative_sampling(edges, rows)))
    return made


def drawn(draw: Callable[[], list[Tensor]]) -> list[Tensor]:
    """What a function draws, the same in every call."""
    random.seed(0)
    torch.manual_seed(0)
    return draw()


def rows(options: Options) -> Iterator[Row]:
    """Measures every function at every size."""
    for count in options.rows:
        for name, once in calls(count, options.width).items():
            yield {"rows": count, "name": name, **beside_pyg(once, options.rounds, TOLERANCE)}


BENCHMARK = Benchmark(
    __doc__,
    "bench direct",
    rows,
    columns.of(
        "rows; function | name; PyG, ms | pyg_s | ms; onehop, ms | onehop_s | ms; over PyG | ratio | gain;"
        "| wrong | wrong"
    ),
    {"rows": (8_000, 200_000), "width": Option(64, "of read-outs and products")},
    rounds=9,
)

if __name__ == "__main__":
    BENCHMARK.main()
