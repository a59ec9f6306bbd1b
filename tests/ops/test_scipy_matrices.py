"""Operators over SciPy's sparse matrices and NumPy's arrays, beside SciPy's own products."""

import gc

import numpy as np
import pytest
import scipy.sparse
import torch

import onehop
from onehop.ops import scipy_matrices

FORMATS = ("csr", "csc", "coo", "lil", "dok", "bsr", "dia")
RNG = np.random.default_rng(0)


def matrix(form="csr", dtype=np.float32, array=True, rows=30, columns=20):
    made = scipy.sparse.random(rows, columns, 0.2, random_state=1, dtype=np.float64) * 9
    made = (scipy.sparse.csr_array if array else scipy.sparse.csr_matrix)(made.astype(dtype))
    return made.asformat(form)


def features(rows=20, columns=4, dtype=np.float32):
    return RNG.normal(size=(rows, columns)).astype(dtype)


@pytest.mark.parametrize("array", [False, True])
@pytest.mark.parametrize("form", FORMATS)
def test_products(form, array):
    a, x = matrix(form, array=array), features()
    out = onehop.aggregate(a, x)
    assert type(out) is np.ndarray
    np.testing.assert_allclose(out, a @ x, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("of_x", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("of_values", [np.float32, np.float64, np.int64, np.bool_])
def test_dtypes_are_promoted_as_numpy_does(of_values, of_x):
    a, x = matrix(dtype=of_values), (9 * features()).astype(of_x)
    expected = a @ x
    if expected.dtype.kind != "f":
        with pytest.raises(onehop.ArgumentError, match="float"):
            onehop.aggregate(a, x)
        return
    out = onehop.aggregate(a, x)
    assert out.dtype == expected.dtype
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x,
        lambda x: np.asfortranarray(x),
        lambda x: x[::-1],
        lambda x: np.repeat(x, 2, axis=1)[:, ::2],
        lambda x: x.astype(">f4"),
        lambda x: x[:, 0],
        lambda x: x.reshape(20, 2, 2),
    ],
)
def test_layouts_of_arrays(view):
    a, x = matrix(), view(features())
    read_only = x.copy()
    read_only.flags.writeable = False
    expected = (a @ x.reshape(20, -1)).reshape(30, *x.shape[1:])
    for each in (x, read_only):
        np.testing.assert_allclose(onehop.aggregate(a, each), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_other_reductions_and_weights(form):
    a, x = matrix(form), features()
    dense, counts = a.toarray(), np.diff(a.tocsr().indptr)
    largest = np.where(dense[:, :, None] != 0, dense[:, :, None] * x, -np.inf).max(1)
    largest[counts == 0] = 0
    np.testing.assert_allclose(onehop.aggregate(a, x, reduce="max"), largest, rtol=1e-5)
    ones = onehop.aggregate(a, x, np.ones(a.nnz, np.float32), "mean")
    mean = ((dense != 0) @ x) / np.maximum(counts, 1)[:, None]
    np.testing.assert_allclose(ones, mean, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_products_of_both_ends_are_in_the_order_of_the_values(form):
    a, y, x = matrix(form), features(30), features()
    coo = a.tocoo()
    out = onehop.sddmm(a, y, x)
    assert type(out) is np.ndarray
    expected = (y[coo.row] * x[coo.col]).sum(1)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)


def test_tensors_keep_their_gradients():
    a, x = matrix(), torch.from_numpy(features()).requires_grad_()
    onehop.aggregate(a, x).sum().backward()
    np.testing.assert_allclose(x.grad, a.T @ np.ones((30, 4), np.float32), rtol=1e-5, atol=1e-5)


def test_a_matrix_has_one_graph_until_its_edges_change():
    a, x = matrix(), features()
    onehop.aggregate(a, x)
    graph = scipy_matrices._edges_of(a)[0]
    a.data *= 2
    np.testing.assert_allclose(onehop.aggregate(a, x), a @ x, rtol=1e-5, atol=1e-5)
    assert scipy_matrices._edges_of(a)[0] is graph
    a.indices[0] = (a.indices[0] + 1) % 20
    np.testing.assert_allclose(onehop.aggregate(a, x), a @ x, rtol=1e-5, atol=1e-5)
    assert scipy_matrices._edges_of(a)[0] is not graph
    number = id(a)
    assert number in scipy_matrices._known
    del a
    gc.collect()
    assert number not in scipy_matrices._known


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda a, x: onehop.aggregate(a, x[1:]), "20 sources"),
        (lambda a, x: onehop.aggregate(a, x.tolist()), "NumPy array or a tensor"),
        (lambda a, x: onehop.aggregate(a, x.astype("U3")), "str|no numbers"),
        (lambda a, x: onehop.aggregate(a, x, x), "30|values|entry"),
        (lambda a, x: onehop.sddmm(a, x, x), "30 destinations"),
    ],
)
def test_bad_arguments(call, words):
    with pytest.raises(onehop.ArgumentError, match=words):
        call(matrix(), features())


def test_an_entry_out_of_range():
    a = matrix()
    a.indices[3] = 77
    with pytest.raises(onehop.IndexRangeError, match="77"):
        onehop.aggregate(a, features())
