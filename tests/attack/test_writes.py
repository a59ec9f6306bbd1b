"""Writes to an index, a mask, edges or rows, by every way there is, between calls and before backward.

A program is drawn by a seed: a function, a target, a way to write to it and a moment. It runs without the
patch, under the patch, and under the patch with thresholds lifted, on equal operands: results, gradients, the
class of an error, and the version counters afterwards are the same.

Left out, because onehop differs there:

- untracked writes to the edges, the index or the bounds of PyG's layers, of ``segment`` and ``softmax``
  before the backward pass: gradients are those of the edges as they were, where torch differentiates by
  what the writes leave; and tensors that are swapped, where torch raises because it has saved them;
- untracked writes to the rows of a max or min before the backward pass: torch looks again which of them tie;
- untracked writes of few entries to a large ``edge_index`` between calls of a layer, which
  docs/explanation/trust.md names under "Untracked writes": edges here are small.
"""

import random
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch_geometric.nn as nn
from torch import Tensor
from torch.nn.functional import leaky_relu
from torch.utils.checkpoint import checkpoint
from torch_geometric import utils

import onehop
from onehop import thresholds

ROWS, WIDTH = 50, 4
# Of int64 more than 256 KiB, of which a fingerprint reads samples alone.
ENTRIES = 40_000
PROGRAMS = 200


class Function(NamedTuple):
    """A function of rows, of another tensor, and of a module.

    Attributes:
        run: The function.
        rows: How many rows it takes.
        other: Makes the index, the mask, the bounds or the edges.
        rereads: Whether its backward pass reads the other tensor again.
    """

    run: Callable[[Tensor, Tensor], Tensor]
    rows: int
    other: Callable[[torch.Generator], Tensor]
    rereads: bool = True


def index(generator: torch.Generator) -> Tensor:
    return torch.randint(ROWS, (ENTRIES,), generator=generator)


def ascending(generator: torch.Generator) -> Tensor:
    return index(generator).sort().values


def mask(generator: torch.Generator) -> Tensor:
    return torch.rand(ENTRIES, generator=generator) < 0.3


def edges(generator: torch.Generator) -> Tensor:
    return torch.randint(ROWS, (2, 300), generator=generator)


def bounds(generator: torch.Generator) -> Tensor:
    inner = torch.randint(ENTRIES + 1, (ROWS - 1,), generator=generator).sort().values
    return torch.cat([torch.tensor([0]), inner, torch.tensor([ENTRIES])])


def wide(i: Tensor) -> Tensor:
    return i.unsqueeze(1).expand(-1, WIDTH)


def zeros() -> Tensor:
    return torch.zeros(ROWS, WIDTH)


def layer(make: Callable[[], torch.nn.Module]) -> Callable[[Tensor, Tensor], Tensor]:
    torch.manual_seed(0)
    return make().eval()


FUNCTIONS: dict[str, Function] = {
    "x[i]": Function(lambda x, i: x[i], ROWS, index),
    "x[i, :]": Function(lambda x, i: x[i, :], ROWS, index),
    "x[:, i]": Function(lambda x, i: x.t().contiguous()[:, i], ROWS, index),
    "index_select": Function(lambda x, i: x.index_select(0, i), ROWS, index),
    "gather": Function(lambda x, i: x.gather(0, wide(i)), ROWS, index),
    "x[m]": Function(lambda x, m: x[m], ENTRIES, mask),
    "index_add": Function(lambda x, i: zeros().index_add(0, i, x), ENTRIES, index),
    "index_add_": Function(lambda x, i: zeros().index_add_(0, i, x), ENTRIES, index),
    "scatter_add": Function(lambda x, i: zeros().scatter_add(0, wide(i), x), ENTRIES, index),
    **{
        f"scatter_reduce {how}, {own}": Function(
            lambda x, i, how=how, own=own: zeros().scatter_reduce(0, wide(i), x, how, include_self=own),
            ENTRIES,
            index,
        )
        for how in ("sum", "mean", "amax", "amin")
        for own in (True, False)
    },
    **{
        f"utils.scatter {how}": Function(
            lambda x, i, how=how: utils.scatter(x, i, dim_size=ROWS, reduce=how), ENTRIES, index
        )
        for how in ("sum", "mean", "max")
    },
    "utils.scatter of as many rows as named": Function(lambda x, i: utils.scatter(x, i), ENTRIES, index),
    "utils.segment": Function(lambda x, p: utils.segment(x, p), ENTRIES, bounds, False),
    "utils.softmax": Function(lambda x, i: utils.softmax(x, i, num_nodes=ROWS), ENTRIES, ascending, False),
    "segment_reduce": Function(lambda x, p: torch.segment_reduce(x, "sum", offsets=p), ENTRIES, bounds),
    "GCNConv": Function(layer(lambda: nn.GCNConv(WIDTH, WIDTH)), ROWS, edges, False),
    "SAGEConv": Function(layer(lambda: nn.SAGEConv(WIDTH, WIDTH)), ROWS, edges, False),
    "GATConv": Function(layer(lambda: nn.GATConv(WIDTH, WIDTH)), ROWS, edges, False),
    "GCNConv of edges as they are": Function(
        layer(lambda: nn.GCNConv(WIDTH, WIDTH, normalize=False)), ROWS, edges, False
    ),
    "GATv2Conv without loops": Function(
        layer(lambda: nn.GATv2Conv(WIDTH, WIDTH, add_self_loops=False)), ROWS, edges, False
    ),
}


