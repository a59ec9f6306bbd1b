"""torch's own gathers and scatters under the patch: torch's results, gradients, rules and errors."""

import copy
import pickle
import warnings

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import grad, jvp, vmap
from torch.utils.checkpoint import checkpoint

import onehop
from onehop import thresholds
from onehop.graph import build
from onehop.integrations.torch import indexing
from onehop.ops import masked
from tests.pairs import pairwise

ROWS, ENTRIES = 11, 60
GENERATOR = torch.Generator().manual_seed(0)
ANY = torch.randint(0, ROWS, (ENTRIES,), generator=GENERATOR)
# Rows 3 and 10 have no entry, so that scatters leave them alone.
ANY[ANY == 3] = 4
ANY[ANY == 10] = 9
SORTED = ANY.sort().values
EDGES = torch.stack([SORTED, ANY])


@pytest.fixture(autouse=True)
def _forgets():
    """The indices live as long as this module, and so would what is kept of them."""
    yield
    onehop.clear_cache()


def numbers(*shape: int, seed: int = 1) -> Tensor:
    """Whole numbers, so that extrema tie, also at 0."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-3, 3, shape, generator=generator).double()


@pytest.fixture
def served(monkeypatch):
    """Has an entry for each call that onehop runs."""
    found = []
    for name in ("gathered", "scattered"):
        real = getattr(indexing, name)
        monkeypatch.setattr(
            indexing, name, lambda *args, name=name, real=real, **kw: found.append(name) or real(*args, **kw)
        )
    real = masked.taken
    monkeypatch.setattr(masked, "taken", lambda *args: found.append("taken") or real(*args))
    return found


def entries(index: Tensor, like: Tensor, dim: int = 0) -> Tensor:
    """An index of rows along a dimension, expanded to an index of entries."""
    shape = list(like.shape)
    shape[dim] = -1
    return index.view(-1, *[1] * (like.dim() - dim - 1)).expand(shape)


def columns(index: Tensor, *shape: int) -> Tensor:
    return entries(index, torch.empty(0, *shape))


def behind(x: Tensor, dim: int, *key) -> Tensor:
    return x[(*[slice(None)] * dim, *key)]


GATHERS = {
    "x[i]": lambda x, i, dim: behind(x, dim, i) if dim else x[i],
    "x[i,]": lambda x, i, dim: behind(x, dim, i),
    "x[i, :]": lambda x, i, dim: behind(x, dim, i, *[slice(None)] * (x.dim() - dim - 1)),
    "x[i, ...]": lambda x, i, dim: behind(x, dim, i, ...),
    "x[..., i, :]": lambda x, i, dim: x[(..., i, *[slice(None)] * (x.dim() - dim - 1))],
    "x[a matrix]": lambda x, i, dim: behind(x, dim, i.contiguous().view(6, 10)),
    "x[two rows of edges]": lambda x, i, dim: behind(x, dim, EDGES),
    "method": lambda x, i, dim: x.index_select(dim, i),
    "from the end": lambda x, i, dim: x.index_select(dim - x.dim(), i),
    "by name": lambda x, i, dim: x.index_select(dim=dim, index=i),
    "function": lambda x, i, dim: torch.index_select(x, dim, i),
    "gather": lambda x, i, dim: x.gather(dim, entries(i, x, dim)),
    "gather function": lambda x, i, dim: torch.gather(x, dim, entries(i, x, dim)),
}
SCATTERS = {
    "index_add": lambda x, i, v, dim: x.index_add(dim, i, v),
    "index_add from the end": lambda x, i, v, dim: x.index_add(dim - x.dim(), i, v),
    "index_add function": lambda x, i, v, dim: torch.index_add(x, dim, i, v),
    "index_add by name": lambda x, i, v, dim: x.index_add(dim=dim, index=i, source=v),
    "index_add_": lambda x, i, v, dim: x.mul(1).index_add_(dim, i, v),
    "scatter_add": lambda x, i, v, dim: x.scatter_add(dim, entries(i, v, dim), v),
    "scatter_add function": lambda x, i, v, dim: torch.scatter_add(x, dim, entries(i, v, dim), v),
    "scatter_add_": lambda x, i, v, dim: x.mul(1).scatter_add_(dim, entries(i, v, dim), v),
    **{
        f"scatter_reduce{'_' * in_place} {reduce} {'with' if own else 'without'} its own": (
            lambda x, i, v, dim, reduce=reduce, own=own, in_place=in_place: getattr(
                x.mul(1), f"scatter_reduce{'_' * in_place}"
            )(dim, entries(i, v, dim), v, reduce=reduce, include_self=own)
        )
        for reduce in ("sum", "mean", "amax", "amin")
        for own in (True, False)
        for in_place in (True, False)
    },
}
INDICES = {
    "any order": ANY,
    "sorted": SORTED,
    "int32": ANY.int(),
    "a row of edges": EDGES[1],
    "strided": torch.stack([ANY, SORTED], 1)[:, 0],
}
# The dimension of the rows, and all others.
SHAPES = {
    "numbers": (0, ()),
    "matrix": (0, (4,)),
    "cube": (0, (2, 3)),
    "columns": (1, (4,)),
    "in the middle": (1, (2, 3)),
    "last": (2, (2, 3)),
}


def operand(shape: str, rows: int, seed: int = 1) -> Tensor:
    dim, others = SHAPES[shape]
    return numbers(*others[:dim], rows, *others[dim:], seed=seed)


def outcome(function, *operands: Tensor) -> list[Tensor]:
    """The result and all gradients of operands that need one, twice differentiated."""
    leaves = [each.detach().clone().requires_grad_(each.requires_grad) for each in operands]
    return outcome_of(function(*leaves), *leaves)


def outcome_of(out: Tensor, *leaves: Tensor) -> list[Tensor]:
    wanted = [each for each in leaves if each.requires_grad]
    if not wanted:
        return [out]
    first = torch.autograd.grad((out * out.detach().cos()).sum(), wanted, create_graph=True)
    return [out.detach(), *first]


def same(found: list[Tensor], expected: list[Tensor]) -> None:
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.stride() == theirs.stride()
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12, equal_nan=True)


@pairwise(name=list(GATHERS), index=list(INDICES), shape=list(SHAPES), needs=[True, False])
def test_gathers(name, index, shape, needs, served):
    i, x, dim = INDICES[index], operand(shape, ROWS).requires_grad_(needs), SHAPES[shape][0]
    if index == "int32" and "gather" in name:
        return
    expected = outcome(lambda x: GATHERS[name](x, i, dim), x)
    with onehop.patch(), thresholds.lifted():
        same(outcome(lambda x: GATHERS[name](x, i, dim), x), expected)
    assert served == ["gathered"]


ODD = torch.arange(ROWS) % 2 == 1
TRUE_ENTRIES = {
    "some": ODD,
    "all": ODD | True,
    "none": ODD & False,
    "strided": torch.stack([ODD, ~ODD], 1)[:, 0],
    "other bytes than 1": (ODD.to(torch.uint8) * 2).view(torch.bool),
}
MASKED = {
    "x[m]": lambda x, m, dim: behind(x, dim, m) if dim else x[m],
    "x[m, ...]": lambda x, m, dim: behind(x, dim, m, ...),
    "x[..., m, :]": lambda x, m, dim: x[(..., m, *[slice(None)] * (x.dim() - dim - 1))],
    "of all dimensions": lambda x, m, dim: x[entries(m, x, dim).expand(x.shape)],
    "of the last ones": lambda x, m, dim: (
        x[..., m] if dim == x.dim() - 1 else behind(x, dim, m[:, None].expand(x.shape[dim : dim + 2]))
    ),
    "of the last ones, behind an ellipsis": lambda x, m, dim: x[
        (..., m.view(-1, *[1] * (x.dim() - dim - 1)).expand(x.shape[dim:]))
    ],
}


@pairwise(name=list(MASKED), mask=list(TRUE_ENTRIES), shape=list(SHAPES), needs=[True, False])
def test_masks(name, mask, shape, needs, served):
    m, x, dim = TRUE_ENTRIES[mask], operand(shape, ROWS).requires_grad_(needs), SHAPES[shape][0]
    expected = outcome(lambda x: MASKED[name](x, m, dim), x)
    with onehop.patch(), thresholds.lifted():
        same(outcome(lambda x: MASKED[name](x, m, dim), x), expected)
    assert served == ["taken"]


@pytest.mark.parametrize("layout", ["turned", "expanded"])
def test_gradients_of_masked_rows_need_not_be_contiguous(layout, served):
    # Small, so that the C library writes to memory that a copy has left.
    x, mask = torch.randn(33, 4, requires_grad=True), torch.arange(33) % 3 == 1
    given = torch.randn(4, 11).t()
    grad = given if layout == "turned" else given[:, :1].expand(given.shape)
    (expected,) = torch.autograd.grad(x[mask], x, grad)
    with onehop.patch(), thresholds.lifted():
        (found,) = torch.autograd.grad(x[mask], x, grad)
    assert torch.equal(found, expected)
    assert served == ["taken"]


@pytest.mark.parametrize(
    "dtype",
    [torch.float16, torch.float32, torch.float64, torch.complex128, torch.int64, torch.uint8, torch.bool],
    ids=str,
)
@pytest.mark.parametrize("columns", [1, 3, 70])
@pytest.mark.parametrize("rows", [1, 1023, 1024, 1025, 5000])
def test_masks_of_many_rows(rows, columns, dtype, served):
    generator = torch.Generator().manual_seed(rows)
    x = torch.randn(2, rows, columns, generator=generator).mul(3).abs().to(dtype)
    x.requires_grad_(x.is_floating_point() or x.is_complex())
    mask = torch.rand(rows, generator=generator) < 0.4
    mask[: rows // 3] = False

    def run(x):
        out = x[:, mask]
        grads = torch.autograd.grad(out, x, out.detach().cos()) if x.requires_grad else ()
        return [out.detach(), *grads]

    expected = run(x)
    with onehop.patch(), thresholds.lifted():
        found = run(x)
    assert all(map(torch.equal, found, expected))
    assert served == ["taken"]


@pairwise(
    name=list(SCATTERS),
    index=list(INDICES),
    shape=list(SHAPES),
    needs=["none", "values", "both"],
    zero=[True, False],
)
def test_scatters(name, index, shape, needs, zero, served):
    i, values, dim = INDICES[index], operand(shape, ENTRIES), SHAPES[shape][0]
    x = operand(shape, ROWS, seed=2) * (0 if zero else 1)
    if index == "int32" and "scatter" in name:
        return
    x.requires_grad_(needs == "both")
    values.requires_grad_(needs != "none")
    expected = outcome(lambda x, v: SCATTERS[name](x, i, v, dim), x, values)
    with onehop.patch(), thresholds.lifted():
        same(outcome(lambda x, v: SCATTERS[name](x, i, v, dim), x, values), expected)
    left = " am" in name and (needs == "both" or (needs == "values" and not zero))
    assert served == ([] if left else ["scattered"])


LENGTHS = torch.bincount(SORTED, minlength=ROWS)
SEGMENTS = {
    "lengths": {"lengths": LENGTHS},
    "offsets": {"offsets": torch.nn.functional.pad(LENGTHS.cumsum(0), (1, 0))},
    "int32": {"lengths": LENGTHS.int()},
    "strided": {"lengths": torch.stack([LENGTHS, LENGTHS], 1)[:, 0], "unsafe": True},
}


@pairwise(
    reduce=["sum", "mean", "max", "min"],
    shape=["numbers", "matrix", "cube"],
    segments=list(SEGMENTS),
    needs=[True, False],
)
def test_segments(reduce, shape, segments, needs, served):
    values, given = operand(shape, ENTRIES).requires_grad_(needs), SEGMENTS[segments]
    values.data[7] = torch.nan

    def run(v):
        out = torch.segment_reduce(v, reduce, **given)
        return outcome_of(out.nan_to_num(7, 8, 9), v)

    expected = run(values)
    with onehop.patch(), thresholds.lifted():
        same(run(values), expected)
    # torch divides a gradient among several that are largest only where it is positive.
    assert served == ([] if needs and reduce in ("max", "min") else ["scattered"])


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "amin"])
def test_numbers_that_are_none(reduce, own):
    values, x, i = numbers(ENTRIES, 2), numbers(ROWS, 2), columns(ANY, 2)
    values[7, 0] = x[2, 1] = torch.nan
    values[9, 1] = torch.inf
    expected = x.scatter_reduce(0, i, values, reduce, include_self=own)
    with onehop.patch(), thresholds.lifted():
        same([x.scatter_reduce(0, i, values, reduce, include_self=own)], [expected])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", [each for each in SCATTERS if "own" not in each or " with its" in each])
def test_16_bits_are_rounded_once(name, dtype, served):
    generator = torch.Generator().manual_seed(3)
    x, values = (torch.randn(rows, 4, generator=generator).to(dtype) for rows in (ROWS, ENTRIES))
    expected = SCATTERS[name](x.double(), ANY, values.double(), 0).to(dtype)
    with onehop.patch(), thresholds.lifted():
        found = SCATTERS[name](x, ANY, values, 0)
    # Adding up in float32 may cross a bound between two roundings, which is rare.
    assert (found != expected).sum() <= 1
    assert found.dtype is dtype
    assert served == ["scattered"]


# What is torch's

X, V = numbers(ROWS, 4), numbers(ENTRIES, 4)


class Sub(Tensor):
    """A class of a user's."""


