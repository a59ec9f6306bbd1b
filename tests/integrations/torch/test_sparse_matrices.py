"""torch's sparse products under the patch: layouts, gradients, contexts, and matrices that torch refuses."""

import gc
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import onehop
from onehop import thresholds
from onehop.graph.identity import CACHE
from onehop.integrations import rows
from onehop.integrations.torch import matrix_edges
from onehop.kernels.cpu import aggregate
from tests.integrations.same import noted
from tests.integrations.torch.dispatched import both, patched, served, whole

pytestmark = pytest.mark.filterwarnings("ignore")

N, K, F = 13, 9, 5
ENTRIES = 40


def entries(seed: int = 3) -> Tensor:
    """[2, E] with repeated entries, in no order; the last rows and columns have none."""
    generator = torch.Generator().manual_seed(seed)
    rows, columns = (torch.randint(0, n - 2, (ENTRIES,), generator=generator) for n in (N, K))
    return torch.stack([rows, columns])


def unsorted(dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.sparse_coo_tensor(entries(), whole(ENTRIES).to(dtype), (N, K))


def ascending(dtype: torch.dtype = torch.float64) -> Tensor:
    at = entries()
    order = (at[0] * K + at[1]).argsort(stable=True)
    return torch.sparse_coo_tensor(at[:, order], whole(ENTRIES).to(dtype), (N, K))


Make = Callable[..., Tensor]
MATRICES: dict[str, Make] = {
    "COO": lambda dtype=torch.float64: unsorted(dtype).coalesce(),
    "COO not coalesced": unsorted,
    "COO of ascending rows": ascending,
    "COO transposed": lambda dtype=torch.float64: unsorted(dtype).t().coalesce().t(),
    "COO without entries": lambda dtype=torch.float64: torch.sparse_coo_tensor(size=(N, K), dtype=dtype),
    "COO of one entry": lambda dtype=torch.float64: torch.sparse_coo_tensor(
        [[2], [3]], [2.0], (N, K), dtype=dtype
    ),
    "CSR": lambda dtype=torch.float64: unsorted(dtype).to_sparse_csr(),
    "CSR of int32": lambda dtype=torch.float64: _narrow(unsorted(dtype).to_sparse_csr()),
    "CSR transposed": lambda dtype=torch.float64: unsorted(dtype).t().to_sparse_csr().t(),
    "CSC": lambda dtype=torch.float64: unsorted(dtype).to_sparse_csc(),
    "BSR": lambda dtype=torch.float64: unsorted(dtype).to_dense()[:12, :8].to_sparse_bsr((4, 4)),
}


def _narrow(matrix: Tensor) -> Tensor:
    rowptr, col = matrix.crow_indices().int(), matrix.col_indices().int()
    return torch.sparse_csr_tensor(rowptr, col, matrix.values(), matrix.shape)


# Of a matrix A [N, K], x [K, F], y [F, N] and added [N, F].
FUNCTIONS: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "sparse.mm": lambda a, x, y, added: torch.sparse.mm(a, x),
    "mm": lambda a, x, y, added: torch.mm(a, x),
    "spmm": lambda a, x, y, added: torch.spmm(a, x),
    "matmul": lambda a, x, y, added: torch.matmul(a, x),
    "@": lambda a, x, y, added: a @ x,
    "@ a vector": lambda a, x, y, added: a @ x[:, 0],
    "mv": lambda a, x, y, added: a.mv(x[:, 1]),
    "from the right": lambda a, x, y, added: y @ a,
    "sparse.mm from the right": lambda a, x, y, added: torch.sparse.mm(y, a),
    "transposed": lambda a, x, y, added: a.t() @ y.t(),
    "transposed from the right": lambda a, x, y, added: x.t() @ a.t(),
    "transposed twice": lambda a, x, y, added: a.t().t() @ x,
    "T": lambda a, x, y, added: torch.sparse.mm(a.T, y.t().contiguous()),
    "addmm": lambda a, x, y, added: torch.addmm(added, a, x),
    "addmm of a row": lambda a, x, y, added: torch.addmm(added[0], a, x),
    "addmm with factors": lambda a, x, y, added: torch.addmm(added, a, x, beta=2, alpha=0.5),
    "addmm without the first": lambda a, x, y, added: torch.addmm(added * torch.nan, a, x, beta=0),
    "sparse.addmm": lambda a, x, y, added: torch.sparse.addmm(added, a, x),
    "sparse.addmm with factors": lambda a, x, y, added: torch.sparse.addmm(added, a, x, beta=0.5, alpha=3),
    "sparse.addmm without the first": lambda a, x, y, added: torch.sparse.addmm(added, a, x, beta=0),
    "sspaddmm": lambda a, x, y, added: torch.sspaddmm(a, a, x[:, :1].expand(K, K)),
    "smm": lambda a, x, y, added: torch.smm(a, x),
    "mm with a sparse one": lambda a, x, y, added: torch.mm(a, a.t()),
    "addmm_": lambda a, x, y, added: added.clone().addmm_(a, x),
    "mm into out": lambda a, x, y, added: torch.mm(a, x, out=torch.empty(0, dtype=x.dtype)),
}
OPERANDS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x,
    "turned": lambda x: x.t().contiguous().t(),
    "every other column": lambda x: torch.stack([x, x], 2).flatten(1)[:, ::2],
    "expanded": lambda x: x[:1].expand_as(x),
    "of one column": lambda x: x[:, :1],
    "of no column": lambda x: x[:, :0],
}
each_matrix = pytest.mark.parametrize("form", MATRICES)
each_function = pytest.mark.parametrize("name", FUNCTIONS)
each_need = pytest.mark.parametrize("needs", ["", "x", "a", "a x y added"])


