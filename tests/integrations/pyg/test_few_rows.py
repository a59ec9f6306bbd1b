"""PyG's ``scatter`` and ``softmax`` of few rows, which are served without a graph, against PyG."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch_geometric.utils as utils
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

import onehop
from onehop import thresholds
from onehop.integrations.rows import counted
from onehop.ops.few import MOST_EDGES
from tests.integrations.same import SINGLE, learned, outcome, same, same_error

GROUPS, ROWS = 9, 40
REDUCTIONS = ["sum", "add", "mean", "max", "min", "amax", "amin"]
FUNCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    **{name: lambda x, index, name=name: utils.scatter(x, index, 0, GROUPS, name) for name in REDUCTIONS},
    "softmax": lambda x, index: utils.softmax(x, index, None, GROUPS),
}


@pytest.fixture(autouse=True)
def _ordinary(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thresholds as users have them: other tests have no few rows."""
    monkeypatch.setattr(thresholds, "now", thresholds.ORDINARY)


def some_index(rows: int = ROWS) -> Tensor:
    """[rows], without groups 4 and the last one."""
    index = torch.randint(GROUPS - 1, (rows,), generator=torch.Generator().manual_seed(rows))
    return index + (index == 4)


def some(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Numbers of which some are equal and some are 0."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(1)).round(decimals=1).to(dtype)


def served(run: Callable[[], Any]) -> bool:
    """Return whether a call of one of the functions is served. PyG's softmax calls its scatter."""
    with onehop.patch(indexing=False), counted() as calls:
        run()
    name = "softmax" if any(name == "softmax" for name, _ in calls) else "scatter"
    return bool(calls[name, True])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("shape", [(ROWS,), (1, 3), (ROWS, 1), (ROWS, 5), (ROWS, 2, 3), (ROWS, 0)], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    index, x = some_index(shape[0]), some(*shape, dtype=dtype).requires_grad_()
    tolerances = SINGLE if dtype is torch.float32 else {}
    same(lambda: learned(FUNCTIONS[name](x, index), x), **tolerances)
    same(lambda: FUNCTIONS[name](x.detach(), index), **tolerances)
    sums, matrix = name in ("sum", "add"), x.dim() == 2
    # Sums of few rows are PyG's.
    assert served(lambda: FUNCTIONS[name](x.detach(), index)) == (x.numel() > 0 and not sums)
    recorded = name == "softmax" or (matrix and not sums and name != "mean")
    assert served(lambda: FUNCTIONS[name](x, index)) == (x.numel() > 0 and recorded)


@pytest.mark.parametrize("name", ["max", "softmax"])
def test_gradients_of_gradients(name: str) -> None:
    index, x = some_index(), some(ROWS, 3).requires_grad_()

    def run() -> tuple[Tensor, ...]:
        (grad,) = torch.autograd.grad(FUNCTIONS[name](x, index).square().sum(), x, create_graph=True)
        return torch.autograd.grad(grad.square().sum(), x)

    same(run)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_numbers_that_are_not_finite(name: str) -> None:
    index, x = some_index(), some(ROWS, 3)
    x[3, 0], x[5, 1], x[7, 2], x[index == 2] = torch.nan, torch.inf, -torch.inf, -torch.inf
    same(lambda: FUNCTIONS[name](x, index))


@pytest.mark.parametrize("layout", ["rows that overlap", "turned", "every other row", "index of every other"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_layouts(name: str, layout: str) -> None:
    index, x = some_index(), some(ROWS, 4)
    if layout == "rows that overlap":
        x = some(1, 4).expand(ROWS, 4)
    elif layout == "turned":
        x = some(4, ROWS).t()
    elif layout == "every other row":
        x = some(2 * ROWS, 4)[::2]
    else:
        index = some_index(2 * ROWS)[::2]
    same(lambda: FUNCTIONS[name](x, index))
    is_served = layout == "index of every other" and name not in ("sum", "add")
    assert served(lambda: FUNCTIONS[name](x, index)) == is_served


LEFT: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "no number of rows": lambda x, index: utils.softmax(x, index),
    "bounds": lambda x, index: utils.softmax(x, ptr=torch.tensor([0, 4, ROWS])),
    "another dimension": lambda x, index: utils.softmax(x.t(), index, num_nodes=GROUPS, dim=1),
    "int32": lambda x, index: utils.softmax(x, index.int(), num_nodes=GROUPS),
    "16 bits": lambda x, index: utils.softmax(x.bfloat16(), index, num_nodes=GROUPS),
    "integers": lambda x, index: utils.scatter(x.long(), index, 0, GROUPS),
    "complex": lambda x, index: utils.scatter(x * 1j, index, 0, GROUPS),
    "a product": lambda x, index: utils.scatter(x, index, 0, GROUPS, "mul"),
    "a subclass": lambda x, index: utils.softmax(x.as_subclass(Mine), index, num_nodes=GROUPS),
    "vmap": lambda x, index: torch.vmap(lambda x: utils.softmax(x, index, num_nodes=GROUPS))(
        x.expand(2, -1, -1)
    ),
    "jvp": lambda x, index: torch.func.jvp(lambda x: utils.softmax(x, index, num_nodes=GROUPS), (x,), (x,)),
    "grad": lambda x, index: torch.func.grad(
        lambda x: utils.softmax(x, index, num_nodes=GROUPS).square().sum()
    )(x),
}


class Mine(Tensor):
    pass


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
@pytest.mark.parametrize("name", LEFT)
def test_what_is_left_to_pyg(name: str) -> None:
    index, x = some_index(), some(ROWS, 3)
    # Some torch releases have no scatter by int32.
    calls = same(lambda: LEFT[name](x, index), errors=True)
    assert not calls
    assert not served(lambda: outcome(lambda: LEFT[name](x, index)))


def test_contexts() -> None:
    index, x = some_index(), some(ROWS, 3)

    def dual() -> Tensor:
        with forward_ad.dual_level():
            out = utils.softmax(forward_ad.make_dual(x, x), index, None, GROUPS)
            return torch.stack(list(forward_ad.unpack_dual(out)))

    def under_autocast() -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return utils.softmax(x.float(), index, None, GROUPS)

    same(dual)
    same(under_autocast)
    assert not served(dual)
    assert not served(under_autocast)
    same(torch.inference_mode()(lambda: utils.softmax(x + 0, index + 0, None, GROUPS)))
    leaf = some(ROWS, 3).requires_grad_()
    softmax = partial(FUNCTIONS["softmax"], index=index)
    same(lambda: learned(checkpoint(softmax, leaf, use_reentrant=False), leaf))


@pytest.mark.parametrize("options", [{"only": ["GCNConv"]}, {"backend": "reference"}])
def test_a_patch_of_something_else(options: dict[str, Any]) -> None:
    index, x = some_index(), some(ROWS, 3)
    with onehop.patch(indexing=False, **options), counted() as calls:
        FUNCTIONS["softmax"](x, index)
    assert not calls["softmax", True]


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("number", [-1, GROUPS])
def test_numbers_of_groups_out_of_range(number: int, name: str) -> None:
    index, x = some_index(), some(ROWS, 3)
    index[5] = number
    same_error(lambda: FUNCTIONS[name](x, index))


def test_an_index_that_is_written_to_before_the_backward_pass() -> None:
    def run(name: str) -> None:
        index, x = some_index(), some(ROWS, 3).requires_grad_()
        out = FUNCTIONS[name](x, index)
        index.zero_()
        out.sum().backward()

    for name in ("max", "softmax"):
        with onehop.patch(), pytest.raises(RuntimeError, match="modified by an inplace operation"):
            run(name)


@pytest.mark.parametrize("name", ["mean", "max", "softmax"])
def test_a_result_that_is_written_to(name: str) -> None:
    index = some_index()

    def run(shape: tuple[int, ...], records: bool) -> Any:
        x = some(*shape).requires_grad_(records)
        out = FUNCTIONS[name](x, index).mul_(2)
        return learned(out, x) if records else out

    for shape in ((ROWS,), (ROWS, 3), (ROWS, 2, 3)):
        same(partial(run, shape, False))
        if name == "mean":
            same(partial(run, shape, True))
            continue
        # Gradients read the result.
        with onehop.patch(), pytest.raises(RuntimeError, match="modified by an inplace operation"):
            run(shape, True)


@pytest.mark.parametrize("rows", [MOST_EDGES - 1, MOST_EDGES, MOST_EDGES + 1])
def test_sizes_at_the_bound(rows: int) -> None:
    index, x = some_index(rows), some(rows, 2)
    same(lambda: FUNCTIONS["softmax"](x, index))
    assert served(lambda: FUNCTIONS["softmax"](x, index)) == (rows <= MOST_EDGES)
