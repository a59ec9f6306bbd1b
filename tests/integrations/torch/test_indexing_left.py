"""torch's own gathers and scatters under the patch: what stays torch's, its errors, and contexts."""

import math
import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

import onehop
from onehop import thresholds
from onehop.graph import build
from onehop.integrations.torch import indexing
from tests.integrations.same import outcome
from tests.integrations.torch.indices import (
    ANY,
    EDGES,
    ENTRIES,
    LENGTHS,
    ODD,
    ROWS,
    SORTED,
    _forgets as _forgets,
    columns,
    entries,
    numbers,
    served as served,
)

X, V = numbers(ROWS, 4), numbers(ENTRIES, 4)


class Sub(Tensor):
    """A class of a user's."""


LEFT = {
    "a list of numbers that are tensors": lambda: torch.tensor([X[0, 0], X[1, 1]]),
    "an integer": lambda: X[3],
    "a slice": lambda: X[2:5],
    "a mask and a number": lambda: X[X[:, 0] > 0, 0],
    "two masks": lambda: X[X[:, 0] > 0, X[0] > 0],
    "a mask of what is turned": lambda: numbers(4, ROWS).t()[ODD],
    "None": lambda: X[None],
    "two indices": lambda: X[ANY[:4], ANY[:4] % 4],
    "an index and a number": lambda: X[ANY, 0],
    "an index and a slice": lambda: X[ANY, 1:],
    "an index twice": lambda: X[ANY % 4, ANY % 4],
    "a matrix turned": lambda: X[EDGES.t()],
    "negative": lambda: X[ANY - ROWS],
    "negative, of columns": lambda: X[:, ANY % 4 - 4],
    "out of one block": lambda: X.view(1, ROWS, 4)[:, ANY - ROWS],
    "a number as a tensor": lambda: X[torch.tensor(2)],
    "integers": lambda: X.long()[ANY],
    "complex": lambda: X.to(torch.complex64)[ANY],
    "turned": lambda: numbers(4, ROWS).t()[ANY],
    "empty": lambda: X[ANY[:0]],
    "no rows": lambda: X[:0].index_select(0, ANY[:0]),
    "an index of entries": lambda: X.gather(0, torch.stack([ANY, SORTED, ANY, ANY], 1)),
    "fewer columns": lambda: X.gather(0, columns(ANY, 3)),
    "an index of other entries": lambda: X.scatter_add(0, torch.stack([ANY, SORTED, ANY, ANY], 1), V),
    "a factor": lambda: X.index_add(0, ANY, V, alpha=2),
    "products": lambda: X.scatter_reduce(0, columns(ANY, 4), V, "prod"),
    "along columns": lambda: X.scatter_add(1, columns(ANY[:ROWS] % 4, 4), V[:ROWS]),
    "along fewer rows": lambda: X.scatter_add(1, (ANY % 4).expand(9, -1), numbers(9, ENTRIES)),
    "fewer entries": lambda: X.scatter_add(0, columns(ANY, 4)[:9], V),
    "conjugated": lambda: X.to(torch.complex64).conj()[ANY].resolve_conj(),
    "segments with an initial value": lambda: torch.segment_reduce(V, "sum", lengths=LENGTHS, initial=2),
    "segments of some entries": lambda: torch.segment_reduce(V, "max", offsets=torch.tensor([0, 3, 9])),
    "segments from later on": lambda: torch.segment_reduce(V, "max", offsets=torch.tensor([2, 30, ENTRIES])),
    "segments of columns": lambda: torch.segment_reduce(
        V, "sum", lengths=torch.tensor([[1, 3]]).repeat(ENTRIES, 1), axis=1
    ),
    "products of segments": lambda: torch.segment_reduce(V, "prod", lengths=LENGTHS),
    "meta": lambda: torch.zeros(X.to("meta")[ANY.to("meta")].shape),
    "out": lambda: torch.index_select(X, 0, ANY, out=torch.empty(ENTRIES, 4, dtype=X.dtype)),
}


# torch makes of them what it makes of x[index].
ALIKE = {
    "a mask that is a number": lambda: X[torch.tensor(True)],
    "a list": lambda: X[[1, 2, 2]],
    "behind a part": lambda: X[1:, ANY % 4],
    "behind a new dimension": lambda: X[None, ANY],
    "before a new dimension": lambda: X[ANY, None],
    "a subclass": lambda: X.as_subclass(Sub)[ANY].as_subclass(Tensor),
    "sparse": lambda: X.to_sparse().index_select(0, ANY).to_dense(),
}