def told(matrix: Tensor | None) -> Any:
    """What can be seen of a tensor: of a sparse one its pattern, values and flag."""
    if matrix is None or matrix.layout is torch.strided:
        return matrix
    if matrix.layout is not torch.sparse_coo:
        return matrix.layout, matrix.detach().to_dense()
    return matrix.is_coalesced(), matrix._indices().tolist(), matrix._values().detach()


def run(
    name: str, form: str, needs: str, dtype: torch.dtype = torch.float64, operand: str = "contiguous"
) -> Any:
    """The result, and the gradients of what needs one."""
    make, places = OPERANDS[operand], needs.split()
    matrix = MATRICES[form](dtype)
    rows, columns = matrix.shape
    given = {
        "a": matrix.detach(),
        "x": make(whole(columns, F).to(dtype)).detach(),
        "y": make(whole(rows, F, seed=2).to(dtype)).detach().t(),
        "added": make(whole(rows, F, seed=4).to(dtype)).detach(),
    }
    for place in places:
        given[place].requires_grad_()
    out = FUNCTIONS[name](*given.values())
    results = [told(out.detach()), out.requires_grad]
    if out.requires_grad and out.layout is torch.strided:
        asked = [given[place] for place in places]
        grads = torch.autograd.grad(out.square().sum(), asked, retain_graph=True, allow_unused=True)
        out.square().sum().backward()
        results += [told(grad) for grad in (*grads, *(each.grad for each in asked))]
    return results


@each_need
@each_matrix
@each_function
def test_results_and_gradients(name: str, form: str, needs: str) -> None:
    both(partial(run, name, form, needs), raises=None)


@pytest.mark.parametrize("operand", OPERANDS)
@each_matrix
@pytest.mark.parametrize("name", ["sparse.mm", "@", "from the right", "addmm"])
def test_operands(name: str, form: str, operand: str) -> None:
    both(partial(run, name, form, "x y", operand=operand), raises=None)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float16, torch.complex64, torch.int64, torch.bool]
)
@each_matrix
@pytest.mark.parametrize("name", ["sparse.mm", "@", "from the right", "addmm"])
def test_dtypes(name: str, form: str, dtype: torch.dtype) -> None:
    needs = "x a" if dtype.is_floating_point or dtype.is_complex else ""
    both(partial(run, name, form, needs, dtype), raises=None)


