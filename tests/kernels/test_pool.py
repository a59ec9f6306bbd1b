"""Memory that is kept: blocks come back, stay bounded, and go when told to."""

import gc

import pytest
import torch

import onehop
from onehop import Graph, native

LARGE = (1 << 20,)  # float32: 4 MiB


@pytest.fixture(autouse=True)
def empty_pool():
    limit = native.extension.pool_info()["limit_bytes"]
    native.extension.pool_clear()
    yield
    native.extension.pool_set_limit(limit)
    native.extension.pool_clear()


def info():
    return native.extension.pool_info()


@pytest.mark.parametrize("dtype", list(native.DTYPE_CODES))
def test_blocks_are_tensors_like_any_other(dtype):
    tensor = native.empty((1024, 1024), dtype)
    assert tensor.dtype == dtype
    assert tensor.shape == (1024, 1024)
    assert tensor.is_contiguous()
    assert tensor.data_ptr() % 64 == 0
    tensor.fill_(2)
    assert (tensor + 1).sum() == 3 * 1024 * 1024
    assert tensor.clone().equal(tensor)


def test_a_freed_block_is_used_again():
    tensor = native.empty(LARGE, torch.float32)
    address = tensor.data_ptr()
    before = info()
    del tensor
    assert info()["kept_bytes"] == before["kept_bytes"] + (4 << 20)
    again = native.empty(LARGE, torch.float32)
    assert again.data_ptr() == address
    assert info()["reused"] == before["reused"] + 1


def test_views_and_the_autograd_graph_keep_a_block():
    graph = Graph.from_edge_index(torch.randint(0, 20000, (2, 50000)), 20000)
    x = torch.randn(20000, 32, requires_grad=True)
    out = onehop.aggregate(graph, x)
    row = out[5]
    expected = row.clone()
    loss = (out * out).sum()
    del out
    for _ in range(3):
        native.empty((20000, 32), torch.float32).fill_(float("nan"))
    assert torch.equal(row, expected)
    loss.backward()
    assert not x.grad.isnan().any()


def test_small_blocks_are_torchs_own():
    before = info()
    tensor = native.empty((10, 10), torch.float32)
    assert info() == before
    assert tensor.untyped_storage().resizable()


def test_the_limit_is_kept_and_zero_keeps_nothing():
    native.extension.pool_set_limit(10 << 20)
    tensors = [native.empty(LARGE, torch.float32) for _ in range(5)]
    del tensors
    assert 0 < info()["kept_bytes"] <= 10 << 20
    native.extension.pool_set_limit(0)
    assert info()["kept_bytes"] == 0
    tensor = native.empty(LARGE, torch.float32)
    del tensor
    assert info()["kept_bytes"] == 0


def test_clearing_leaves_what_is_in_use():
    tensor = native.empty(LARGE, torch.float32).fill_(3)
    freed = native.empty((2 << 20,), torch.float32)
    del freed
    native.extension.pool_clear()
    assert info()["kept_bytes"] == 0
    assert info()["in_use_bytes"] >= 4 << 20
    assert tensor.eq(3).all()


def test_a_much_larger_block_is_not_wasted_on_a_small_tensor():
    large = native.empty((64 << 20,), torch.float32)
    address = large.data_ptr()
    del large
    small = native.empty(LARGE, torch.float32)
    assert small.data_ptr() != address
    assert native.empty((64 << 20,), torch.float32).data_ptr() == address


def test_impossible_sizes_raise_memory_error():
    with pytest.raises(MemoryError):
        native.empty((1 << 50,), torch.float32)
    with pytest.raises(MemoryError):
        native.empty((1 << 40, 1 << 40), torch.float32)
    # The next multiple of a page is no longer a number of 64 bits.
    with pytest.raises(MemoryError):
        native.empty(((1 << 61) - 1,), torch.float32)


def test_repeated_aggregation_maps_nothing_new():
    graph = Graph.from_edge_index(torch.randint(0, 20000, (2, 50000)), 20000)
    x = torch.randn(20000, 32, requires_grad=True)
    for _ in range(2):
        onehop.aggregate(graph, x).sum().backward()
    x.grad = None
    gc.collect()
    mapped = info()["mapped"]
    for _ in range(10):
        x.grad = None
        onehop.aggregate(graph, x).sum().backward()
    assert info()["mapped"] == mapped
