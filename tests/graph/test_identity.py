"""The cache that recognises tensors: views and aliases, bounds, counts, threads and forks."""

import gc
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

import onehop
from onehop.graph.contents import Noted
from onehop.graph.identity import CACHE, IdentityCache
from onehop.native import extension


class Held:
    """Something with a size that may grow."""

    def __init__(self, nbytes: int = 100) -> None:
        self.nbytes = nbytes


@pytest.fixture
def cache() -> IdentityCache:
    return IdentityCache(lambda: 1000)


@pytest.fixture
def tensor() -> Tensor:
    return torch.arange(12).view(2, 6).clone()


@pytest.fixture(autouse=True)
def _empty_global_cache() -> Iterator[None]:
    yield
    onehop.clear_cache()


def test_uncounted_writes_to_few_entries_of_a_large_tensor_need_the_full_check(monkeypatch):
    cache = IdentityCache(lambda: 1 << 20)
    tensor, held = torch.zeros(2, 40_000, dtype=torch.long), Held()
    cache.store(Noted(tensor), "graph", held)
    tensor.data[0, 12_345] = 1
    # The documented blind spot.
    assert cache.find(tensor, "graph") is held
    tensor.data[0, ::3] = 1
    assert cache.find(tensor, "graph") is None
    cache.store(Noted(tensor), "graph", held)
    monkeypatch.setenv("ONEHOP_CHECK", "full")
    # What was stored without its contents cannot be checked, so it is not used.
    assert cache.find(tensor, "graph") is None
    cache.store(Noted(tensor), "graph", held)
    assert cache.find(tensor, "graph") is held
    tensor.data[0, 12_346] = 5
    assert cache.find(tensor, "graph") is None


def test_writes_to_a_view_that_torch_does_not_count_are_seen(cache):
    base = torch.zeros(3, 2, 50_000, dtype=torch.long)
    view, held = base[1], Held()
    cache.store(Noted(view), "graph", held)
    base.data[0] = 7
    base.data[2] = 7
    assert cache.find(base[1], "graph") is held
    view.data[:, ::50] = 1
    assert cache.find(base[1], "graph") is None


def test_an_alias_with_a_counter_of_its_own_is_another_tensor(cache):
    buffer = torch.zeros(2, 40_000, dtype=torch.long)
    alias = buffer.data
    cache.store(Noted(alias), "graph", Held())
    assert cache.find(buffer, "graph") is None
    buffer[0, 12_345] = 1
    again = buffer.data
    assert again._version == alias._version
    assert cache.find(again, "graph") is None


def test_of_the_views_of_one_tensor_the_last_are_remembered(cache):
    base = torch.arange(600).view(2, 300)
    views = [base[:, i : i + 3] for i in range(100)]
    for view in views:
        cache.store(Noted(view), "graph", Held(1))
        cache.store(Noted(view), "scales", Held(1))
    assert [cache.find(view, "graph") is not None for view in views] == [False] * 92 + [True] * 8
    assert cache.find(views[-1], "scales") is not None
    assert cache.info().entries == cache.info().bytes == 16
    # A view that is stored again is the newest.
    cache.store(Noted(views[92]), "norm", Held(1))
    cache.store(Noted(views[0]), "graph", Held(1))
    assert [cache.find(view, "graph") is not None for view in views[92:94]] == [True, False]
    del view, views, base
    assert cache.info().entries == 0
    assert cache._views == {}


def test_bytes_are_counted_again_where_a_value_was_used_since(cache, tensor):
    asked = []

    class Asked(Held):
        @property
        def nbytes(self):
            asked.append(self)
            return 1

        @nbytes.setter
        def nbytes(self, value):
            pass

    first, other = Asked(1), torch.ones(3)
    cache.store(Noted(tensor), "graph", first)
    cache.store(Noted(other), "graph", Held(1))
    assert asked == [first]
    assert cache.find(tensor, "graph") is first
    cache.store(Noted(other), "scales", Held(1))
    assert asked == [first, first]


def test_clearing_forgets_views_too(cache):
    base = torch.arange(600).view(2, 300)
    cache.store(Noted(base[:, 3:6]), "graph", Held(1))
    cache.clear()
    assert cache._views == {}
    assert (cache.info().entries, cache.info().bytes) == (0, 0)