@pytest.mark.parametrize("form", ["COO", "COO not coalesced", "CSR", "CSR transposed", "CSC"])
@pytest.mark.parametrize("name", ["sparse.mm", "@", "mv", "from the right", "addmm", "transposed"])
def test_our_code_runs(name: str, form: str) -> None:
    with served() as names:
        run(name, form, "x y")
    assert names & {"sparse mm", "sparse addmm", "sparse mv"}


def test_gradients_to_values_need_no_dense_matrix() -> None:
    nodes, count = 200_000, 1_000
    at = torch.randint(0, nodes, (2, count), generator=torch.Generator().manual_seed(0))
    values = torch.ones(count, dtype=torch.float64, requires_grad=True)
    x = torch.rand(nodes, 3, dtype=torch.float64)
    # torch's own would take 320 GB.
    with patched():
        out = torch.sparse.mm(torch.sparse_coo_tensor(at, values, (nodes, nodes)), x)
        out.sum().backward()
    torch.testing.assert_close(values.grad, x.sum(1)[at[1]])


# --- around the products ----------------------------------------------------------------------------------

NUMBERS = {
    "plain": lambda x: x,
    "some -inf": lambda x: torch.where(x < -1, -torch.inf, x),
    "all -inf": lambda x: torch.full_like(x, -torch.inf),
    "some inf": lambda x: torch.where(x > 2, torch.inf, x),
    "far apart": lambda x: 60 * x,
    "some NaN": lambda x: torch.where(x == 2, torch.nan, x),
}
VALUES: dict[str, Callable[[Tensor], Tensor]] = {
    "coalesce": lambda a: a.coalesce(),
    "coalesce of the transpose": lambda a: a.t().coalesce(),
    "to_sparse_csr": lambda a: a.to_sparse_csr(),
    "sum of rows": lambda a: torch.sparse.sum(a, 1),
    "sum of columns": lambda a: torch.sparse.sum(a, 0),
    "sum": lambda a: torch.sparse.sum(a),
    "softmax of rows": lambda a: torch.sparse.softmax(a, 1),
    "softmax of columns": lambda a: torch.sparse.softmax(a, 0),
    "softmax from the end": lambda a: torch.sparse.softmax(a, -1),
    "softmax in float64": lambda a: torch.sparse.softmax(a, 1, dtype=torch.float64),
    "log_softmax of rows": lambda a: torch.sparse.log_softmax(a, 1),
    "log_softmax of columns": lambda a: torch.sparse.log_softmax(a, 0),
    "log_softmax from the end": lambda a: torch.sparse.log_softmax(a, -2),
    "log_softmax in float64": lambda a: torch.sparse.log_softmax(a, 1, dtype=torch.float64),
}


@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize("form", [form for form in MATRICES if form.startswith("COO")])
@pytest.mark.parametrize("name", VALUES)
def test_values(name: str, form: str, numbers: str) -> None:
    def values_and_gradients() -> Any:
        matrix = MATRICES[form](torch.float32)
        values = NUMBERS[numbers](matrix._values())
        matrix = torch.sparse_coo_tensor(
            matrix._indices(), values, matrix.shape, is_coalesced=matrix.is_coalesced()
        )
        leaf = matrix.detach().requires_grad_()
        out = VALUES[name](leaf)
        if out.layout is not torch.sparse_coo:
            return told(out)
        weights = out.detach().clone()
        weights._values().copy_(torch.arange(1, weights._nnz() + 1))
        torch.sparse.sum(out * weights).backward()
        return told(out), told(leaf.grad)

    both(values_and_gradients, raises=None, rtol=1e-4, atol=1e-5)