def unpatched_and_patched(function: Callable[[], Tensor]) -> list[Tensor]:
    expected = function()
    with onehop.patch(), thresholds.lifted(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [expected, function()]


@pytest.mark.parametrize("name", LEFT)
def test_other_indexing_is_torchs(name, served):
    expected, found = unpatched_and_patched(LEFT[name])
    assert found.dtype is expected.dtype
    assert found.stride() == expected.stride()
    assert torch.equal(found, expected)
    assert not served


@pytest.mark.parametrize("name", ALIKE)
def test_what_torch_makes_an_index_of(name, served):
    expected, found = unpatched_and_patched(ALIKE[name])
    assert found.stride() == expected.stride()
    assert torch.equal(found, expected)
    assert "gathered" in served


def leaf() -> Tensor:
    return numbers(ROWS, 4).requires_grad_()


ERRORS = {
    "a mask and too many dimensions": lambda: X[X > 0, :],
    "a dimension of a number": lambda: torch.tensor(1.0).index_select(0, ANY[:1] * 0 + 1),
    "rows that are too many": lambda: X.index_add(0, ANY[:5], V),
    "another dtype": lambda: X.index_add(0, ANY, V.float()),
    "a mask that is written to": lambda: _mask_written_to(),
    "segments without lengths": lambda: torch.segment_reduce(V, "sum"),
    "another reduction": lambda: X.scatter_reduce(0, columns(ANY, 4), V, "median"),
}


def _mask_written_to() -> None:
    mask = ODD.clone()
    out = leaf()[mask]
    mask[0] = True
    out.sum().backward()


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_torchs(name):
    with pytest.raises(Exception) as expected:  # noqa: PT011
        ERRORS[name]()
    with onehop.patch(), thresholds.lifted():
        assert outcome(ERRORS[name]) == (type(expected.value), str(expected.value))


def step(x: Tensor, v: Tensor) -> Tensor:
    out = torch.zeros(ROWS, 4, dtype=x.dtype).scatter_add(0, columns(ANY, 4), x[ANY] * v)
    return out.scatter_reduce(0, columns(SORTED, 4), v, "mean")[ODD].index_select(0, ANY // 3)


def test_a_trace_sees_nothing_of_ours():
    with onehop.patch(), thresholds.lifted(), warnings.catch_warnings():
        warnings.simplefilter("error", torch.jit.TracerWarning)
        traced = torch.jit.trace(lambda x: x[ANY].index_select(0, SORTED), X, check_trace=False)
    names = [node.kind() for node in traced.graph.nodes()]
    assert {"aten::index", "aten::index_select"} < set(names)
    assert not {"aten::numel", "aten::size"} & set(names)


# The patch


def test_the_patch_is_reversible(served):
    functions = (Tensor.__getitem__, Tensor.index_select, torch.index_select, torch.gather)
    with onehop.patch(), thresholds.lifted():
        assert {"torch.ops.aten.index", "torch.ops.aten.index_select"} < set(onehop.patched())
        with onehop.patch(indexing=False):
            assert "torch.ops.aten.index" not in onehop.patched()
            X[ANY]
        assert not served
        X[ANY]
        assert "gathered" in served
        assert (Tensor.__getitem__, Tensor.index_select, torch.index_select, torch.gather) == functions
    assert "torch.ops.aten.index" not in onehop.patched()


def test_the_environment_leaves_indexing_alone(monkeypatch, served):
    monkeypatch.setenv("ONEHOP_INDEXING", "0")
    with onehop.patch(), thresholds.lifted():
        assert torch.equal(X.index_select(0, ANY), X[ANY])
    assert not served


def test_tensors_are_no_sequences():
    with onehop.patch(), thresholds.lifted():
        assert torch.tensor([X[0, 0], X[1, 1]]).tolist() == [float(X[0, 0]), float(X[1, 1])]
        assert not vars(Tensor).get("__getitem__")


def test_classes_made_under_the_patch(served):
    with onehop.patch(), thresholds.lifted():
        made = type("Made", (Tensor,), {})
        inside = X.as_subclass(made)[ANY]
    assert torch.equal(inside, X.as_subclass(made)[ANY])
    assert type(inside) is made
    assert "gathered" in served


def test_a_getitem_that_others_set_stays(served):
    def theirs(self, key):
        return "theirs"

    with onehop.patch(), thresholds.lifted():
        Tensor.__getitem__ = theirs
        try:
            assert X[ANY] == "theirs"
            with onehop.patch(indexing=False):
                assert X[ANY] == "theirs"
        finally:
            del Tensor.__getitem__
    assert torch.equal(X[ANY], X.index_select(0, ANY))


def test_an_error_in_between_reaches_the_user(monkeypatch):
    def fails(*args):
        raise RuntimeError("here")

    monkeypatch.setattr(indexing, "rows_at", fails)
    with onehop.patch(), thresholds.lifted(), pytest.raises(RuntimeError, match="here"):
        X[ANY]


def test_rows_beyond_31_bits_are_torchs(monkeypatch, served):
    monkeypatch.setattr(build, "MOST_NODES", 40)
    with onehop.patch(), thresholds.lifted():
        assert torch.equal(X[ANY], X.index_select(0, ANY))
        assert torch.equal(X[:, SORTED[:20] % 4], X.t()[SORTED[:20] % 4].t())
    assert not served


def test_small_sizes_are_torchs(monkeypatch, served):
    monkeypatch.setattr(thresholds, "now", thresholds.ORDINARY)
    with onehop.patch():
        step(X, V)
        assert not served
        wide, many = torch.randn(ROWS, 2000), ANY.repeat(20)
        wide[ANY]
        X.float()[many]
        assert not served
        wide[many]
        assert "gathered" in served


NARROW = {
    "sum": (lambda v: torch.zeros(ROWS, *v.shape[1:]).index_add(0, ANY, v), 8),
    "sum of entries": (lambda v: torch.zeros(ROWS, *v.shape[1:]).scatter_add(0, entries(ANY, v), v), 8),
    "sum, reduced": (
        lambda v: torch.zeros(ROWS, *v.shape[1:]).scatter_reduce(
            0, entries(ANY, v), v, "sum", include_self=False
        ),
        8,
    ),
    "mean": (lambda v: torch.zeros(ROWS, *v.shape[1:]).scatter_reduce(0, entries(ANY, v), v, "mean"), 2),
    "extremum": (lambda v: torch.zeros(ROWS, *v.shape[1:]).scatter_reduce(0, entries(ANY, v), v, "amax"), 2),
    "subscript": (lambda v: torch.zeros(ROWS, *v.shape[1:]).index_put((ANY,), v, accumulate=True), 2),
    "select": (lambda v: v.index_select(0, SORTED), 2),
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [(), (1,), (2, 2), (8,)], ids=str)
@pytest.mark.parametrize("name", NARROW)
def test_rows_of_few_numbers_are_torchs_where_threads_are_few(name, shape, threads, served):
    function, least = NARROW[name]
    values = numbers(ENTRIES, *shape).float()
    torch.set_num_threads(threads)
    expected = function(values)
    with onehop.patch(), thresholds.lifted(), thresholds.changed(index_columns=8):
        torch.testing.assert_close(function(values), expected)
    assert bool(served) is (math.prod(shape) * threads >= least)


def test_a_write_to_the_index_is_noticed():
    x, i = X.clone(), ANY.clone()
    with onehop.patch(), thresholds.lifted():
        x[i], x[:, i % 4]
        i[5] = 7
        assert torch.equal(x[i], x.index_select(0, i.clone()))


LARGE = 40_000  # entries, of which a sample is no sufficient sign that all are the same


@pytest.mark.parametrize("needs", [True, False])
@pytest.mark.parametrize(
    "name", ["x[i]", "index_select", "gather", "index_add", "scatter_add", "scatter_reduce"]
)
def test_one_entry_of_a_large_index_that_is_written_to_through_numpy(name, needs):
    held = np.arange(LARGE) % ROWS
    i = torch.from_numpy(held)
    wide = i.unsqueeze(1).expand(-1, 3)
    function = {
        "x[i]": lambda x: x[i],
        "index_select": lambda x: x.index_select(0, i),
        "gather": lambda x: x.gather(0, wide),
        "index_add": lambda x: torch.zeros(ROWS, 3).index_add(0, i, x),
        "scatter_add": lambda x: torch.zeros(ROWS, 3).scatter_add(0, wide, x),
        "scatter_reduce": lambda x: torch.zeros(ROWS, 3).scatter_reduce(0, wide, x, "amax"),
    }[name]
    # Whole numbers, whose sums are exact.
    rows = ROWS if name in ("x[i]", "index_select", "gather") else LARGE
    x = torch.randint(-3, 3, (rows, 3)).float().requires_grad_(needs)

    def step():
        out = function(x)
        return out, *(torch.autograd.grad(out.sum(), x) if needs else ())

    with onehop.patch(), thresholds.lifted():
        step()
        held[12_345] = (held[12_345] + 1) % ROWS
        found = step()
    torch.testing.assert_close(found, step())