def test_equal_views_of_one_tensor_are_recognised(cache, tensor):
    held = Held()
    cache.store(Noted(tensor[:, :4]), "graph", held)
    assert cache.find(tensor[:, :4], "graph") is held
    assert cache.find(tensor[:, 1:5], "graph") is None
    assert cache.find(tensor[:, :5], "graph") is None
    assert cache.find(tensor, "graph") is None
    assert cache.find(tensor[:, :4].view(torch.float64), "graph") is None
    tensor.add_(1)
    assert cache.find(tensor[:, :4], "graph") is None


def test_the_least_recently_used_goes_first(cache):
    tensors = [torch.zeros(2, n, dtype=torch.long) for n in range(1, 5)]
    for tensor in tensors[:3]:
        cache.store(Noted(tensor), "graph", Held(300))
    cache.find(tensors[0], "graph")
    cache.store(Noted(tensors[3]), "graph", Held(300))
    assert [cache.find(tensor, "graph") is not None for tensor in tensors] == [True, False, True, True]
    info = cache.info()
    assert (info.entries, info.bytes, info.evictions, info.limit_bytes) == (3, 900, 1, 1000)


def test_what_is_larger_than_the_bound_is_not_kept(cache, tensor):
    cache.store(Noted(tensor), "graph", Held(1001))
    assert cache.find(tensor, "graph") is None
    assert cache.info().bytes == 0


def test_growth_after_storing_is_counted(cache):
    tensors = [torch.zeros(2, n, dtype=torch.long) for n in range(1, 4)]
    values = [Held(100) for _ in tensors]
    for tensor, value in zip(tensors, values, strict=True):
        cache.store(Noted(tensor), "graph", value)
    for tensor, value in zip(tensors, values, strict=True):
        assert cache.find(tensor, "graph") is value
        value.nbytes = 450
    assert cache.info().bytes == 1350
    extra = torch.zeros(1, dtype=torch.long)
    cache.store(Noted(extra), "graph", Held(50))
    assert cache.info().bytes <= 1000


def test_growth_is_noticed_by_lookups_alone(cache, tensor):
    value = Held(100)
    cache.store(Noted(tensor), "graph", value)
    others = [torch.zeros(2, n, dtype=torch.long) for n in range(1, 41)]
    for other in others:
        cache.store(Noted(other), "graph", Held(1))
    cache.find(tensor, "graph")
    value.nbytes = 5000
    for other in others:
        cache.find(other, "graph")
    assert cache.find(tensor, "graph") is None
    assert cache.info().bytes <= 1000


def test_the_bound_comes_from_the_environment(monkeypatch, tensor):
    monkeypatch.setenv("ONEHOP_CACHE_BYTES", "10")
    assert onehop.cache_info().limit_bytes == 10
    CACHE.store(Noted(tensor), "graph", Held(11))
    assert onehop.cache_info().entries == 0
    monkeypatch.setenv("ONEHOP_CACHE_BYTES", "a few")
    with pytest.raises(onehop.ConfigurationError, match="ONEHOP_CACHE_BYTES"):
        CACHE.store(Noted(tensor), "graph", Held(1))


def test_a_wrong_check_setting_is_an_error(monkeypatch, tensor):
    monkeypatch.setenv("ONEHOP_CHECK", "sometimes")
    with pytest.raises(onehop.ConfigurationError, match="ONEHOP_CHECK"):
        CACHE.store(Noted(tensor), "graph", Held())


def test_a_transpose_that_appears_later_is_counted(tensor):
    graph = onehop.Graph.from_edge_index(tensor)
    CACHE.store(Noted(tensor), "graph", graph)
    before = onehop.cache_info().bytes
    assert before == graph.nbytes
    assert graph.transposed_csr is not None
    assert onehop.cache_info().bytes == graph.nbytes > before


def test_clearing_forgets_everything_and_empties_the_pool(tensor):
    CACHE.store(Noted(tensor), "graph", Held())
    block = extension.pool_empty([1 << 20], 0)
    del block
    assert extension.pool_info()["kept_bytes"] > 0
    onehop.clear_cache()
    assert onehop.cache_info().entries == 0
    assert onehop.cache_info().bytes == 0
    assert extension.pool_info()["kept_bytes"] == 0
    assert CACHE.find(tensor, "graph") is None


