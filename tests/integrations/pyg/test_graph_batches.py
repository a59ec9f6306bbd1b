"""Batches of small graphs from an InMemoryDataset: all that PyG's batches have."""

import contextlib
import copy
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch.utils.data import Subset
from torch_geometric import EdgeIndex
from torch_geometric.data import Batch, Data, InMemoryDataset
from torch_geometric.loader import DataLoader

import onehop
from onehop.integrations import rows
from tests.integrations.same import BITS, assert_identical, assert_same

GRAPHS = 23


class Graphs(InMemoryDataset):
    """A data set of given graphs."""

    def __init__(self, graphs: Sequence[Data], transform: Any = None) -> None:
        super().__init__(transform=transform)
        self.data, self.slices = self.collate(list(graphs))


def graph(number: int, **more: Any) -> Data:
    chance = torch.Generator().manual_seed(number)
    nodes, edges = 1 + number % 7, (0, 3, 8)[number % 3]
    return Data(
        x=torch.randn(nodes, 4, generator=chance),
        edge_index=torch.randint(nodes, (2, edges), generator=chance),
        edge_attr=torch.randn(edges, 2, generator=chance),
        y=torch.tensor([number % 2]),
        **more,
    )


def mesh(number: int) -> Data:
    nodes = 3 + number % 5
    return Data(
        face=torch.randint(nodes, (3, 1 + number % 4)),
        pos=torch.randn(nodes, 3),
        node_index=torch.arange(nodes).flip(0),
        y=torch.randn(1, 2),
    )


MADE: dict[str, Callable[[int], Data]] = {
    "graphs": graph,
    "meshes": mesh,
    "numbers": lambda number: graph(number, weight=number / 2, count=number),
}


def batches(dataset: Any, **options: Any) -> tuple[list[Any], int]:
    """The batches of an epoch, and how many of them onehop made."""
    torch.manual_seed(0)
    with rows.counted() as counted:
        found = list(DataLoader(dataset, batch_size=5, **options))
    return found, counted["DataLoader", True]


def assert_batches(found: list[Any], expected: list[Any]) -> None:
    """Equal batches, with what takes them apart again."""
    for one, other in zip(found, expected, strict=True):
        assert type(one) is type(other)
        assert one.num_graphs == other.num_graphs
        assert_identical(one.to_dict(), other.to_dict())
        assert_identical(one._slice_dict, other._slice_dict)
        assert_identical(one._inc_dict, other._inc_dict)


def compare(dataset: Any, **options: Any) -> int:
    """Compares the batches with PyG's; returns how many onehop made."""
    expected, _ = batches(copy.copy(dataset), **options)
    with onehop.patch():
        found, ours = batches(dataset, **options)
    assert_batches(found, expected)
    return ours


@pytest.fixture
def dataset() -> Graphs:
    return Graphs([graph(number) for number in range(GRAPHS)])


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("name", MADE)
def test_batches_are_pygs(name, shuffle):
    dataset = Graphs([MADE[name](number) for number in range(GRAPHS)])
    assert compare(dataset, shuffle=shuffle) == 5


PARTS = {
    "slice": lambda dataset: dataset[3:17],
    "shuffled": lambda dataset: dataset.shuffle(),
    "mask": lambda dataset: dataset[torch.arange(GRAPHS) % 2 == 0],
    "subset": lambda dataset: Subset(dataset, [5, 1, 9, 9, 0, 22]),
    "subset of a subset": lambda dataset: Subset(Subset(dataset[2:], [5, 1, 9, 9, 0, 20]), [3, 1]),
}