# Ways to write: each changes some entries of a tensor to those of another of its shape


def some(target: Tensor) -> slice:
    """A place that samples of a large tensor do not contain, and where a bound may not fall."""
    size = target.size(-1)
    return slice(size // 3 + 1, size // 3 + 4)


def in_place(target: Tensor, new: Tensor) -> None:
    with torch.no_grad():
        target[..., some(target)] = new[..., some(target)]


def through_data(target: Tensor, new: Tensor) -> None:
    target.data[..., some(target)] = new[..., some(target)]


def through_numpy(target: Tensor, new: Tensor) -> None:
    target.detach().numpy()[..., some(target)] = new[..., some(target)].numpy()


def through_dlpack(target: Tensor, new: Tensor) -> None:
    torch.from_dlpack(target.detach())[..., some(target)] = new[..., some(target)]


def through_storage(target: Tensor, new: Tensor) -> None:
    same = torch.empty(0, dtype=target.dtype).set_(target.untyped_storage(), 0, target.shape, target.stride())
    same[..., some(target)] = new[..., some(target)]


def all_of_it(target: Tensor, new: Tensor) -> None:
    np.copyto(target.detach().numpy(), new.numpy())


def by_set(target: Tensor, new: Tensor) -> None:
    with torch.no_grad():
        target.set_(new.clone())


def by_resize(target: Tensor, new: Tensor) -> None:
    with torch.no_grad():
        target.resize_(0).resize_(new.shape).copy_(new)


def by_swap(target: Tensor, new: Tensor) -> None:
    torch.utils.swap_tensors(target, new.clone().requires_grad_(target.requires_grad))


def by_another_thread(target: Tensor, new: Tensor) -> None:
    thread = threading.Thread(target=through_numpy, args=(target, new))
    thread.start()
    thread.join()


WAYS = [
    in_place,
    through_data,
    through_numpy,
    through_dlpack,
    through_storage,
    all_of_it,
    by_set,
    by_resize,
    by_swap,
    by_another_thread,
]
NOTED = (in_place, by_set, by_resize)
TRACKED = (*NOTED, by_swap)
EXTREMA = [name for name in FUNCTIONS if "amax" in name or "amin" in name or name == "utils.scatter max"]


class Program(NamedTuple):
    """What is drawn.

    Attributes:
        name: The function.
        way: How is written.
        of_rows: Whether to the rows, else to the other tensor.
        moment: "between calls", or "before backward".
        needs: Whether a gradient is wanted.
        wrong: Whether an entry that is written to an index is out of range.
        negative: Whether one counts from the end.
    """

    name: str
    way: Callable[[Tensor, Tensor], None]
    of_rows: bool
    moment: str
    needs: bool
    wrong: bool
    negative: bool


def drawn(seed: int) -> Program:
    """The program of a seed."""
    draw = random.Random(seed)
    name = draw.choice(list(FUNCTIONS))
    moment = draw.choice(["between calls", "before backward"])
    of_rows = draw.random() < 0.25
    rereads = of_rows or FUNCTIONS[name].rereads
    of_index = FUNCTIONS[name].other is index and not of_rows
    wrong = of_index and draw.random() < 0.15
    negative = of_index and not wrong and draw.random() < 0.15
    needs = moment == "before backward" or draw.random() < 0.5
    ways: Sequence[Callable[[Tensor, Tensor], None]] = WAYS
    if moment == "before backward" and (not rereads or (of_rows and name in EXTREMA)):
        ways = TRACKED if rereads else NOTED
    way = draw.choice(ways)
    return Program(name, way, of_rows, moment, needs, wrong, negative)


def outcome(program: Program, seed: int) -> list[Any]:
    """What the program gives: results and gradients or the class of an error, and versions."""
    function, generator = FUNCTIONS[program.name], torch.Generator().manual_seed(seed)
    # Whole numbers, so that extrema tie and sums are exact.
    rows = torch.randint(-9, 9, (2, function.rows, WIDTH), generator=generator).float()
    x, new_x = rows[0].clone().requires_grad_(program.needs), rows[1].clone()
    other, new = function.other(generator), function.other(generator)
    if program.wrong or program.negative:
        new[some(new)] = ROWS if program.wrong else -1
    target, to = (x, new_x) if program.of_rows else (other, new)
    found: list[Any] = []

    def guarded(step: Callable[[], list[Any]]) -> bool:
        try:
            found.extend(step())
        except (RuntimeError, IndexError, ValueError) as error:
            # torch's error for an index that is out of range is an IndexError in some functions, and a
            # RuntimeError in others.
            found.append(IndexError if isinstance(error, IndexError) else RuntimeError)
            return False
        return True

    def gradient(out: Tensor) -> list[Any]:
        return list(torch.autograd.grad((out * out.detach().cos().round(decimals=1)).sum(), x))

    def call() -> list[Any]:
        out = function.run(x, other)
        return [out.detach().clone(), *(gradient(out) if program.needs else [])]

    if program.moment == "between calls":
        guarded(call)
        guarded(lambda: [program.way(target, to)][:0])
        guarded(call)
        # Once more, of what is kept of the second call.
        guarded(call)
    else:
        out = function.run(x, other)
        found.append(out.detach().clone())
        guarded(lambda: [program.way(target, to)][:0])
        guarded(lambda: gradient(out))
    return [*found, x._version, other._version]


@pytest.mark.parametrize("part", range(8))
def test_writes_have_the_effect_that_they_have_in_torch(part: int) -> None:
    for seed in range(part, PROGRAMS, 8):
        program = drawn(seed)
        expected = outcome(program, seed)
        for lifted in (False, True):
            onehop.clear_cache()
            with onehop.patch(), thresholds.lifted() if lifted else nullcontext():
                actual = outcome(program, seed)
            told = f"seed {seed}, thresholds {'lifted' if lifted else 'ordinary'}: {program}"
            assert len(actual) == len(expected), told
            for mine, theirs in zip(actual, expected, strict=True):
                if isinstance(theirs, Tensor):
                    assert isinstance(mine, Tensor), told
                    torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-3, equal_nan=True, msg=told)
                else:
                    assert mine == theirs, f"{told}: {mine} instead of {theirs}"


