"""The random numbers of PyG's loaders under the patch: each batch has its own; a seed gives them again."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import (
    GraphSAINTEdgeSampler,
    GraphSAINTNodeSampler,
    GraphSAINTRandomWalkSampler,
    HGTLoader,
    LinkNeighborLoader,
    NeighborLoader,
    ShaDowKHopSampler,
)

import onehop
from onehop import Graph
from tests.integrations.pyg.loader_graphs import patched as patched

pytestmark = pytest.mark.usefixtures("patched")

BATCHES = 12
SAME = torch.zeros(BATCHES, dtype=torch.int64)


def star() -> Data:
    """Node 0 has 100 neighbours, in both directions."""
    spokes = torch.stack([torch.arange(1, 101), torch.zeros(100, dtype=torch.int64)])
    return Data(x=torch.arange(101), edge_index=torch.cat([spokes, spokes.flip(0)], 1))


def typed_star() -> HeteroData:
    data = HeteroData()
    data["a"].x, data["a", "to", "a"].edge_index = torch.arange(101), star().edge_index
    return data


def own_sampler() -> Any:
    return onehop.NeighborSampler(Graph.from_edge_index(star().edge_index), [5])


# Each batch of most of them is around node 0.
LOADERS: dict[str, Callable[..., Any]] = {
    "neighbours": lambda **o: NeighborLoader(star(), [5], input_nodes=SAME, **o),
    "own sampler": lambda **o: NeighborLoader(
        star(), [], neighbor_sampler=own_sampler(), input_nodes=SAME, **o
    ),
    "links": lambda **o: LinkNeighborLoader(star(), [5], torch.stack([SAME, SAME]), **o),
    "negatives": lambda **o: LinkNeighborLoader(
        star(), [0], torch.stack([SAME, SAME]), neg_sampling="binary", neg_sampling_ratio=3, **o
    ),
    "layers": lambda **o: HGTLoader(typed_star(), [5], input_nodes=("a", SAME), **o),
    "around nodes": lambda **o: ShaDowKHopSampler(star(), 1, 5, SAME, **o),
    "saint nodes": lambda **o: GraphSAINTNodeSampler(star(), 20, BATCHES, log=False, **o),
    "saint edges": lambda **o: GraphSAINTEdgeSampler(star(), 20, BATCHES, log=False, **o),
    "saint walks": lambda **o: GraphSAINTRandomWalkSampler(star(), 20, 3, BATCHES, log=False, **o),
}
# Those whose batches are the same for any number of workers.
NUMBERED = ("neighbours", "own sampler", "links", "negatives", "layers")


def epochs(kind: str, count: int, **options: Any) -> list[list[tuple[int, ...]]]:
    """The nodes of each batch of some epochs of a new loader."""
    torch.manual_seed(1)
    loader = LOADERS[kind](**options)
    found = [drawn(loader) for _ in range(count)]
    loader._iterator = None  # ends workers; they are in a circle of references
    return found


def drawn(loader: Any) -> list[tuple[int, ...]]:
    """The nodes of each batch of an epoch."""
    stores = (batch["a"] if isinstance(batch, HeteroData) else batch for batch in loader)
    nodes: list[Tensor] = [store["n_id"] if "n_id" in store else store["x"] for store in stores]
    return [tuple(each.tolist()) for each in nodes]


@pytest.mark.parametrize("kind", LOADERS)
@pytest.mark.parametrize("workers", [0, 2])
def test_no_two_batches_share_random_numbers(kind: str, workers: int) -> None:
    options = {"num_workers": workers, "persistent_workers": workers > 0}
    found = epochs(kind, 2, **options)
    # Nodes of a SAINT may be few by chance; two equal draws of 5 in 100 are as likely as one in 10^7.
    assert len({*found[0], *found[1]}) > 2 * BATCHES - 2
    assert epochs(kind, 2, **options) == found


@pytest.mark.parametrize("kind", LOADERS)
@pytest.mark.parametrize("workers", [0, 2])
def test_a_seed_set_anew_draws_the_same_again(kind: str, workers: int) -> None:
    loader = LOADERS[kind](num_workers=workers)
    torch.manual_seed(1)
    first = drawn(loader)
    torch.manual_seed(1)
    assert drawn(loader) == first
    torch.manual_seed(2)
    assert drawn(loader) != first
    torch.manual_seed(1)
    next(iter(loader))  # an epoch that is left
    torch.manual_seed(1)
    assert drawn(loader) == first


@pytest.mark.parametrize("kind", NUMBERED)
def test_batches_of_the_same_seeds_do_not_depend_on_workers(kind: str) -> None:
    alone = epochs(kind, 2)
    assert epochs(kind, 2, num_workers=2) == alone
    lasting = epochs(kind, 3, num_workers=2, persistent_workers=True)
    assert lasting[0] == alone[0]
    assert epochs(kind, 3, num_workers=1, persistent_workers=True) == lasting


def test_an_epoch_that_was_left_leaves_nothing_to_chance() -> None:
    def second() -> list[tuple[int, ...]]:
        torch.manual_seed(1)
        loader = LOADERS["neighbours"](num_workers=2, persistent_workers=True)
        next(iter(loader))
        found = drawn(loader)
        loader._iterator = None
        return found

    assert second() == second()


def test_a_generator_of_the_loader_decides() -> None:
    def found(seed: int, **options: Any) -> list[tuple[int, ...]]:
        generator = torch.Generator().manual_seed(seed)
        return drawn(LOADERS["neighbours"](generator=generator, **options))

    torch.manual_seed(0)
    first = found(1)
    torch.manual_seed(5)
    assert found(1) == found(1, num_workers=2) == first
    assert found(2) != first


def test_two_iterators_of_a_loader_do_not_disturb_each_other() -> None:
    loader = LOADERS["neighbours"]()
    torch.manual_seed(1)
    first, second = drawn(loader), drawn(loader)
    torch.manual_seed(1)
    both = list(zip(loader, loader, strict=True))
    assert [tuple(batch.n_id.tolist()) for batch, _ in both] == first
    assert [tuple(batch.n_id.tolist()) for _, batch in both] == second


def test_outside_of_an_epoch_torchs_generator_draws() -> None:
    loader = LOADERS["neighbours"]()
    drawn(loader)
    torch.manual_seed(1)
    first = loader([0]).n_id.tolist()
    drawn(loader)
    torch.manual_seed(1)
    assert loader([0]).n_id.tolist() == first


def test_threads_draw_for_the_same_seeds_what_no_thread_draws() -> None:
    def found(threads: int) -> list[tuple[int, ...]]:
        torch.manual_seed(1)
        return drawn(onehop.loader(own_sampler(), SAME, threads=threads))

    first = found(0)
    assert len(set(first)) == BATCHES
    assert found(2) == found(1) == first
    torch.manual_seed(1)
    assert drawn(LOADERS["own sampler"]()) == first