def test_hits_and_misses_are_counted(cache, tensor):
    cache.find(tensor, "graph")
    cache.store(Noted(tensor), "graph", Held())
    cache.find(tensor, "graph")
    cache.find(tensor, "graph")
    info = cache.info()
    assert (info.hits, info.misses) == (2, 1)
    tensor[0, 0] = 5  # what is there no longer fits
    cache.find(tensor, "graph")
    info = cache.info()
    assert (info.hits, info.misses) == (2, 2)


def test_a_value_that_frees_tensors_when_dropped(cache):
    """Dropping an entry runs the callbacks of what it held, which drop further entries."""

    class Chain(Held):
        def __init__(self, tensor: Tensor | None) -> None:
            super().__init__(100)
            self.tensor = tensor

    first, second, third = (torch.zeros(2, n, dtype=torch.long) for n in (1, 2, 3))
    cache.store(Noted(first), "derived", Chain(second))
    cache.store(Noted(second), "derived", Chain(third))
    cache.store(Noted(third), "graph", Held())
    del second, third
    assert cache.info().entries == 3
    del first
    gc.collect()
    assert cache.info().entries == 0
    assert cache.info().bytes == 0


def test_threads(cache):
    shared = [torch.zeros(2, n, dtype=torch.long) for n in range(1, 9)]
    values = [Held(100) for _ in shared]
    wrong: list[object] = []

    def work(seed: int) -> None:
        for step in range(400):
            index = (step * 7 + seed) % len(shared)
            found = cache.find(shared[index], "graph")
            if found is None:
                cache.store(Noted(shared[index]), "graph", values[index])
            elif found is not values[index]:
                wrong.append(found)
            own = torch.zeros(2, 3, dtype=torch.long)
            cache.store(Noted(own), "graph", Held(10))
            if step % 50 == 0:
                cache.clear()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert wrong == []
    info = cache.info()
    assert info.bytes == 100 * info.entries
    assert info.bytes <= 1000


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # the child below starts no threads
def test_a_forked_child_can_use_it(tensor):
    held = Held()
    CACHE.store(Noted(tensor), "graph", held)
    stop = threading.Event()

    def keep_busy() -> None:
        while not stop.is_set():
            CACHE.find(tensor, "graph")

    thread = threading.Thread(target=keep_busy)
    thread.start()
    try:
        for _ in range(20):
            child = os.fork()
            if child == 0:
                os._exit(0 if CACHE.find(tensor, "graph") is held else 1)
            _, status = os.waitpid(child, 0)
            assert os.waitstatus_to_exitcode(status) == 0
    finally:
        stop.set()
        thread.join()


class OnDevice:
    """A value with bytes on the host and on another device."""

    def __init__(self, host, device):
        self.nbytes_by_device = {torch.device("cpu"): host, torch.device("cuda:1"): device}
        self.nbytes = host + device


def test_every_device_has_a_bound_of_its_own():
    cache = IdentityCache(lambda: 100, lambda device: 50)
    tensors = [torch.zeros(2, 3 + i, dtype=torch.long) for i in range(4)]
    for tensor, value in zip(
        tensors, (Held(60), OnDevice(5, 30), OnDevice(5, 10), OnDevice(5, 20)), strict=True
    ):
        cache.store(Noted(tensor), "graph", value)
    # Too much for the device: the oldest that has any of its memory goes, and nothing of the host's.
    assert [cache.find(tensor, "graph") is not None for tensor in tensors] == [True, False, True, True]
    info = cache.info()
    assert (info.bytes, info.limit_bytes) == (70, 100)
    assert (info.device_bytes, info.device_limit_bytes) == ({"cuda:1": 30}, {"cuda:1": 50})
    assert info.evictions == 1


def test_a_value_on_one_device_counts_there():
    cache = IdentityCache(lambda: 0, lambda device: 10)
    tensor, value = torch.zeros(2, 3, dtype=torch.long), Held(10)
    value.device = torch.device("cuda:0")
    cache.store(Noted(tensor), "graph", value)
    assert cache.find(tensor, "graph") is value
    assert (cache.info().bytes, cache.info().device_bytes) == (0, {"cuda:0": 10})
