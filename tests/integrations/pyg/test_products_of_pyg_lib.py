"""The operators of pyg-lib for products, softmax, sorts and pairs of rows, without pyg-lib."""

import importlib.util

import pytest
import torch
import torch_geometric.backend
import torch_geometric.typing
from torch_geometric.nn import HeteroDictLinear, HeteroLinear
from torch_geometric.utils import softmax

import onehop
from onehop.errors import ArgumentError, ConfigurationError

pytestmark = pytest.mark.skipif(torch_geometric.typing.WITH_PYG_LIB, reason="PyG has pyg-lib")
PTR = torch.tensor([0, 3, 3, 9, 12])


@pytest.fixture(autouse=True)
def patched():
    with onehop.patch():
        yield torch.ops.pyg


def random(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


def test_products_of_segments(patched):
    x, matrices = random(12, 5), random(4, 5, 6)
    out = patched.segment_matmul(x, PTR, matrices)
    expected = torch.cat(
        [part @ matrix for part, matrix in zip(x.split([3, 0, 6, 3]), matrices, strict=True)]
    )
    torch.testing.assert_close(out, expected)
    grads = [torch.autograd.grad(each.square().sum(), (x, matrices)) for each in (out, expected)]
    torch.testing.assert_close(*grads)
    assert torch.autograd.gradcheck(
        lambda *given: patched.segment_matmul(given[0], PTR, given[1]), (x, matrices)
    )


def test_products_of_groups(patched):
    a, b = [random(3, 4), random(0, 2)], [random(4, 5), random(2, 7)]
    for out, x, y in zip(patched.grouped_matmul(a, b), a, b, strict=True):
        torch.testing.assert_close(out, x @ y)
        assert out.requires_grad


@pytest.mark.parametrize(
    ("shape", "dim"), [((12,), 0), ((12, 3), 0), ((2, 12), 1), ((2, 12), -1), ((4, 12, 3), 1)]
)
def test_softmax_of_segments(patched, shape, dim):
    src = random(*shape)
    out = patched.softmax_csr(src, PTR, dim)
    parts = src.split([3, 0, 6, 3], dim)
    expected = torch.cat([part.softmax(dim) for part in parts], dim)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(*(torch.autograd.grad(each.pow(3).sum(), src)[0] for each in (out, expected)))
    assert patched.softmax_csr(torch.empty(0, 3), torch.tensor([0, 0])).shape == (0, 3)


def test_sorted_numbers(patched):
    given = torch.tensor([3, 0, 3, 1])
    for found in (patched.index_sort(given), patched.index_sort(given, 3)):
        assert [each.tolist() for each in found] == [[0, 1, 3, 3], [1, 3, 0, 2]]


@pytest.mark.parametrize("op", ["add", "sub", "mul", "div"])
def test_pairs_of_rows(patched, op):
    left, right = random(4, 3), random(5, 3)
    rows, others = torch.tensor([0, 3, 3, 1, 2]), torch.tensor([4, 4, 0, 1, 1])
    function = getattr(torch, op)
    for index, other in ((rows, others), (rows, None), (None, others[:4])):
        out = patched.sampled_op(left, right, index, other, op)
        a, b = (each if at is None else each[at] for each, at in ((left, index), (right, other)))
        assert torch.equal(out, function(a, b))
        assert out.requires_grad


@pytest.mark.skipif(importlib.util.find_spec("pymetis") is None, reason="needs pymetis")
def test_parts(patched):
    # Two cliques of four with an edge between them.
    rows = [[j for j in range(4) if j != i] for i in range(4)] + [
        [4 + j for j in range(4) if j != i] for i in range(4)
    ]
    rows[0].append(4)
    rows[4].append(0)
    rowptr = torch.tensor([0, *map(len, rows)]).cumsum(0)
    parts = patched.metis(rowptr, torch.tensor([j for row in rows for j in row]), 2)
    assert parts[:4].unique().numel() == parts[4:].unique().numel() == 1
    assert parts[0] != parts[4]
    with pytest.raises(ArgumentError, match="recursive"):
        patched.metis(rowptr, rowptr, 2, None, None, True)


def test_parts_need_pymetis(patched, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match="pymetis"):
        patched.metis(torch.tensor([0, 0]), torch.tensor([], dtype=torch.long), 1)


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("segment_matmul", (torch.ones(12, 5), PTR, torch.ones(3, 5, 6)), "expected .N, K."),
        ("segment_matmul", (torch.ones(12, 5), PTR, torch.ones(4, 5, 6).double()), "of one dtype"),
        ("segment_matmul", (torch.ones(11, 5), PTR, torch.ones(4, 5, 6)), "ascend from 0 to 11"),
        ("grouped_matmul", ([torch.ones(2, 2)], []), "as many matrices"),
        ("grouped_matmul", ([torch.ones(2)], [torch.ones(2)]), "as many matrices"),
        ("softmax_csr", (torch.ones(11), PTR), "ascend from 0 to 11"),
        ("sampled_op", (torch.ones(2, 2), torch.ones(2, 2), None, None, "max"), "one of add"),
        ("sampled_op", (torch.ones(2), torch.ones(2), None, None, "add"), "two matrices"),
    ],
)
def test_bad_input_is_refused(patched, name, arguments, sentence):
    with pytest.raises(ArgumentError, match=sentence):
        getattr(patched, name)(*arguments)


def test_pygs_layers_need_no_flags():
    flags = ("WITH_SEGMM", "WITH_GMM", "WITH_SOFTMAX", "WITH_INDEX_SORT", "WITH_METIS")
    assert not any(getattr(torch_geometric.typing, flag) for flag in flags)
    x, types = torch.randn(12, 4), torch.randint(3, (12,))
    linear = HeteroLinear(4, 5, 3)
    torch.testing.assert_close(linear(x, types), torch.stack([
        row @ linear.weight[kind] + linear.bias[kind] for row, kind in zip(x, types, strict=True)
    ]))  # fmt: skip
    by_type = {str(number): torch.randn(2, 4) for number in range(12)}
    of_types = HeteroDictLinear(4, 5, types=list(by_type))
    for key, out in of_types(by_type).items():
        torch.testing.assert_close(out, of_types.lins[key](by_type[key]))
    scores = torch.randn(12)
    torch.testing.assert_close(softmax(scores, ptr=PTR), torch.ops.pyg.softmax_csr(scores, PTR))