LAYERS: dict[str, Callable[[], torch.nn.Module]] = {
    "SAGEConv": lambda: nn.SAGEConv(WIDTH, 2),
    "SAGEConv, wider": lambda: nn.SAGEConv(WIDTH, 9),
    "SAGEConv of a max": lambda: nn.SAGEConv(WIDTH, 2, aggr="max"),
    "SAGEConv of a median": lambda: nn.SAGEConv(WIDTH, 2, aggr="median"),
    "GCNConv": lambda: nn.GCNConv(WIDTH, 2),
    "GCNConv of edges as they are": lambda: nn.GCNConv(WIDTH, 2, normalize=False),
    "TAGConv": lambda: nn.TAGConv(WIDTH, 2, K=2, normalize=False),
    "GATConv": lambda: nn.GATConv(WIDTH, 2),
    "GATConv without loops": lambda: nn.GATConv(WIDTH, 2, add_self_loops=False),
    "TransformerConv": lambda: nn.TransformerConv(WIDTH, 2),
    "EdgeConv": lambda: nn.EdgeConv(torch.nn.Linear(2 * WIDTH, 2)),
    "PNAConv": lambda: nn.PNAConv(WIDTH, 2, ["mean", "max"], ["identity"], torch.ones(9, dtype=torch.int64)),
}


