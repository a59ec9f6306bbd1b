"""PyG's negative sampling under the patch: its results, and the states of all generators, bit for bit."""

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.transforms as transforms
import torch_geometric.utils as utils
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn.models import autoencoder, signed_gcn

import onehop
from onehop.integrations.pyg import negatives
from onehop.kernels.cpu.negatives import Pairs
from tests.integrations.same import Run, assert_identical, outcome

SEEDS = range(3)


@pytest.fixture(autouse=True)
def _generators_kept() -> Iterator[None]:
    state = random.getstate()
    yield
    random.setstate(state)


@pytest.fixture
def served(monkeypatch) -> list[str]:
    """The names of our functions that returned a result."""
    calls: list[str] = []

    def counted(name: str) -> Callable[..., Any]:
        function = getattr(negatives, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            out = function(*args, **kwargs)
            # The comparison with PyG at first use has generators of its own.
            if args[0] is random._inst or (name == "_redrawn" and len(args) == 3):
                calls.append(name)
            return out

        return call

    for name in ("_drawn", "_redrawn"):
        monkeypatch.setattr(negatives, name, counted(name))
    return calls


def states() -> tuple[Any, ...]:
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002
    return random.getstate(), (kind, keys.tolist(), *rest), torch.get_rng_state().tolist()


def drawn(call: Run, seed: int = 0, before: Run | None = None) -> tuple[Any, ...]:
    """Two results or errors in a row, and the states of the generators afterwards."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    torch.manual_seed(seed)
    if before is not None:
        before()
    return outcome(call), outcome(call), states()


def compare(call: Run, seed: int = 0, before: Run | None = None) -> None:
    """Compares a call of PyG's function with one under the patch."""
    expected = drawn(call, seed, before)
    with onehop.patch():
        assert_identical(drawn(call, seed, before), expected)


def edges(nodes: int | tuple[int, int], count: int, seed: int = 0) -> Tensor:
    """[2, count], some repeated or from a node to itself."""
    generator = torch.Generator().manual_seed(seed)
    sizes = (nodes, nodes) if isinstance(nodes, int) else nodes
    return torch.stack([torch.randint(size, (count,), generator=generator) for size in sizes])


def complete(nodes: int, without: int = 0) -> Tensor:
    """All edges between these nodes, or all but the last ones."""
    found = (1 - torch.eye(nodes, dtype=torch.long)).nonzero().t().contiguous()
    return found[:, : found.size(1) - without]


# The edges, and the arguments behind them.
GRAPHS: dict[str, tuple[Tensor, tuple[Any, ...]]] = {
    "edge": (torch.tensor([[0], [1]]), ()),
    "loops alone": (torch.tensor([[0, 1, 2], [0, 1, 2]]), (3,)),
    "few nodes": (edges(7, 12), ()),
    "nearly complete": (complete(9, without=4), (9, 3)),
    "complete": (complete(6), ()),
    "complete for one": (torch.tensor([[0, 0], [0, 0]]), (1,)),
    "more than there are": (edges(10, 30), (10, 10**6)),
    "as many as there are": (edges(10, 30), (10, 90)),
    "twice": (edges(12, 60), (None, 2.0)),
    "a half": (edges(12, 60), (12, 0.5)),
    "several samples of a list": (complete(8, without=20), (8, 16)),
    "several samples of half": (complete(60, without=1800), (60, 3)),
    "several samples of most": (edges(200, 1_200), (200, 5)),
    "in one word": (edges(300, 900), (300, 900)),
    "in 32 bits": (edges(60_000, 700), (60_000, 700)),
    "in two words": (edges(70_000, 700), (70_000, 2500)),
    "of a million nodes": (edges(1_000_000, 50), (1_000_000, 200)),
    "in 60 bits": (edges((2**29, 2**30), 50), ((2**29, 2**30 - 1), 200)),
    "in blocks": (edges(400, 5_000), (400, 9_000)),
    "in a list": (edges(30, 100), (30, 400)),
    "views": (edges(50, 200).t().contiguous().t(), (50, 300)),
    "every other": (edges(50, 200)[:, ::2], (50, 300)),
    "two sets": (edges((20, 90), 200), ((20, 90), 300)),
    "two sets as a list": (edges((20, 90), 200), ([20, 90], 0.7)),
    "sets of one": (edges((1, 90), 50), ((1, 90), 40)),
}


# PyG's dense method takes a byte for each pair.
LARGE = ("in 32 bits", "in two words", "of a million nodes", "in 60 bits")


@pytest.mark.parametrize(
    ("name", "method"),
    [
        (name, method)
        for name in GRAPHS
        for method in ("sparse", "dense")
        if name not in LARGE or method == "sparse"
    ],
)
def test_negative_edges(name, method, served):
    edge_index, more = GRAPHS[name]
    given = edge_index.clone()
    num_nodes, num_neg_samples = (*more, None, None)[:2]
    for undirected in (False, True):
        for seed in SEEDS:
            compare(
                lambda undirected=undirected: utils.negative_sampling(
                    edge_index, num_nodes, num_neg_samples, method, undirected
                ),
                seed,
            )
    # An undirected request for a single pair is one for half a pair.
    assert len(served) >= 2 * len(SEEDS)
    assert torch.equal(edge_index, given)


def _in_block(words: int) -> Callable[[], None]:
    def draw() -> None:
        for _ in range(words):
            random.getrandbits(32)

    return draw


STATES: dict[str, Callable[[], Any]] = {
    **{f"{words} words on": _in_block(words) for words in (1, 623, 624, 625)},
    "at a block's first word": lambda: random.setstate((3, (*random.getstate()[1][:-1], 0), None)),
    "with a normal number": lambda: random.gauss(0, 1),
}


@pytest.mark.parametrize("name", STATES)
def test_states_of_the_generator(name, served):
    edge_index = edges(90, 400)
    compare(lambda: utils.negative_sampling(edge_index, 90), before=STATES[name])
    assert len(served) == 2


@pytest.mark.parametrize("loops", [True, False])
@pytest.mark.parametrize(
    ("edge_index", "num_nodes"),
    [
        (edges(40, 400), None),
        (edges(40, 400), 60),
        (torch.tensor([[0], [1]]), None),
        (complete(7)[:, 6:], None),
        (edges(70_000, 700), 70_000),
        (edges(50, 200).t().contiguous().t()[:, ::3], 50),
    ],
    ids=["numbers", "with more nodes", "edge", "rows without a choice but one", "many nodes", "views"],
)
def test_structured(edge_index, num_nodes, loops, served):
    if not loops and num_nodes is None and edge_index.size(1) in (1, 36):
        num_nodes = 9  # else no other node were left
    for seed in SEEDS:
        compare(lambda: utils.structured_negative_sampling(edge_index, num_nodes, loops), seed)
        compare(lambda: utils.structured_negative_sampling_feasible(edge_index, num_nodes, loops), seed)
    assert len(served) == 2 * len(SEEDS)


def test_batches(served):
    batch = torch.tensor([0] * 12 + [1] * 30 + [2] * 9)
    parts = [edges(12, 40), edges(30, 100) + 12, edges(9, 20) + 42]
    edge_index = torch.cat(parts, dim=1)
    for more in ((), (1.5, "dense"), (15, "sparse", True)):
        compare(lambda more=more: utils.batched_negative_sampling(edge_index, batch, *more))
    sets = torch.cat([edges((12, 30), 40), edges((30, 12), 90) + torch.tensor([[12], [30]])], dim=1)
    first, second = torch.tensor([0] * 12 + [1] * 30), torch.tensor([0] * 30 + [1] * 12)
    compare(lambda: utils.batched_negative_sampling(sets, (first, second)))
    assert len(served) == 2 * (3 * 3 + 2)


def test_link_splits(served):
    data = Data(edge_index=utils.to_undirected(edges(60, 200)), num_nodes=60)
    split = transforms.RandomLinkSplit(is_undirected=True, add_negative_train_samples=True)
    compare(lambda: tuple(part.edge_label_index for part in split(data)))
    assert served


REFUSALS: dict[str, Callable[[Tensor], Any]] = {
    "int32": lambda index: utils.negative_sampling(index.int(), 30),
    "three rows": lambda index: utils.negative_sampling(torch.cat([index, index[:1]]), 30),
    "no edges": lambda index: utils.negative_sampling(index[:, :0], 30, 20),
    "no edges, no nodes": lambda index: utils.negative_sampling(index[:, :0]),
    "out of range": lambda index: utils.negative_sampling(index, 20),
    "out of range, dense": lambda index: utils.negative_sampling(index, 20, method="dense"),
    "out of range, undirected": lambda index: utils.negative_sampling(index, 20, force_undirected=True),
    "negative": lambda index: utils.negative_sampling(index - 1, 30),
    "no nodes": lambda index: utils.negative_sampling(index, 0),
    "nodes of NumPy": lambda index: utils.negative_sampling(index, np.int64(30)),
    "nodes in a tensor": lambda index: utils.negative_sampling(index, torch.tensor([30, 30])),
    "three sets": lambda index: utils.negative_sampling(index, (30, 30, 30)),
    "no pairs wanted": lambda index: utils.negative_sampling(index, 30, 0),
    "half a pair wanted": lambda index: utils.negative_sampling(index, 30, 1, force_undirected=True),
    "fewer than none wanted": lambda index: utils.negative_sampling(index, 30, -5),
    "not a number wanted": lambda index: utils.negative_sampling(index, 30, float("nan")),
    "no end of pairs wanted": lambda index: utils.negative_sampling(index, 30, float("inf")),
    "a tensor wanted": lambda index: utils.negative_sampling(index, 30, torch.tensor(20)),
    "unknown method": lambda index: utils.negative_sampling(index, 30, method="other"),
    "a number for a flag": lambda index: utils.negative_sampling(index, 30, force_undirected=1),
    "too many pairs": lambda index: utils.negative_sampling(index, (2**31, 2**31), 5),
    "structured, int32": lambda index: utils.structured_negative_sampling(index.int(), 30),
    "structured, no edges": lambda index: utils.structured_negative_sampling(index[:, :0], 30),
    "structured, out of range": lambda index: utils.structured_negative_sampling(index, 20),
    "structured, two sets": lambda index: utils.structured_negative_sampling(index, (30, 30)),
    "structured, in float64 by default": lambda index: utils.structured_negative_sampling(index, 30.0),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", REFUSALS)
def test_pyg_runs_what_does_not_fit(name, served):
    edge_index = edges(30, 80, seed=3)
    compare(lambda: REFUSALS[name](edge_index))
    assert not served


def test_pyg_runs_where_the_patch_has_no_part(served):
    edge_index = edges(30, 80)

    def both() -> tuple[Any, ...]:
        return utils.negative_sampling(edge_index), utils.structured_negative_sampling(edge_index)

    expected = drawn(both)
    for options in ({"only": ["GCNConv"]}, {"backend": "reference"}):
        with onehop.patch(**options):
            assert_identical(drawn(both), expected)
    assert not served


def test_other_modules_of_pyg():
    before = autoencoder.negative_sampling, signed_gcn.structured_negative_sampling
    onehop.patch()
    assert autoencoder.negative_sampling is utils.negative_sampling is not before[0]
    assert signed_gcn.structured_negative_sampling is utils.structured_negative_sampling is not before[1]
    onehop.unpatch()
    assert (autoencoder.negative_sampling, signed_gcn.structured_negative_sampling) == before


_OTHER = random.Random()


def _reversed_sample(population: Any, k: int) -> list[int]:
    return random.Random(5).sample(population, k)[::-1]


def _other_sample(population: int, k: int, device: Any = None) -> Tensor:
    return torch.arange(k, device=device)


REPLACED: dict[str, tuple[Any, str, Any]] = {
    "random.sample": (random, "sample", _reversed_sample),
    "a method of another generator": (random, "sample", _OTHER.sample),
    "the shared generator": (random, "_inst", _OTHER),
    "a method of the generator": (random._inst, "getrandbits", _OTHER.getrandbits),
    "a method of the class": (random.Random, "_randbelow", lambda self, n: self.getrandbits(70) % n),
    "PyG's sample": (utils._negative_sampling, "sample", _other_sample),
    "PyG's numbers": (
        utils._negative_sampling,
        "vector_to_edge_index",
        lambda index, *more: torch.stack([index, index]),
    ),
}


@pytest.mark.parametrize("name", REPLACED)
def test_pyg_runs_where_a_part_of_it_was_replaced(name, served, monkeypatch):
    monkeypatch.setattr(*REPLACED[name])
    edge_index = edges(2_000, 90)
    compare(lambda: utils.negative_sampling(edge_index, 2_000, 2), before=lambda: _OTHER.seed(7))
    assert not served


def test_numbers_that_another_thread_draws_are_not_used(served, monkeypatch):
    edge_index = edges(90, 400)
    draw = Pairs.draw
    onehop.patch()

    def disturbed(times: int) -> tuple[Any, ...]:
        left = [times]

        def with_another(self: Pairs, *args: Any) -> Tensor:
            out = draw(self, *args)
            if left[0]:
                left[0] -= 1
                random.random()
            return out

        monkeypatch.setattr(Pairs, "draw", with_another)
        return drawn(lambda: utils.negative_sampling(edge_index, 90))

    found = disturbed(2)
    assert served == ["_drawn", "_drawn"]
    always = disturbed(3)
    assert len(served) == 3  # PyG drew the first of these two
    onehop.unpatch()
    for ours, times in ((found, 2), (always, 3)):
        expected = drawn(lambda: utils.negative_sampling(edge_index, 90), before=_in_block(2 * times))
        assert_identical(ours, expected)


def test_two_threads(served):
    edge_index = edges(500, 4_000)

    def draw(_: int = 0) -> Tensor:
        return utils.negative_sampling(edge_index, 500, 20_000)

    expected = drawn(draw)
    onehop.patch()
    random.seed(0)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(draw, range(2)))
    assert len(served) == 2
    # Their order is open, and no number is used by both.
    if not torch.equal(found[0], expected[0]):
        found.reverse()
    assert_identical(tuple(found), expected[:2])
    assert random.getstate() == expected[-1][0]


def test_transforms_and_inference(served):
    edge_index = edges(30, 80)
    onehop.patch()
    torch.func.vmap(lambda x: x + utils.negative_sampling(edge_index, 30).size(1))(torch.ones(2))
    with torch.inference_mode():
        utils.negative_sampling(edge_index.clone(), 30)
    assert not served
    with torch.inference_mode():
        assert utils.negative_sampling(edge_index, 30).is_inference()
    assert served == ["_drawn"]


def test_default_device(served):
    edge_index = edges(30, 80)
    onehop.patch()
    with torch.device("meta"):
        assert utils.negative_sampling(edge_index, 30).is_cpu
        with pytest.raises((RuntimeError, NotImplementedError, TypeError)):
            utils.structured_negative_sampling(edge_index, 30)
    assert served == ["_drawn"]