def test_values_of_hybrid_tensors_and_vectors() -> None:
    at = entries()
    both(lambda: told(torch.sparse_coo_tensor(at, whole(ENTRIES, 3), (N, K, 3)).coalesce()))
    both(lambda: told(torch.sparse_coo_tensor(at[:1], whole(ENTRIES), (N,)).coalesce()))
    both(
        lambda: told(torch.sparse_coo_tensor(torch.stack([*at, at[0]]), whole(ENTRIES), (N, K, N)).coalesce())
    )


OURS = {
    "coalesce": {"coalesce"},
    "softmax of rows": {"sparse softmax", "sparse softmax backward"},
    "log_softmax of columns": {"sparse log_softmax", "sparse log_softmax backward"},
}


@pytest.mark.parametrize("name", OURS)
def test_our_code_computes_values(name: str) -> None:
    leaf = MATRICES["COO not coalesced"]().requires_grad_()
    with served() as names:
        out = VALUES[name](leaf)
        if name != "coalesce":
            out.backward(out.detach())
    assert OURS[name] <= names


# The least entries with which our code runs: what the cases of `_at_bound` do.
BOUNDS = {"COO": 8 << 10, "CSR": 4 << 10, "COO with gradients to values": 1 << 10, "softmax": 8 << 10}


def _at_bound(name: str, count: int) -> set[str]:
    """The names of what our code runs for a matrix of so many entries, with thresholds as users have them."""
    at = torch.arange(count)
    matrix = torch.sparse_coo_tensor(torch.stack([at, at]), torch.ones(count), is_coalesced=True)
    # CSR's products on the left pay with wide operands alone, and those with its transpose at once.
    matrix = matrix.to_sparse_csr().t() if name == "CSR" else matrix
    matrix.requires_grad_("gradients" in name)
    with onehop.patch(only="torch"), rows.counted(everywhere=True) as counts:
        if name == "softmax":
            torch.sparse.softmax(matrix, 1)
        else:
            torch.sparse.mm(matrix, torch.ones(count, 16))
    return {each for (each, ours), number in counts.items() if ours and number}


@pytest.mark.parametrize("name", BOUNDS)
def test_few_entries_are_torchs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "now", thresholds.ORDINARY)
    assert _at_bound(name, BOUNDS[name] - 1) == set()
    assert _at_bound(name, BOUNDS[name])