@pytest.mark.parametrize("moment", ["written to", "in inference mode", "checkpointed", "neither"])
@pytest.mark.parametrize("name", LAYERS)
def test_errors_of_edges_are_pygs(name: str, moment: str) -> None:
    module = LAYERS[name]()

    def run() -> Any:
        x = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(0)).requires_grad_()
        with torch.inference_mode(moment == "in inference mode"):
            given = edges(torch.Generator().manual_seed(1)).clone()
        try:
            if moment == "checkpointed":
                out = checkpoint(module, x, given, use_reentrant=False)
            else:
                out = module(x, given)
            if moment in ("written to", "checkpointed"):
                given.add_(1).remainder_(ROWS)
            out.sum().backward()
        except RuntimeError as error:
            return str(error)[:70]
        return None

    expected = run()
    with onehop.patch(), thresholds.lifted():
        assert run() == expected
    assert moment != "neither" or expected is None


class Own(nn.MessagePassing):
    """A layer of a user's with attention, which returns what ``propagate`` returns."""

    def __init__(self, kind: str) -> None:
        super().__init__(aggr="max" if kind == "a max" else "sum")
        self.kind = kind
        self.att = torch.nn.Parameter(torch.linspace(-1, 1, WIDTH))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x)

    def message(self, x_i: Tensor, x_j: Tensor, index: Tensor, ptr: Any, size_i: int) -> Tensor:
        if self.kind == "a max":
            return x_j * self.att
        if self.kind == "a dot product":
            score = (x_i * x_j).sum(-1, keepdim=True)
        else:
            score = (leaky_relu(x_i + x_j, 0.2) * self.att).sum(-1, keepdim=True)
        return utils.softmax(score, index, ptr, size_i) * x_j


WRITTEN: dict[str, tuple[torch.nn.Module, int]] = {
    "GATv2's score": (Own("GATv2's score"), 2),
    "a dot product": (Own("a dot product"), 2),
    "a max": (Own("a max"), 2),
    "SimpleConv of a max": (nn.SimpleConv(aggr="max"), 2),
    "SimpleConv of a max, several signals": (nn.SimpleConv(aggr="max"), 3),
    "GCNConv": (nn.GCNConv(WIDTH, WIDTH, bias=False), 2),
    "GATv2Conv": (nn.GATv2Conv(WIDTH, WIDTH, bias=False), 2),
}


@pytest.mark.parametrize("lifted", [False, True])
@pytest.mark.parametrize("name", [*WRITTEN, "utils.scatter max", "utils.scatter max of cubes"])
def test_results_may_be_written_to_where_they_may_in_pyg(name: str, lifted: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    layer, dims = WRITTEN.get(name, (None, 3 if "cubes" in name else 2))
    shape = (3, ROWS, WIDTH) if layer is not None and dims != 2 else (ROWS, WIDTH, 2)[:dims]
    rows, index = torch.randn(shape, generator=generator), edges(generator)

    def run() -> list[Any]:
        x = rows.clone().requires_grad_()
        if layer is None:
            out = utils.scatter(x[index[0]], index[1], dim_size=ROWS, reduce="max")
        else:
            out = layer(x, index)
        out.mul_(2)
        needed = [x, *(() if layer is None else layer.parameters())]
        try:
            return list(torch.autograd.grad(out.square().sum(), needed, allow_unused=True))
        except RuntimeError as error:
            return [str(error)[:70]]

    expected = run()
    with onehop.patch(), thresholds.lifted() if lifted else nullcontext():
        actual = run()
    assert len(actual) == len(expected)
    for mine, theirs in zip(actual, expected, strict=True):
        if isinstance(theirs, Tensor):
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)
        else:
            assert mine == theirs
