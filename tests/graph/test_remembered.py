"""What is made from one tensor, or from several as one key, and found again while they are unchanged."""

import gc
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise, permutations

import numpy as np
import pytest
import torch
from torch import Tensor

import onehop
from onehop.graph.contents import Noted
from onehop.graph.identity import CACHE, IdentityCache, remembered
from onehop.graph.lending import is_shared, lend, original, readable


@pytest.fixture
def cache() -> IdentityCache:
    return IdentityCache(lambda: 1 << 20)


class Maker:
    """Makes a new tensor at every call, and counts the calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> Tensor:
        self.calls += 1
        return torch.full((3,), self.calls)


def tensors(count: int) -> list[Tensor]:
    return [torch.arange(6).view(2, 3) + place for place in range(count)]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_it_is_made_once_and_found_again(count, cache):
    given, make = tensors(count), Maker()
    first = cache.remembered(*given, key="k", make=make)
    assert cache.remembered(*given, key="k", make=make) is first
    assert cache.remembered(*given, key="k") is first
    assert cache.find(tuple(given), "k") is first
    assert cache.remembered(*given, key="other") is None
    assert make.calls == 1


def test_the_process_has_one_memory():
    tensor, make = torch.arange(5), Maker()
    assert remembered(tensor, key="k", make=make) is CACHE.find(tensor, "k")
    onehop.clear_cache()
    assert remembered(tensor, key="k") is None
    assert int(remembered(tensor, key="k", make=make)[0]) == 2


# What is written to a tensor, and to the array that it was made from.
WRITES: dict[str, Callable[[Tensor, np.ndarray], object]] = {
    "in place": lambda t, _: t.add_(1),
    "an entry": lambda t, _: t.__setitem__((0, 0), 5),
    "a row": lambda t, _: t[1].fill_(9),
    "to a view": lambda t, _: t.view(-1)[2:4].zero_(),
    "detached": lambda t, _: t.detach().mul_(2),
    "other shape": lambda t, _: t.t_(),
    "resize_": lambda t, _: t.resize_(2, 2),
    "set_": lambda t, _: t.set_(torch.zeros(2, 3, dtype=torch.long)),
    "other data": lambda t, _: setattr(t, "data", torch.zeros(2, 3, dtype=torch.long)),
    "smaller data": lambda t, _: setattr(t, "data", torch.zeros(2, 2, dtype=torch.long)),
}
# Those that torch does not count.
UNCOUNTED: dict[str, Callable[[Tensor, np.ndarray], object]] = {
    "data": lambda t, _: t.data.__setitem__((0, 1), 99),
    "numpy": lambda t, _: t.numpy().__setitem__((0, 1), 99),
    "the array it was made from": lambda _, array: array.__setitem__((0, 1), 99),
    "DLPack": lambda t, _: torch.from_dlpack(t).__setitem__((0, 1), 99),
    "storage": lambda t, _: t.untyped_storage().__setitem__(8, 99),
}


@pytest.mark.parametrize("write", [*WRITES, *UNCOUNTED])
@pytest.mark.parametrize(("count", "at"), [(1, 0), (3, 0), (3, 1), (3, 2)])
def test_a_write_is_seen(write, count, at, cache):
    arrays = [np.arange(6).reshape(2, 3) + place for place in range(count)]
    given, make = [torch.from_numpy(each) for each in arrays], Maker()
    cache.remembered(*given, key="k", make=make)
    version = given[at]._version
    (WRITES | UNCOUNTED)[write](given[at], arrays[at])
    assert write in WRITES or given[at]._version == version
    again = cache.remembered(*given, key="k", make=make)
    assert int(again[0]) == 2
    assert cache.remembered(*given, key="k", make=make) is again


def test_an_entry_of_a_changed_tensor_is_dropped(cache):
    one, other = tensors(2)
    cache.store(Noted(one, other), "k", torch.zeros(4))
    other.add_(1)
    assert cache.remembered(one, other, key="k") is None
    assert (cache.info().entries, cache.info().bytes) == (0, 0)


@pytest.mark.parametrize(("count", "at"), [(1, 0), (3, 0), (3, 1), (3, 2)])
def test_one_freed_tensor_drops_what_was_made_of_it(count, at, cache):
    given = tensors(count)
    value = torch.zeros(4)
    gone, tensor = weakref.ref(value), weakref.ref(given[at])
    cache.store(Noted(*given), "k", value)
    del value
    assert gone() is not None
    given.pop(at)
    gc.collect()
    assert tensor() is None
    assert gone() is None
    assert (cache.info().entries, cache.info().bytes) == (0, 0)


@pytest.mark.parametrize("at", [None, 0, 1])
def test_memory_that_is_reused_is_not_the_tensor(at, cache):
    lasting, make, addresses, reused = torch.arange(1000), Maker(), set(), 0
    for step in range(50):
        passing = torch.arange(1000)
        reused += passing.data_ptr() in addresses  # of whichever of those before: allocators may take turns
        addresses.add(passing.data_ptr())
        given = {None: (passing,), 0: (passing, lasting), 1: (lasting, passing)}[at]
        cache.remembered(*given, key="k", make=make)
        assert make.calls == step + 1
        del passing, given
    assert reused > 0
    assert cache.info().entries == 0


def test_another_tensor_in_the_place_of_one_is_another_key(cache):
    one, other = tensors(2)
    value = cache.remembered(one, other, key="k", make=Maker())
    for given in ((one, other.clone()), (one.clone(), other), (one,), (other,), (one, other, other)):
        assert cache.remembered(*given, key="k") is None
    assert cache.remembered(one, other, key="k") is value


def test_swapped_contents_are_seen(cache):
    one, other = tensors(2)
    third = torch.zeros(2, 3, dtype=torch.long)
    value = cache.remembered(one, other, key="k", make=Maker())
    torch.utils.swap_tensors(other, third)
    assert cache.remembered(one, other, key="k") is None
    torch.utils.swap_tensors(other, third)
    assert cache.remembered(one, other, key="k") is value
    torch.utils.swap_tensors(one, other)
    assert cache.remembered(one, other, key="k") is None


def test_every_order_is_a_key_of_its_own(cache):
    given = tensors(3)
    made = {order: cache.remembered(*order, key="k", make=Maker()) for order in permutations(given)}
    assert len({id(value) for value in made.values()}) == 6
    for order, value in made.items():
        assert cache.remembered(*order, key="k") is value


def test_the_same_tensor_twice(cache):
    one, other = tensors(2)
    value = cache.remembered(one, one, key="k", make=Maker())
    assert cache.remembered(one, one, key="k") is value
    assert cache.remembered(one, key="k") is None
    assert cache.remembered(one, other, key="k") is None
    one.add_(1)
    assert cache.remembered(one, one, key="k") is None
    cache.store(Noted(other, other), "k", True)
    del other
    gc.collect()
    assert cache.info().entries == 0


def test_the_same_view_twice(cache):
    base = torch.arange(12).view(2, 6)
    value = cache.remembered(base[0], base[0], key="k", make=Maker())
    assert cache.remembered(base[0], base[0], key="k") is value
    assert cache.remembered(base[0], base[1], key="k") is None
    base[0, 0] = 5
    assert cache.remembered(base[0], base[0], key="k") is None
    assert (cache.info().entries, cache._views) == (0, {})


def test_more_views_of_one_tensor_than_are_remembered_apart(cache):
    base = torch.arange(40).view(20, 2)
    value = cache.remembered(*base, key="k", make=Maker())
    assert cache.remembered(*base, key="k") is value
    for row in base:
        cache.store(Noted(row), "row", True)
    assert sum(cache.remembered(row, key="row") is not None for row in base) <= 8
    del base, row
    gc.collect()
    assert (cache.info().entries, cache._views) == (0, {})


def test_views_of_two_tensors(cache):
    one, other = torch.arange(600).view(2, 300), torch.arange(600).view(2, 300)
    for at in range(20):
        cache.store(Noted(one[:, at : at + 3], other), "k", True)
    assert cache.remembered(one[:, 19:22], other, key="k") is True
    assert cache.remembered(one[:, 0:3], other, key="k") is None
    assert cache.info().entries == 8
    del one
    gc.collect()
    assert (cache.info().entries, cache._views) == (0, {})


def test_a_write_to_a_few_entries_of_one_large_tensor_needs_the_full_check(cache, monkeypatch):
    small, large = torch.arange(3), torch.zeros(2, 40_000, dtype=torch.long)
    monkeypatch.setenv("ONEHOP_CHECK", "full")
    value = cache.remembered(small, large, key="k", make=Maker())
    assert cache.remembered(small, large, key="k") is value
    assert cache.info().bytes == value.nbytes + small.nbytes + large.nbytes
    large.data[0, 12_345] = 1
    assert cache.remembered(small, large, key="k") is None


@pytest.mark.parametrize("at", [None, 0, 1])
def test_with_one_tensor_of_inference_mode_nothing_is_kept(at, cache):
    make, plain = Maker(), torch.arange(4)
    with torch.inference_mode():
        other = torch.arange(4)
    given = {None: (other,), 0: (other, plain), 1: (plain, other)}[at]
    for calls in (1, 2):
        assert int(cache.remembered(*given, key="k", make=make)[0]) == calls
    cache.store(Noted(*given), "k", True)
    assert cache.info().entries == 0


def test_what_is_made_can_be_used_outside_inference_mode(cache):
    weight = torch.ones(3, requires_grad=True)
    with torch.inference_mode():
        made = cache.remembered(weight, key="k", make=lambda: weight * 2)
    assert not made.is_inference()
    assert not made.requires_grad
    (made * weight).sum().backward()
    assert weight.grad.tolist() == [2, 2, 2]


@pytest.mark.parametrize("value", [False, 0, (), {}], ids=repr)
def test_values_that_are_false_are_kept(value, cache):
    tensor = torch.arange(4)
    assert cache.remembered(tensor, key="k", make=lambda: value) is value
    assert cache.remembered(tensor, key="k") is value


def test_none_is_not_kept(cache):
    tensor, make = torch.arange(4), Maker()
    assert cache.remembered(tensor, key="k", make=lambda: None) is None
    assert cache.info().entries == 0
    assert int(cache.remembered(tensor, key="k", make=make)[0]) == 1


def test_what_cannot_be_made_raises_and_leaves_nothing(cache):
    tensor = torch.arange(4)

    def fails() -> Tensor:
        raise ValueError("cannot")

    with pytest.raises(ValueError, match="cannot"):
        cache.remembered(tensor, key="k", make=fails)
    assert torch.is_grad_enabled()
    assert cache.info().entries == 0


def test_one_memory_may_be_used_while_making(cache):
    one, other = tensors(2)
    make = Maker()

    def outer() -> Tensor:
        return cache.remembered(one, key="inner", make=make) + 1

    assert cache.remembered(one, other, key="outer", make=outer).tolist() == [2, 2, 2]
    assert cache.remembered(one, other, key="outer", make=outer).tolist() == [2, 2, 2]
    assert make.calls == 1


@pytest.mark.parametrize("at", [0, 1])
def test_an_untouched_copy_counts_as_the_kept_tensor(at, cache):
    kept, other = tensors(2)
    value = cache.remembered(*((kept, other), (other, kept))[at], key="k", make=Maker())
    lent = lend(kept)
    assert cache.remembered(*((lent, other), (other, lent))[at], key="k") is value
    lent[0, 0] = 7
    assert cache.remembered(*((lent, other), (other, lent))[at], key="k") is None
    # That was another tensor; what was made of the kept one is still there.
    assert cache.remembered(*((lend(kept), other), (other, lend(kept)))[at], key="k") is value
    other.add_(1)
    assert cache.remembered(*((lend(kept), other), (other, lend(kept)))[at], key="k") is None


def test_native_code_reads_a_clone_of_an_untouched_copy():
    kept = torch.arange(6)
    lent = lend(kept)
    assert readable(kept) is kept
    clone = readable(lent)
    clone.data_ptr()
    assert clone.tolist() == kept.tolist()
    assert not is_shared(clone)
    assert original(lent) is kept
    lent[0] = 5
    assert readable(lent) is lent


def test_the_bound_holds_for_what_is_made_of_several(cache):
    cache = IdentityCache(lambda: 100)
    given = tensors(4)
    for one, other in pairwise(given):
        cache.remembered(one, other, key="k", make=lambda: torch.zeros(45, dtype=torch.int8))
    info = cache.info()
    assert (info.entries, info.bytes, info.evictions) == (2, 90, 1)
    assert cache.remembered(*given[:2], key="k") is None


def test_an_entry_that_is_dropped_while_its_bytes_are_counted(cache):
    """As the garbage collector may do it at any time."""
    holders = [torch.arange(4)]
    armed: list[bool] = []

    class Dropping:
        @property
        def nbytes(self) -> int:
            if armed:
                holders.clear()
            return 100

    cache.store(Noted(holders[0]), "k", Dropping())
    assert cache.info().bytes == 100
    armed.append(True)
    assert (cache.info().entries, cache.info().bytes) == (0, 0)


def test_threads(cache):
    shared, own_key = tensors(4), "k"
    pairs = [(one, other) for one in shared for other in shared]
    wrong: list[object] = []

    def make(one: int, other: int) -> Callable[[], np.ndarray]:
        return lambda: np.array([one, other])

    def work(seed: int) -> None:
        for step in range(400):
            at = (step * 7 + seed) % len(pairs)
            found = cache.remembered(*pairs[at], key=own_key, make=make(*divmod(at, 4)))
            if tuple(found) != divmod(at, 4):
                wrong.append(found)
            cache.remembered(torch.zeros(3), shared[0], key=own_key, make=lambda: True)
            if step % 50 == 0:
                cache.clear()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert wrong == []
    assert cache.info().entries <= len(pairs)
    assert cache.info().bytes == 16 * cache.info().entries


MEANWHILE = {
    "counted": lambda tensor: tensor.add_(1),
    "through NumPy": lambda tensor: np.add(tensor.numpy(), 1, out=tensor.numpy()),
}


@pytest.mark.parametrize("write", MEANWHILE)
def test_a_write_while_a_value_is_made_is_one_afterwards(write, cache):
    # As another thread may write, after the tensor has been read.
    tensor = torch.arange(4)

    def make() -> Tensor:
        made = tensor.clone()
        MEANWHILE[write](tensor)
        return made

    assert cache.remembered(tensor, key="k", make=make).tolist() == [0, 1, 2, 3]
    assert cache.remembered(tensor, key="k") is None
    assert cache.remembered(tensor, key="k", make=tensor.clone).tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("write", MEANWHILE)
def test_what_is_stored_is_of_the_noted_state(write, cache):
    tensor = torch.arange(4)
    noted = Noted(tensor)
    MEANWHILE[write](tensor)
    cache.store(noted, "k", True)
    assert cache.remembered(tensor, key="k") is None


def test_nothing_is_stored_for_a_tensor_that_was_freed(cache):
    cache.store(Noted(torch.arange(4)), "k", True)
    assert cache.info().entries == 0


def test_all_of_a_large_tensor_is_compared_where_that_is_asked_for(cache):
    tensor, make = torch.zeros(200_000, dtype=torch.int64), Maker()
    first = cache.remembered(tensor, key="k", make=make, whole=True)
    assert cache.remembered(tensor, key="k", make=make, whole=True) is first
    tensor.numpy()[12_345] = 1
    assert cache.remembered(tensor, key="k", make=make, whole=True) is not first


def test_a_tensor_without_memory_has_no_contents(cache):
    zeros = torch._efficientzerotensor((200_000,))
    for whole in (False, True):
        value = cache.remembered(zeros, key=whole, make=lambda: (1,), whole=whole)
        assert cache.remembered(zeros, key=whole) is value