LEFT = {
    "a list of numbers that are tensors": lambda: torch.tensor([X[0, 0], X[1, 1]]),
    "an integer": lambda: X[3],
    "a slice": lambda: X[2:5],
    "a mask and a number": lambda: X[X[:, 0] > 0, 0],
    "two masks": lambda: X[X[:, 0] > 0, X[0] > 0],
    "a mask that is a number": lambda: X[torch.tensor(True)],
    "a mask of what is turned": lambda: numbers(4, ROWS).t()[ODD],
    "a list": lambda: X[[1, 2, 2]],
    "None": lambda: X[None],
    "two indices": lambda: X[ANY[:4], ANY[:4] % 4],
    "an index and a number": lambda: X[ANY, 0],
    "an index and a slice": lambda: X[ANY, 1:],
    "an index twice": lambda: X[ANY % 4, ANY % 4],
    "behind a part": lambda: X[1:, ANY % 4],
    "behind a new dimension": lambda: X[None, ANY],
    "before a new dimension": lambda: X[ANY, None],
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
    "a subclass": lambda: X.as_subclass(Sub)[ANY].as_subclass(Tensor),
    "conjugated": lambda: X.to(torch.complex64).conj()[ANY].resolve_conj(),
    "segments with an initial value": lambda: torch.segment_reduce(V, "sum", lengths=LENGTHS, initial=2),
    "segments of some entries": lambda: torch.segment_reduce(V, "max", offsets=torch.tensor([0, 3, 9])),
    "segments from later on": lambda: torch.segment_reduce(V, "max", offsets=torch.tensor([2, 30, ENTRIES])),
    "segments of columns": lambda: torch.segment_reduce(
        V, "sum", lengths=torch.tensor([[1, 3]]).repeat(ENTRIES, 1), axis=1
    ),
    "products of segments": lambda: torch.segment_reduce(V, "prod", lengths=LENGTHS),
    "meta": lambda: torch.zeros(X.to("meta")[ANY.to("meta")].shape),
    "sparse": lambda: X.to_sparse().index_select(0, ANY).to_dense(),
    "out": lambda: torch.index_select(X, 0, ANY, out=torch.empty(ENTRIES, 4, dtype=X.dtype)),
}