# --- numbers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["COO", "COO not coalesced", "CSR", "CSC"])
@pytest.mark.parametrize("special", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("where", ["x", "values", "a zero's column"])
def test_numbers_that_are_none(where: str, special: float, form: str) -> None:
    def product() -> Any:
        dense, x = unsorted().to_dense(), whole(K, F)
        dense[2, 3] = special if where == "values" else 1
        at = dense.nonzero().t()
        values = dense[at[0], at[1]]
        if where == "a zero's column":
            values[at[1] == 4] = 0
            x[4] = special
        if where == "x":
            x[3, 1] = special
        matrix = torch.sparse_coo_tensor(at, values, (N, K), is_coalesced=form != "COO not coalesced")
        if form in ("CSR", "CSC"):
            matrix = matrix.to_sparse_csr() if form == "CSR" else matrix.to_sparse_csc()
        return matrix @ x, torch.sparse.mm(matrix, x)

    both(product)


# --- edges that are recognised ---------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["COO", "COO not coalesced", "CSR", "CSC"])
@pytest.mark.parametrize("what", ["values", "indices"])
def test_a_write_to_a_matrix_is_noticed(what: str, form: str) -> None:
    x = whole(K, F)

    def product() -> Any:
        matrix = MATRICES[form]()
        results = [matrix @ x]
        is_coo = matrix.layout is torch.sparse_coo
        values = matrix._values() if is_coo else matrix.values()
        indices = (
            matrix._indices()[1]
            if is_coo
            else matrix.col_indices()
            if form == "CSR"
            else matrix.row_indices()
        )
        for _ in range(3):
            if what == "values":
                values[::2] *= 2
            else:
                indices[0] = (indices[0] + 1) % (K - 2)
            results.append(matrix @ x)
        return results

    both(product)


@pytest.mark.parametrize("writes", ["to a copy", "to the source", "to both", "to a copy of a freed matrix"])
def test_values_of_transposes_share_an_order_until_they_are_written_to(writes: str) -> None:
    x = whole(N, F)

    def products() -> Any:
        matrix: Any = MATRICES["COO"]()
        results = [matrix @ whole(K, F)]
        results += [matrix.t() @ x for _ in range(4)]
        turned = matrix.t()
        if "copy" in writes or "both" in writes:
            turned._values()[::2] *= 2
        if "source" in writes or "both" in writes:
            matrix._values()[1::3] += 1
        results += [turned @ x, matrix.t() @ x, matrix.t() @ x, turned @ x]
        if "freed" in writes:
            del matrix
            results += [turned @ x, turned.t() @ whole(K, F)]
        return results

    both(products)


def test_products_with_transposes_read_the_values_in_the_cached_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ordered = []
    kept = aggregate.in_graph_order

    def counting(*args: Any) -> Any:
        weight, is_ordered = kept(*args)
        ordered.append(weight.data_ptr() if is_ordered else None)
        return weight, is_ordered

    monkeypatch.setattr(aggregate, "in_graph_order", counting)
    matrix = MATRICES["COO"]()
    with patched():
        matrix @ whole(K, F)
        for _ in range(4):
            matrix.t() @ whole(N, F)
    *_, before, last = ordered
    assert before == last is not None


def _set(array: Any) -> None:
    array[..., 50_001] = 5


# Writes to one entry of a large matrix, which a sample of its contents does not show.
WRITES: dict[str, Callable[[Tensor, Tensor], None]] = {
    "to the array it was made from": lambda at, matrix: _set(at),
    "to a NumPy array": lambda at, matrix: _set(at.numpy()),
    "to its indices": lambda at, matrix: _set(matrix._indices()),
    "to indices of a detached one": lambda at, matrix: _set(matrix.detach()._indices()),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_write_to_a_large_matrix_is_noticed(write: str) -> None:
    x = whole(3_000, 2)

    def products() -> Any:
        at = torch.randint(0, 3_000, (2, 100_000), generator=torch.Generator().manual_seed(0))
        matrix = torch.sparse_coo_tensor(at, torch.ones(100_000, dtype=torch.float64), (3_000, 3_000))
        if "array" not in write:
            at = torch.empty(0)  # the matrix alone has its indices
        first = matrix @ x
        WRITES[write](at, matrix)
        return first, matrix @ x

    both(products)


@pytest.mark.parametrize("form", ["COO", "COO not coalesced"])
def test_the_contents_of_a_matrix_that_owns_its_indices_are_read_once(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix, x = MATRICES[form](), whole(K, F).requires_grad_()
    read = noted(monkeypatch, matrix_edges, "fingerprint", lambda array: array.numel())
    with patched():
        for _ in range(3):
            torch.sparse.mm(matrix, x).sum().backward()
            (matrix @ x).sum().backward()
    assert len(read) == 2  # rows and columns


def test_matrices_of_the_same_indices_share_a_graph() -> None:
    at, x = entries(), whole(K, F)
    with patched():
        first = torch.sparse_coo_tensor(at, whole(ENTRIES), (N, K))
        expected = matrix_edges.recognised(first).edges
        for indices in (at, at.clone()):
            other = torch.sparse_coo_tensor(indices, whole(ENTRIES, seed=7), (N, K))
            torch.testing.assert_close(other @ x, other.to_dense() @ x)
            assert matrix_edges.recognised(other).edges is expected
        assert matrix_edges.recognised(first.t()) == (expected, True)
        turned = torch.sparse_coo_tensor(at.flip(0), whole(ENTRIES), (K, N))
        assert matrix_edges.recognised(turned) == (expected, True)
        assert (
            matrix_edges.recognised(torch.sparse_coo_tensor(at, whole(ENTRIES), (N, K + 1))).edges
            is not expected
        )


def test_a_graph_is_made_once_for_all_steps() -> None:
    matrix, x = MATRICES["COO not coalesced"](), whole(K, F).requires_grad_()
    with patched():
        graphs = set()
        for _ in range(3):
            torch.sparse.mm(matrix, x).sum().backward()
            edges = matrix_edges.recognised(matrix).edges
            graphs.add((edges.graph, edges.turned))
    assert len(graphs) == 1
    assert None not in graphs.pop()


def test_the_transpose_is_the_callers_own() -> None:
    matrix, x = MATRICES["COO"](), whole(K, F)
    expected = matrix.to_dense().t()
    with patched():
        matrix @ x
        for _ in range(2):
            turned = matrix.t()
            assert not turned.is_coalesced()
            assert torch.equal(turned.to_dense(), expected)
            turned._indices().zero_()
            turned._values().zero_()
            product = turned @ whole(N, F)
            assert not product.any()
        assert torch.equal(matrix.t().to_dense(), expected)


@pytest.mark.parametrize("form", ["COO", "CSR"])
def test_what_is_kept_goes_with_the_matrix(form: str) -> None:
    onehop.clear_cache()
    x = whole(K, F).requires_grad_()
    with onehop.patch(only="torch"), thresholds.lifted():
        matrix = MATRICES[form]()
        torch.sparse.mm(matrix, x).sum().backward()
        edges = weakref.ref(matrix_edges.recognised(matrix).edges)
        assert edges() is not None
        del matrix
        gc.collect()
        assert edges() is None
        assert CACHE.info().entries == 0


# --- contexts --------------------------------------------------------------------------------------------


def _second(form: str) -> Any:
    matrix, x = MATRICES[form]().requires_grad_(form == "COO"), whole(K, F).requires_grad_()
    asked = [matrix, x] if matrix.requires_grad else [x]
    first = torch.autograd.grad(torch.sparse.mm(matrix, x).pow(3).sum(), asked, create_graph=True)
    total = sum(grad.to_dense().square().sum() for grad in first)
    second = torch.autograd.grad(total, asked, allow_unused=True)
    return [told(grad) for grad in second]


def _of_values(form: str) -> Any:
    values, x = whole(ENTRIES).requires_grad_(), whole(K, F).requires_grad_()
    matrix = torch.sparse_coo_tensor(entries(), values, (N, K))
    out = torch.sparse.mm(matrix.coalesce() if form == "COO" else matrix, x)
    return torch.autograd.grad(out.square().sum(), [values, x])


def _checkpointed(form: str) -> Any:
    matrix, x = MATRICES[form](), whole(K, F).requires_grad_()
    out = checkpoint(lambda x: torch.sparse.mm(matrix, x), x, use_reentrant=False)
    return torch.autograd.grad(out.square().sum(), x)


def _hooked(form: str) -> Any:
    matrix, x, seen = MATRICES[form](), whole(K, F).requires_grad_(), []
    out = torch.sparse.mm(matrix, x)
    out.register_hook(lambda grad: seen.append(grad.clone()))
    x.register_hook(lambda grad: seen.append(grad.clone()))
    out.square().sum().backward()
    return seen


def _autocast(form: str) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        return torch.sparse.mm(MATRICES[form](torch.float32), whole(K, F).float())


def _forward_mode(form: str) -> Any:
    matrix = MATRICES[form]()
    return torch.func.jvp(lambda x: torch.sparse.mm(matrix, x), (whole(K, F),), (whole(K, F, seed=5),))


def _vmapped(form: str) -> Any:
    matrix = MATRICES[form]()
    return torch.func.vmap(lambda x: torch.sparse.mm(matrix, x))(whole(3, K, F))


def _func_grad(form: str) -> Any:
    matrix = MATRICES[form]()
    return torch.func.grad(lambda x: torch.mm(matrix, x).square().sum())(whole(K, F))


def _inference(form: str) -> Any:
    with torch.inference_mode():
        matrix = MATRICES[form]()
        return [(matrix @ whole(K, F)).clone(), torch.sparse.mm(matrix, whole(K, F)).clone()]


def _no_grad(form: str) -> Any:
    matrix, x = MATRICES[form]().requires_grad_(), whole(K, F).requires_grad_()
    with torch.no_grad():
        out = torch.sparse.mm(matrix, x)
    return out, out.requires_grad


def _deterministic(form: str) -> Any:
    torch.use_deterministic_algorithms(True)
    try:
        return torch.sparse.mm(MATRICES[form](), whole(K, F))
    finally:
        torch.use_deterministic_algorithms(False)


CONTEXTS = {
    "second derivatives": _second,
    "gradients to values": _of_values,
    "checkpoint": _checkpointed,
    "hooks": _hooked,
    "autocast": _autocast,
    "forward mode": _forward_mode,
    "vmap": _vmapped,
    "torch.func.grad": _func_grad,
    "inference mode": _inference,
    "no_grad": _no_grad,
    "deterministic": _deterministic,
}


@pytest.mark.parametrize("form", ["COO", "COO not coalesced", "CSR"])
@pytest.mark.parametrize("context", CONTEXTS)
def test_contexts(context: str, form: str) -> None:
    both(partial(CONTEXTS[context], form), raises=None)


def test_gradcheck() -> None:
    values, x = torch.rand(ENTRIES).double().requires_grad_(), torch.rand(K, F).double().requires_grad_()

    def product(values: Tensor, x: Tensor) -> Tensor:
        return torch.sparse.mm(torch.sparse_coo_tensor(entries(), values, (N, K)), x)

    with patched():
        assert torch.autograd.gradcheck(product, (values, x))
        assert torch.autograd.gradgradcheck(product, (values, x))


# --- bad input -------------------------------------------------------------------------------------------


def _outside(layout: str, place: int) -> Tensor:
    matrix = MATRICES[layout]()
    unchecked: Any = {"check_invariants": False}
    if layout == "COO":
        indices = matrix.indices().clone()
        indices[place, 1] = 99
        return torch.sparse_coo_tensor(indices, matrix.values(), (N, K), **unchecked)
    col = matrix.col_indices().clone()
    col[1] = 99
    return torch.sparse_csr_tensor(matrix.crow_indices(), col, matrix.values(), (N, K), **unchecked)


@pytest.mark.parametrize("place", [0, 1])
def test_entries_out_of_range_are_torchs_error(place: int) -> None:
    both(lambda: torch.sparse.mm(_outside("COO", place), whole(K, F)), raises=True)


def test_a_compressed_matrix_out_of_range_is_not_read() -> None:
    # torch reads out of bounds.
    with patched(), pytest.raises(onehop.IndexRangeError, match="99"):
        torch.mm(_outside("CSR", 1), whole(K, F))


BAD: dict[str, Callable[[Tensor], Any]] = {
    "too few rows": lambda a: a @ whole(K - 1, F),
    "too many rows": lambda a: torch.sparse.mm(a, whole(K + 1, F)),
    "three dimensions": lambda a: torch.mm(a, whole(2, K, F)),
    "another dtype": lambda a: torch.mm(a, whole(K, F).float()),
    "integers": lambda a: torch.mm(a, whole(K, F).long()),
    "added of another shape": lambda a: torch.addmm(whole(N + 1, F), a, whole(K, F)),
    "added of another dtype": lambda a: torch.addmm(whole(N, F).float(), a, whole(K, F)),
    "no tensor": lambda a: torch.mm(a, None),
}


@pytest.mark.parametrize("what", BAD)
@pytest.mark.parametrize("form", ["COO", "COO not coalesced", "CSR", "CSC"])
def test_bad_operands_are_torchs_error(form: str, what: str) -> None:
    both(lambda: BAD[what](MATRICES[form]()), raises=None)