@pytest.mark.parametrize("name", PARTS)
def test_parts_of_data_sets(name, dataset):
    part = PARTS[name](dataset)
    assert compare(part) == -(-len(part) // 5)


def test_graphs_come_out_of_a_batch_again(dataset):
    with onehop.patch():
        found, ours = batches(dataset)
    assert ours
    for at, data in enumerate(found[1].to_data_list()):
        assert_same(data.to_dict(), graph(5 + at).to_dict(), **BITS)


def test_batches_and_data_set_share_no_memory(dataset):
    with onehop.patch():
        (first, *_), _ = batches(dataset)
        first.x.zero_(), first.ptr.zero_(), first._slice_dict["x"].zero_()
        (again, *_), ours = batches(dataset)
    assert ours
    assert_batches([again], [Batch.from_data_list([graph(number) for number in range(5)])])


def _replaced(dataset: Graphs) -> None:
    dataset._data.x = dataset._data.x + 1


def _moved(dataset: Graphs) -> None:
    dataset._data.x.data = dataset._data.x + 1


def _without(dataset: Graphs) -> None:
    del dataset._data.edge_attr, dataset.slices["edge_attr"]


def _changed_alone(dataset: Graphs) -> None:
    dataset._data_list[3].x = dataset._data_list[3].x + 1


CHANGES: dict[str, Callable[[Graphs], Any]] = {
    "rewritten": lambda dataset: dataset._data.x.mul_(2),
    "replaced": _replaced,
    "moved": _moved,
    "without": _without,
    "a graph that was cut out": _changed_alone,
}


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_changed_data_sets(change, cut, dataset):
    if change == "a graph that was cut out" and not cut:
        pytest.skip("there is none")
    with onehop.patch():
        batches(dataset)
        if cut:
            assert dataset[3].num_nodes == 4
            batches(dataset)  # notes that the graph is the data set's memory
        CHANGES[change](dataset)
        found, ours = batches(dataset)
    assert_batches(found, batches(dataset)[0])
    assert ours or change != "moved"


@pytest.mark.parametrize(("place", "bounds"), [(-1, "x"), (0, "x"), (5, "edge_index")])
def test_slices_that_leave_the_values(place, bounds, dataset):
    with onehop.patch():
        batches(dataset)
        # NumPy raises no version.
        dataset.slices[bounds].numpy()[place] -= 1000 if place == 0 else -1000
        with pytest.raises((RuntimeError, IndexError)):
            batches(dataset)


def test_values_that_get_gradients_later(dataset):
    with onehop.patch():
        batches(dataset)
        dataset._data.x.requires_grad_()
        found, ours = batches(dataset)
    assert not ours
    found[0].x.sum().backward()
    assert dataset._data.x.grad is not None


def test_graphs_that_were_cut_out_and_changed(dataset):
    dataset[4].x.zero_()
    dataset[6].x = torch.ones(7, 4)  # of a copy
    dataset._data_list[2] = graph(5)
    assert compare(dataset) == 4


class Doubled(Graphs):
    def get(self, idx: int) -> Data:
        return super().get(idx // 2)


class Unusual(Data):
    def __inc__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
        return 7 if key == "y" else super().__inc__(key, value, *args, **kwargs)


def _edge_index(number: int) -> Data:
    data = graph(number)
    data.edge_index = EdgeIndex(data.edge_index, sparse_size=(data.num_nodes,) * 2)
    return data


LEFT: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "a transform": (lambda: Graphs([graph(i) for i in range(9)], transform=lambda data: data), {}),
    "get of its own": (lambda: Doubled([graph(i) for i in range(9)]), {}),
    "data of its own": (lambda: Graphs([Unusual(**graph(i).to_dict()) for i in range(9)]), {}),
    "numbers of nodes": (lambda: Graphs([graph(i, num_nodes=1 + i % 7) for i in range(9)]), {}),
    "strings": (lambda: Graphs([graph(i, name=str(i)) for i in range(9)]), {}),
    "an EdgeIndex": (lambda: Graphs([_edge_index(i) for i in range(9)]), {}),
    "a list": (lambda: [graph(i) for i in range(9)], {}),
    "one graph": (lambda: Graphs([graph(3)]), {}),
    "nothing that tells nodes": (lambda: Graphs([Data(edge_attr=torch.ones(i, 2)) for i in range(9)]), {}),
    "more batch vectors": (lambda: Graphs([graph(i) for i in range(9)]), {"follow_batch": ["edge_attr"]}),
    "fewer attributes": (lambda: Graphs([graph(i) for i in range(9)]), {"exclude_keys": ["y"]}),
}


@pytest.mark.parametrize("name", LEFT)
def test_all_else_is_pygs(name):
    make, options = LEFT[name]
    assert compare(make(), **options) == 0


def test_other_loaders_collate_themselves(dataset):
    loader = torch.utils.data.DataLoader(dataset, batch_size=9, collate_fn=lambda graphs: graphs)
    with onehop.patch():
        assert [len(graphs) for graphs in loader] == [9, 9, 5]
        assert all(type(graphs) is list for graphs in loader)


def test_another_default_device(dataset):
    for block in (contextlib.nullcontext(), onehop.patch()):
        # PyG makes some of a batch there.
        with block, torch.device("meta"), pytest.raises(RuntimeError, match="meta"):
            batches(dataset)


def test_numbers_of_no_graph(dataset):
    loader = DataLoader(dataset, batch_sampler=[[0, GRAPHS]])
    with onehop.patch(), pytest.raises(IndexError):
        list(loader)
