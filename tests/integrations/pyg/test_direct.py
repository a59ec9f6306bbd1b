"""``scatter``, ``softmax`` and ``spmm`` as models call them themselves, against PyG."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.utils as utils
from torch import Tensor
from torch_geometric.nn import aggr, global_add_pool, global_max_pool, global_mean_pool

import onehop
from onehop import thresholds
from onehop.integrations.rows import counted
from tests.integrations.same import BITS, learned, same, same_after, same_error

ROWS, GROUPS, WIDTH = 60, 12, 5
REDUCTIONS = ["sum", "add", "mean", "max", "min"]

pytestmark = pytest.mark.usefixtures("in_doubles")


@pytest.fixture(autouse=True)
def _at_every_size(bounds) -> None:
    bounds(direct_numbers=0, index_numbers=0)


@pytest.fixture
def index() -> Tensor:
    """[60], ascending, without groups 0, 4 and the last one."""
    found = torch.randint(1, GROUPS - 1, (ROWS,), generator=torch.Generator().manual_seed(2)).sort().values
    return found + (found == 4)


@pytest.fixture
def x() -> Tensor:
    """[60, 5], with extrema that tie."""
    return torch.randint(-2, 3, (ROWS, WIDTH)).double().requires_grad_()


def entries() -> int:
    return onehop.cache_info().entries


CALLS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    **{
        name: lambda x, index, name=name: utils.scatter(x, index, reduce=name)
        for name in (*REDUCTIONS, "amax")
    },
    "with size": lambda x, index: utils.scatter(x, index, 0, GROUPS),
    "last dimension but one": lambda x, index: utils.scatter(x, index, -2, GROUPS, "mean"),
    "heads": lambda x, index: utils.scatter(
        x.view(ROWS, WIDTH, 1).expand(-1, -1, 3), index, 0, GROUPS, "max"
    ),
    "softmax": lambda x, index: utils.softmax(x, index),
    "softmax of numbers": lambda x, index: utils.softmax(x[:, 0], index, num_nodes=GROUPS),
    "add pool": lambda x, index: global_add_pool(x, index),
    "mean pool": lambda x, index: global_mean_pool(x, index, GROUPS),
    "max pool": lambda x, index: global_max_pool(x, index),
    "mean module": lambda x, index: aggr.MeanAggregation()(x, index),
    "softmax module": lambda x, index: aggr.SoftmaxAggregation(t=0.5)(x, index, dim_size=GROUPS),
}


@pytest.mark.parametrize("name", CALLS)
def test_rows_of_a_sorted_index(name, x, index):
    same(lambda: learned(CALLS[name](x, index), x), rtol=1e-12, times=1)
    kept = entries()
    with onehop.patch():
        CALLS[name](x, index)
    assert entries() == kept > 0
    assert onehop.cache_info().bytes > 0


@pytest.mark.parametrize("name", CALLS)
def test_rows_of_an_index_in_another_order(name, x, index):
    index = index.flip(0)
    with counted() as calls:
        same(lambda: learned(CALLS[name](x, index), x), rtol=1e-12, indexing=False)
    # A softmax gives each row its share, in the order of the index, and so does its module.
    assert calls["softmax", True] == 0
    # PyG's own softmax runs our scatter, unless it is of one column.
    assert (onehop.cache_info().bytes == 0) == (name == "softmax of numbers")


@pytest.mark.parametrize("name", CALLS)
def test_values_that_are_not_finite(name, x, index):
    x = x.detach().clone()
    x[3], x[20, 0], x[40:, 1] = float("nan"), float("inf"), -float("inf")
    same(lambda: CALLS[name](x, index), rtol=1e-7)


CHANGES: dict[str, Callable[[Tensor], object]] = {
    "in place": lambda index: index[:30].fill_(1),
    "data": lambda index: index.data[:30].fill_(1),
    "out of order": lambda index: index[5].fill_(9),
}


@pytest.mark.parametrize("write", CHANGES)
def test_an_index_that_changes(write, x, index):
    same_after(lambda: learned(utils.scatter(x, index, 0, GROUPS), x), lambda: CHANGES[write](index))


def test_an_index_that_is_put_in_order(x, index):
    shuffled = index.flip(0)
    with onehop.patch(indexing=False), counted() as calls:
        utils.softmax(x, shuffled)
        assert calls["softmax", True] == 0
        shuffled.copy_(index)
        utils.softmax(x, shuffled)
        assert calls["softmax", True] == 1


LEFT: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "16 bits": lambda x, index: utils.scatter(x.bfloat16(), index),
    "another dimension": lambda x, index: utils.scatter(x.t(), index, 1),
    "products": lambda x, index: utils.scatter(x, index, reduce="mul"),
    "softmax of columns": lambda x, index: utils.softmax(x.t(), index, dim=1),
    "softmax between bounds": lambda x, index: utils.softmax(x.t(), ptr=torch.tensor([0, 2, WIDTH]), dim=0),
    "vmap": lambda x, index: torch.vmap(lambda x: utils.scatter(x, index))(x.detach().expand(2, -1, -1)),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left_to_pyg(name, x, index):
    same(lambda: LEFT[name](x, index), indexing=False, **BITS)
    assert entries() == 0


@pytest.mark.parametrize("options", [{"only": ["GCNConv"]}, {"backend": "reference"}])
def test_a_patch_of_something_else_leaves_them_to_pyg(options, x, index):
    with onehop.patch(indexing=False, **options):
        utils.scatter(x, index)
        utils.softmax(x, index)
        assert entries() == 0


def test_few_numbers_are_left_to_pyg(x, index, monkeypatch):
    monkeypatch.setattr(thresholds, "now", thresholds.ORDINARY)
    with onehop.patch():
        utils.scatter(x, index)
        utils.softmax(x, index)
        assert entries() == 0


def test_a_long_index_that_falls_between_samples():
    index, x = torch.arange(5000) // 7, torch.randn(5000, 1)
    index[2002:2004] = torch.tensor([2, 1])
    expected = utils.softmax(x, index)
    with onehop.patch(indexing=False), counted() as calls:
        assert torch.equal(utils.softmax(x, index), expected)
        assert calls["softmax", True] == 0


def test_inference_mode(x, index):
    same(torch.inference_mode()(lambda: [utils.scatter(x, index), utils.scatter(x, index + 0)]))
    same(lambda: learned(utils.scatter(x, index), x))


@pytest.mark.parametrize("wrong", ["range", "negative", "size", "reduce", "unhashable", "dimensions"])
def test_errors_are_those_of_pyg(wrong, x, index):
    options: dict[str, Any] = {"dim_size": 3 if wrong == "range" else GROUPS}
    if wrong == "negative":
        index[0] = -1
    elif wrong == "size":
        index = torch.cat([index, index[-1:]])
    elif wrong in ("reduce", "unhashable"):
        options["reduce"] = "median" if wrong == "reduce" else ["sum"]
    elif wrong == "dimensions":
        index = index.view(2, -1)
    same_error(lambda: utils.scatter(x, index, **options))


@pytest.fixture
def matrix(at, values) -> Tensor:
    return torch.sparse_coo_tensor(at, values, (20, 20), check_invariants=True).coalesce().to_sparse_csr()


@pytest.mark.filterwarnings("ignore:Converting sparse tensor:UserWarning", "ignore:Sparse CS:UserWarning")
@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_csc, torch.sparse_coo])
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_products_with_a_matrix(reduce, layout, matrix):
    matrix, x = matrix.to_sparse(layout=layout), torch.randn(20, WIDTH, requires_grad=True)
    same(lambda: learned(utils.spmm(matrix, x, reduce), x), rtol=1e-12)
    assert entries() >= 1


@pytest.mark.filterwarnings("ignore:Sparse CS:UserWarning")
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_gradients_to_the_values_of_a_matrix(reduce, matrix, values):
    values, x = values.clone().requires_grad_(), torch.randn(20, WIDTH, requires_grad=True)

    def run() -> list[Any]:
        parts = (matrix.crow_indices(), matrix.col_indices(), values, (20, 20))
        product = utils.spmm(torch.sparse_csr_tensor(*parts, check_invariants=True), x, reduce)
        return learned(product, x, values)

    same(run, rtol=1e-12)
    assert entries() >= 1


@pytest.mark.filterwarnings("ignore:Sparse CS:UserWarning")
def test_values_that_change_count(matrix):
    x = torch.randn(20, WIDTH, requires_grad=True)
    same_after(lambda: utils.spmm(matrix, x), lambda: matrix.values().mul_(3))


@pytest.mark.parametrize("wrong", ["shape", "reduce", "dense"])
def test_errors_of_products_are_those_of_pyg(wrong, matrix):
    x = torch.randn(19 if wrong == "shape" else 20, WIDTH)
    operand = matrix.to_dense() if wrong == "dense" else matrix
    same_error(lambda: utils.spmm(operand, x, "mul" if wrong == "reduce" else "sum"))


def test_they_are_put_back():
    before = (utils.scatter, utils.softmax, utils.spmm)
    with onehop.patch():
        assert utils.scatter is not before[0]
        assert "torch_geometric.utils.scatter" in onehop.patched()
    assert (utils.scatter, utils.softmax, utils.spmm) == before


def test_compiled_and_scripted_programs_have_pygs(x, index):
    def model(x: Tensor, index: Tensor) -> Tensor:
        return global_add_pool(utils.softmax(x, index, num_nodes=GROUPS), index, GROUPS)

    expected = model(x, index)
    with onehop.patch(indexing=False):
        compiled = torch.compile(model, backend="eager", fullgraph=True)
        torch.testing.assert_close(compiled(x, index), expected)
        assert entries() == 0
        torch.testing.assert_close(model(x, index), expected)
        assert entries() > 0


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
def test_a_scripted_read_out_has_pygs(x, index):
    with onehop.patch(indexing=False):
        scripted = torch.jit.script(global_mean_pool)
        out = scripted(x, index, GROUPS)
        assert entries() == 0
    torch.testing.assert_close(out, global_mean_pool(x, index, GROUPS))


@pytest.mark.parametrize("call", ["sum", "mean", "max", "softmax"])
def test_an_index_whose_entries_lie_apart(call, x, index):
    apart = torch.stack([index, index.flip(0)], 1).t()[0]
    assert not apart.is_contiguous()

    def run(x: Tensor) -> Tensor:
        return utils.softmax(x, apart) if call == "softmax" else utils.scatter(x, apart, reduce=call)

    same(lambda: learned(run(x), x), rtol=1e-12)


@pytest.mark.parametrize("shape", [(ROWS, WIDTH), (ROWS, 2, WIDTH)], ids=str)
def test_a_result_is_no_view(shape, index):
    with onehop.patch():
        assert not utils.scatter(torch.randn(shape), index)._is_view()