@pytest.mark.parametrize("name", LEFT)
def test_other_indexing_is_torchs(name, served):
    expected = LEFT[name]()
    with onehop.patch(), thresholds.lifted(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = LEFT[name]()
    assert found.dtype is expected.dtype
    assert found.stride() == expected.stride()
    assert torch.equal(found, expected)
    assert not served


def leaf() -> Tensor:
    return numbers(ROWS, 4).requires_grad_()


ERRORS = {
    "too large": lambda: X[ANY + ROWS],
    "a mask that is too long": lambda: X[torch.ones(ROWS + 1, dtype=torch.bool)],
    "a mask that is too short": lambda: X[:, torch.ones(3, dtype=torch.bool)],
    "a mask and too many dimensions": lambda: X[X > 0, :],
    "too small": lambda: X[ANY - 2 * ROWS],
    "too large, of columns": lambda: X[:, ANY],
    "no such dimension": lambda: X.index_select(2, ANY),
    "a dimension of a number": lambda: torch.tensor(1.0).index_select(0, ANY[:1] * 0 + 1),
    "two ellipses too many": lambda: X[..., ..., ANY, ANY, ANY],
    "index_select, negative": lambda: X.index_select(0, ANY - 1 - ROWS),
    "scatter_add, too large": lambda: X.scatter_add(0, columns(ANY + ROWS, 4), V),
    "floats": lambda: X[ANY.double()],
    "index_select, floats": lambda: X.index_select(0, ANY.double()),
    "too many": lambda: X[ANY, :, :],
    "rows that are too many": lambda: X.index_add(0, ANY[:5], V),
    "another dtype": lambda: X.index_add(0, ANY, V.float()),
    "a mask that is written to": lambda: _mask_written_to(),
    "a leaf": lambda: leaf().index_add_(0, ANY, V),
    "a view of a leaf": lambda: leaf()[:].scatter_add_(0, columns(ANY, 4), V),
    "a leaf that is reduced into": lambda: leaf().scatter_reduce_(0, columns(ANY, 4), V, "mean"),
    "itself": lambda: _overlapping(),
    "an expanded target": lambda: torch.zeros(1, 4).double().expand(ROWS, 4).index_add_(0, ANY, V),
    "segments that are too long": lambda: torch.segment_reduce(V, "sum", lengths=LENGTHS + 1),
    "segments of negative lengths": lambda: torch.segment_reduce(V, "sum", lengths=LENGTHS - 4),
    "segments without lengths": lambda: torch.segment_reduce(V, "sum"),
    "no index": lambda: X.index_select(0),
    "a wrong name": lambda: X.index_select(0, ANY, columns=3),
    "another reduction": lambda: X.scatter_reduce(0, columns(ANY, 4), V, "median"),
}


def _mask_written_to() -> None:
    mask = ODD.clone()
    out = leaf()[mask]
    mask[0] = True
    out.sum().backward()


def _overlapping() -> Tensor:
    x = numbers(ROWS, 4)
    return x.index_add_(0, torch.arange(ROWS), x)


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_torchs(name, served):
    with pytest.raises(Exception) as expected:  # noqa: PT011
        ERRORS[name]()
    with onehop.patch(), thresholds.lifted(), pytest.raises(type(expected.value)) as found:
        ERRORS[name]()
    assert str(found.value) == str(expected.value)


# Contexts


def step(x: Tensor, v: Tensor) -> Tensor:
    out = torch.zeros(ROWS, 4, dtype=x.dtype).scatter_add(0, columns(ANY, 4), x[ANY] * v)
    return out.scatter_reduce(0, columns(SORTED, 4), v, "mean")[ODD].index_select(0, ANY // 3)


CONTEXTS = {
    "vmap": lambda: vmap(step)(torch.stack([X, X + 1]), torch.stack([V, V - 1])),
    "grad": lambda: grad(lambda x: step(x, V).square().sum())(X),
    "jvp": lambda: jvp(lambda x: step(x, V), (X,), (X + 1,))[1],
    "inference": lambda: _in_inference(),
    "no_grad": lambda: _without_grad(),
    "autocast": lambda: _in_autocast(),
    "checkpoint": lambda: _checkpointed(),
    "anomaly": lambda: _in_anomaly(),
    "a batch of gradients": lambda: _batched_gradients(),
    "jacobian": lambda: torch.autograd.functional.jacobian(lambda x: step(x, V).sum(0), X),
    "forward mode": lambda: _in_forward_mode(),
    "traced": lambda: torch.jit.trace(step, (X, V))(X + 1, V),
    "scripted": lambda: torch.jit.script(_scripted)(X, ANY),
    "exported": lambda: _exported(),
    "a function mode": lambda: _in_function_mode(),
    "compiled": lambda: torch.compile(step, fullgraph=True, backend="aot_eager")(X, V),
    "a copied function": lambda: copy.deepcopy(torch.index_add)(X, 0, ANY, V),
    "a pickled function": lambda: pickle.loads(pickle.dumps(torch.index_add))(X, 0, ANY, V),
}


def _in_inference() -> Tensor:
    with torch.inference_mode():
        return step(X, V).clone()


def _without_grad() -> Tensor:
    with torch.no_grad():
        return step(leaf(), V)


def _in_autocast() -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return step(X.float(), V.float())


def _checkpointed() -> Tensor:
    x = leaf()
    checkpoint(step, x, V, use_reentrant=False).square().sum().backward()
    return x.grad


def _in_anomaly() -> Tensor:
    with torch.autograd.detect_anomaly(check_nan=False):
        x = leaf()
        return torch.autograd.grad(step(x, V).square().sum(), x)[0]


def _batched_gradients() -> Tensor:
    x = leaf()
    out = step(x, V)
    several = torch.stack([V, V + 1, V.cos()])
    return torch.autograd.grad(out, x, several, is_grads_batched=True)[0]


def _in_forward_mode() -> Tensor:
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(step(forward_ad.make_dual(X, X + 2), V)).tangent


def _scripted(x: Tensor, i: Tensor) -> Tensor:
    return torch.index_add(x, 0, i, x[i]).index_select(0, i)


class _Module(torch.nn.Module):
    def forward(self, x: Tensor, v: Tensor) -> Tensor:
        return step(x, v)


def _exported() -> Tensor:
    return torch.export.export(_Module(), (X, V)).module()(X, V)


class _Counting(torch.overrides.TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.count += 1
        return function(*args, **(kwargs or {}))


def _in_function_mode() -> Tensor:
    with _Counting() as mode:
        out = step(X, V)
    return torch.cat([out.view(-1), torch.tensor([float(mode.count)], dtype=out.dtype)])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CONTEXTS)
def test_contexts(name):
    expected = CONTEXTS[name]()
    torch._dynamo.reset()
    with onehop.patch(), thresholds.lifted():
        found = CONTEXTS[name]()
    torch._dynamo.reset()
    assert found.dtype is expected.dtype
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_a_trace_sees_nothing_of_ours():
    with onehop.patch(), thresholds.lifted(), warnings.catch_warnings():
        warnings.simplefilter("error", torch.jit.TracerWarning)
        traced = torch.jit.trace(lambda x: x[ANY].index_select(0, SORTED), X, check_trace=False)
    names = [node.kind() for node in traced.graph.nodes()]
    assert {"aten::index", "aten::index_select"} < set(names)
    assert not {"aten::numel", "aten::size"} & set(names)


# The patch


def test_the_patch_is_reversible():
    names = ("__getitem__", "gather", "index_select", "scatter_add_")
    known = {name: getattr(Tensor, name) for name in names}
    functions = (torch.index_select, torch.gather)
    assert not known.keys() & vars(Tensor).keys()
    with onehop.patch():
        assert {f"torch.Tensor.{name}" for name in known} <= {
            name.replace("torch._tensor.", "torch.") for name in onehop.patched()
        }
        assert Tensor.index_select is not known["index_select"]
        with onehop.patch(indexing=False):
            assert Tensor.index_select is known["index_select"]
    assert not known.keys() & vars(Tensor).keys()
    assert (torch.index_select, torch.gather) == functions


def test_the_environment_leaves_indexing_alone(monkeypatch, served):
    monkeypatch.setenv("ONEHOP_INDEXING", "0")
    with onehop.patch(), thresholds.lifted():
        assert torch.equal(X.index_select(0, ANY), X[ANY])
    assert not served


def test_tensors_are_no_sequences():
    with onehop.patch(), thresholds.lifted():
        assert torch.tensor([X[0, 0], X[1, 1]]).tolist() == [float(X[0, 0]), float(X[1, 1])]
        assert not vars(Tensor).get("__getitem__")


def test_classes_made_under_the_patch_are_torchs(served):
    with onehop.patch(), thresholds.lifted():
        made = type("Made", (Tensor,), {})
        inside = X.as_subclass(made)[ANY]
    assert torch.equal(inside, X.as_subclass(made)[ANY])
    assert type(inside) is made
    assert not served


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

    monkeypatch.setattr(indexing, "gathered", fails)
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
        assert served == ["gathered"]


def test_a_write_to_the_index_is_noticed():
    x, i = X.clone(), ANY.clone()
    with onehop.patch(), thresholds.lifted():
        x[i], x[:, i % 4]
        i[5] = 7
        assert torch.equal(x[i], x.index_select(0, i.clone()))
