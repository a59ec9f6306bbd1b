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


def results(function: Callable[[Tensor], Tensor], x: Tensor, *more: Tensor) -> list[Tensor]:
    """The output and the gradients to operands."""
    out = function(x)
    weights = torch.linspace(-1, 1, out.numel()).view(out.shape)
    return [out, *torch.autograd.grad((out * weights).sum(), [x, *more])]


def assert_same(ours: list[Tensor], theirs: list[Tensor]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


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
    def call(x: Tensor) -> Tensor:
        return CALLS[name](x, index)

    expected = results(call, x)
    with onehop.patch():
        assert_same(results(call, x), expected)
        kept = entries()
        assert_same(results(call, x), expected)
        assert entries() == kept > 0
        assert onehop.cache_info().bytes > 0


@pytest.mark.parametrize("name", CALLS)
def test_rows_of_an_index_in_another_order(name, x, index):
    index = index.flip(0)
    expected = results(lambda x: CALLS[name](x, index), x)
    with onehop.patch(indexing=False), counted() as calls:
        assert_same(results(lambda x: CALLS[name](x, index), x), expected)
        # A softmax gives each row its share, in the order of the index, and so does its module.
        assert calls["softmax", True] == 0
        # PyG's own softmax runs our scatter, unless it is of one column.
        assert (onehop.cache_info().bytes == 0) == (name == "softmax of numbers")


def test_values_that_are_not_finite(x, index):
    x = x.detach().clone()
    x[3], x[20, 0], x[40:, 1] = float("nan"), float("inf"), -float("inf")
    for name in CALLS:
        expected = CALLS[name](x, index)
        with onehop.patch():
            torch.testing.assert_close(CALLS[name](x, index), expected, equal_nan=True, msg=name)


@pytest.mark.parametrize("write", ["in place", "data", "out of order"])
def test_an_index_that_changes(write, x, index):
    with onehop.patch():
        utils.scatter(x, index)
        if write == "in place":
            index[:30] = 1
        elif write == "data":
            index.data[:30] = 1
        else:
            index[5] = 9
        ours = results(lambda x: utils.scatter(x, index, 0, GROUPS), x)
    assert_same(ours, results(lambda x: utils.scatter(x, index, 0, GROUPS), x))


def test_an_index_that_is_put_in_order(x, index):
    shuffled = index.flip(0)
    with onehop.patch(indexing=False), counted() as calls:
        utils.softmax(x, shuffled)
        assert calls["softmax", True] == 0
        shuffled.copy_(index)
        utils.softmax(x, shuffled)
        assert calls["softmax", True] == 1


def test_another_dtype_another_dimension_and_other_reductions_are_left_to_pyg(x, index):
    calls = [
        lambda: utils.scatter(x.bfloat16(), index),
        lambda: utils.scatter(x.t(), index, 1),
        lambda: utils.scatter(x, index, reduce="mul"),
        lambda: utils.softmax(x.t(), index, dim=1),
        lambda: utils.softmax(x.t(), ptr=torch.tensor([0, 2, WIDTH]), dim=0).t(),
        lambda: torch.func.vmap(lambda x: utils.scatter(x, index))(x.detach().expand(2, -1, -1)),
    ]
    for call in calls:
        expected = call()
        with onehop.patch(indexing=False):
            assert torch.equal(call(), expected)
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
    with onehop.patch():
        with torch.inference_mode():
            out = utils.scatter(x, index)
        assert_same(results(lambda x: utils.scatter(x, index), x)[:1], [out])
        with torch.inference_mode():
            utils.scatter(x, index + 0)


@pytest.mark.parametrize("wrong", ["range", "negative", "size", "reduce", "unhashable", "dimensions"])
def test_errors_are_those_of_pyg(wrong, x, index):
    options: dict[str, Any] = {"dim_size": GROUPS}
    if wrong == "range":
        options["dim_size"] = 3
    elif wrong == "negative":
        index[0] = -1
    elif wrong == "size":
        index = torch.cat([index, index[-1:]])
    elif wrong == "reduce":
        options["reduce"] = "median"
    elif wrong == "unhashable":
        options["reduce"] = ["sum"]
    else:
        index = index.view(2, -1)
    with pytest.raises((IndexError, RuntimeError, ValueError)) as theirs:
        utils.scatter(x, index, **options)
    with onehop.patch(), pytest.raises(type(theirs.value)) as ours:
        utils.scatter(x, index, **options)
    assert str(ours.value) == str(theirs.value)


@pytest.fixture
def matrix(at, values) -> Tensor:
    return torch.sparse_coo_tensor(at, values, (20, 20), check_invariants=True).coalesce().to_sparse_csr()


@pytest.mark.filterwarnings("ignore:Converting sparse tensor:UserWarning", "ignore:Sparse CS:UserWarning")
@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_csc, torch.sparse_coo])
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_products_with_a_matrix(reduce, layout, matrix):
    matrix = matrix.to_sparse(layout=layout)
    x = torch.randn(20, WIDTH, requires_grad=True)
    expected = results(lambda x: utils.spmm(matrix, x, reduce), x)
    with onehop.patch():
        assert_same(results(lambda x: utils.spmm(matrix, x, reduce), x), expected)
        assert entries() >= 1


@pytest.mark.filterwarnings("ignore:Sparse CS:UserWarning")
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_gradients_to_the_values_of_a_matrix(reduce, matrix, values):
    values, x = values.clone().requires_grad_(), torch.randn(20, WIDTH, requires_grad=True)

    def call(x: Tensor) -> Tensor:
        parts = (matrix.crow_indices(), matrix.col_indices(), values, (20, 20))
        return utils.spmm(torch.sparse_csr_tensor(*parts, check_invariants=True), x, reduce)

    expected = results(call, x, values)
    with onehop.patch():
        assert_same(results(call, x, values), expected)
        assert entries() >= 1


@pytest.mark.filterwarnings("ignore:Sparse CS:UserWarning")
def test_values_that_change_count(matrix):
    x = torch.randn(20, WIDTH, requires_grad=True)
    with onehop.patch():
        utils.spmm(matrix, x)
        matrix.values().mul_(3)
        ours = utils.spmm(matrix, x)
    torch.testing.assert_close(ours, utils.spmm(matrix, x))


@pytest.mark.parametrize("wrong", ["shape", "reduce", "dense"])
def test_errors_of_products_are_those_of_pyg(wrong, matrix):
    x = torch.randn(19 if wrong == "shape" else 20, WIDTH)
    operand = matrix.to_dense() if wrong == "dense" else matrix
    reduce = "mul" if wrong == "reduce" else "sum"
    with pytest.raises((RuntimeError, ValueError)) as theirs:
        utils.spmm(operand, x, reduce)
    with onehop.patch(), pytest.raises(type(theirs.value)) as ours:
        utils.spmm(operand, x, reduce)
    assert str(ours.value) == str(theirs.value)


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
    with onehop.patch():
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

    expected = results(run, x)
    with onehop.patch():
        assert_same(results(run, x), expected)


@pytest.mark.parametrize("shape", [(ROWS, WIDTH), (ROWS, 2, WIDTH)], ids=str)
def test_a_result_is_no_view(shape, index):
    with onehop.patch():
        assert not utils.scatter(torch.randn(shape), index)._is_view()
