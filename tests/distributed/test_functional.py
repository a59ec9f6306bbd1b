"""Batch normalisation over the rows of all processes, where one process has them all, and dropout."""

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from onehop.distributed import alone, converted
from onehop.errors import ArgumentError

pytest.importorskip("torch_geometric")

from torch_geometric.nn import BatchNorm

from onehop.integrations.pyg.divided import rows as rows_of_divided

OURS, SINGLE, DROPOUT = (row.ours for row in rows_of_divided()[:3])


@pytest.fixture
def divided(one_process):
    """Says that a model runs whose rows are divided, of which this process has all."""
    with converted._now.set(converted.Processes(None, 2)):
        yield


def _operands(rows, dtype=torch.float64):
    torch.manual_seed(rows)
    x = torch.randn(rows, 3, dtype=dtype, requires_grad=True)
    return x, *(torch.rand(3, dtype=dtype) + 0.5 for _ in range(4))


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("rows", [2, 3, 7])
def test_training_is_torchs(divided, rows, affine):
    x, mean, variance, weight, bias = _operands(rows)
    of_both = []
    for function in (F.batch_norm, OURS):
        means, variances = mean.clone(), variance.clone()
        scales = (weight.clone().requires_grad_(), bias.clone().requires_grad_()) if affine else (None, None)
        out = function(x, means, variances, *scales, True, 0.3, 1e-3)
        leaves = [x, *scales] if affine else [x]
        of_both.append((out, means, variances, *torch.autograd.grad((out * out.cos()).sum(), leaves)))
    for theirs, ours in zip(*of_both, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_without_running_statistics(divided):
    x, *_ = _operands(5)
    torch.testing.assert_close(OURS(x, None, None, training=True), F.batch_norm(x, None, None, training=True))


def test_16_bits_are_normalised_in_32(divided):
    x, mean, variance, weight, bias = _operands(7, torch.float32)
    found = OURS(x.bfloat16(), mean.clone(), variance.clone(), weight, bias, True)
    expected = F.batch_norm(x.bfloat16().float(), mean.clone(), variance.clone(), weight, bias, True)
    assert found.dtype is torch.bfloat16
    torch.testing.assert_close(found, expected.bfloat16(), atol=1e-2, rtol=1e-2)


def test_evaluation_is_torchs_own(divided):
    x, mean, variance, weight, bias = _operands(4)
    before = mean.clone()
    found = OURS(x, mean, variance, weight, bias, False)
    assert torch.equal(found, F.batch_norm(x, mean, variance, weight, bias, False))
    assert torch.equal(mean, before)


def test_one_row_of_all_is_refused(divided):
    x, mean, variance, *_ = _operands(1)
    with pytest.raises(ArgumentError, match="expected two rows or more, got 1 on all processes"):
        OURS(x, mean, variance, training=True)


def test_features_of_three_dimensions_are_refused(divided):
    with pytest.raises(ArgumentError, match=r"takes \[n, F\].*got \[2, 3, 4\]"):
        OURS(torch.ones(2, 3, 4), None, None, training=True)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("single", [True, False])
def test_a_single_row_is_whole_where_nothing_is_divided(divided, single, training):
    module = BatchNorm(3, allow_single_element=single).train(training)
    x = torch.ones(1, 3)
    with alone():
        if training and not single:
            with pytest.raises(ValueError, match="more than 1 value"):
                SINGLE(module, x)
        else:
            assert torch.equal(SINGLE(module, x), BatchNorm.forward(module, x))


def test_a_single_row_of_a_graph_is_a_part_of_the_batch(divided, monkeypatch):
    monkeypatch.setattr(F, "batch_norm", OURS)
    with pytest.raises(ArgumentError, match="expected two rows"):
        SINGLE(BatchNorm(3, allow_single_element=True), torch.ones(1, 3))
    # In evaluation PyG's own code runs.
    module = BatchNorm(3, allow_single_element=True).eval()
    assert torch.equal(SINGLE(module, torch.ones(1, 3)), module.module(torch.ones(1, 3)))


def test_modules_of_torch_come_here(divided, monkeypatch):
    x, *_ = _operands(6, torch.float32)
    module = nn.BatchNorm1d(3)
    expected = module(x)
    monkeypatch.setattr(F, "batch_norm", OURS)
    torch.testing.assert_close(nn.BatchNorm1d(3)(x), expected)


@pytest.mark.parametrize("told", [False, True])
def test_dropout_is_torchs_own_in_a_converted_model(told, request, monkeypatch):
    if told:
        monkeypatch.setattr(converted, "held_graphs", ["a graph"])
        monkeypatch.setattr(dist, "is_initialized", lambda: True)
    else:
        request.getfixturevalue("divided")
    x = torch.ones(20)
    for p, training in ((0.0, True), (0.5, False), (0.5, True)):
        if told and p and training:
            with pytest.raises(ArgumentError, match="x: dropout needs to know"):
                DROPOUT(x, p, training)
            continue
        torch.manual_seed(0)
        expected = F.dropout(x, p, training)
        torch.manual_seed(0)
        assert torch.equal(DROPOUT(x, p, training), expected)
