"""Batches of small graphs from an ``InMemoryDataset``: one gather for each attribute.

PyG cuts each graph of a batch out of the data set, and joins them again. What it joins is in the data set
already, one graph behind the other, so a batch is the rows of its graphs. Data sets and attributes that are
unusual in some way are left to PyG.
"""

import operator
import weakref
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Subset, get_worker_info
from torch.utils.data._utils.fetch import _MapDatasetFetcher
from torch_geometric.data import Batch, Data, Dataset, InMemoryDataset
from torch_geometric.data.storage import N_KEYS
from torch_geometric.loader.dataloader import Collater

from onehop.integrations.pyg.leave import is_plain, need
from onehop.integrations.rows import Row, replacing
from onehop.ops.contexts import context_reason

# Functions of data sets, data and collaters that have to be PyG's.
_OF_SETS = (
    ("__getitem__", Dataset),
    ("indices", Dataset),
    ("get", InMemoryDataset),
    ("len", InMemoryDataset),
)
_COLLATE = Collater.__call__
_gathered = torch.ops.aten.index_select.default


def rows() -> list[Row]:
    """The rows of the patch table."""
    return [replacing(_MapDatasetFetcher, "fetch", fetch, told="DataLoader")]


def fetch(_: Any, fetcher: Any, chosen: Any) -> Batch | None:
    """Joins the graphs of a batch; None if PyG's code has to run.

    Args:
        fetcher: What torch's ``DataLoader`` fetches with.
        chosen: The numbers of the graphs.
    """
    collater = fetcher.collate_fn
    if type(collater) is not Collater or not fetcher.auto_collation or Collater.__call__ is not _COLLATE:
        return None
    # PyG makes some of a batch on the default device.
    if torch.get_default_device().type != "cpu":
        return None
    # A worker writes to shared memory.
    if collater.follow_batch or collater.exclude_keys or get_worker_info() is not None:
        return None
    dataset, numbers = _of_subset(fetcher.dataset, chosen)
    if not _is_ordinary(dataset) or context_reason() is not None:
        return None
    joined = _joined_by(dataset)
    indices = dataset.indices()
    numbers = [int(indices[number]) for number in numbers]
    joined.check(dataset, numbers)
    return joined.batch(torch.tensor(numbers, device="cpu"))


def _of_subset(dataset: Any, chosen: Any) -> tuple[Any, list[int]]:
    """The data set behind torch's subsets, and the numbers there."""
    need(type(chosen) is list and len(chosen) > 0 and all(type(number) is int for number in chosen))
    while type(dataset) is Subset:
        chosen, dataset = [dataset.indices[number] for number in chosen], dataset.dataset
    return dataset, [int(number) for number in chosen]


def _is_ordinary(dataset: Any) -> bool:
    """Return whether nothing but the data set's own slices decides what its graphs are."""
    kind = type(dataset)
    return (
        isinstance(dataset, InMemoryDataset)
        and all(getattr(kind, name) is getattr(owner, name) for name, owner in _OF_SETS)
        and "get" not in vars(dataset)
        and dataset.transform is None
        and type(dataset._data) is Data
        and type(dataset.slices) is dict
        and dataset.len() > 1
    )


@dataclass(frozen=True, slots=True)
class _Attribute:
    """An attribute of graphs.

    Attributes:
        name: Its name.
        values: Those of all graphs, one behind the other.
        version: How often they had been written to.
        slices: [graphs + 1]: where each graph's values begin.
        dim: The dimension of the rows.
        increases: Whether they are numbers of nodes.
        group: Number of the attributes with these slices.
    """

    name: str
    values: Tensor
    slices: Tensor
    version: int
    dim: int
    increases: bool
    group: int


@dataclass(frozen=True, slots=True)
class _Joined:
    """The attributes of a data set.

    Attributes:
        attributes: The attributes, in PyG's order.
        slices: The slices of each group.
        nodes: The group of the attribute that tells the number of nodes.
        cut: The values of graphs that PyG has cut out and that are known to be the data set's memory.
    """

    attributes: tuple[_Attribute, ...]
    slices: tuple[Tensor, ...]
    nodes: int
    cut: dict[int, tuple[Any, ...]] = field(default_factory=dict)

    def holds(self, dataset: Any) -> bool:
        """Return whether the data set still has these attributes."""
        store, slices = dataset._data._store, dataset.slices
        return [*slices] == [each.name for each in self.attributes] and all(
            store.get(each.name) is each.values
            and slices[each.name] is each.slices
            and each.slices._version == each.version
            for each in self.attributes
        )

    def check(self, dataset: Any, numbers: list[int]) -> None:
        """Leaves numbers of no graph, and graphs that PyG cut out before and that have other values now."""
        need(min(numbers) >= 0 and max(numbers) < dataset.len())
        cut = vars(dataset).get("_data_list")
        for number in numbers if cut is not None else ():
            data, known = cut[number], self.cut.get(number, ())
            if data is None:
                continue
            values = data._store._mapping.values()
            if len(values) != len(known) or not all(map(operator.is_, values, known)):
                self._check_cut(data, number)
                self.cut[number] = (*values,)

    def _check_cut(self, data: Any, number: int) -> None:
        """Leaves a graph that is not the data set's memory."""
        need(type(data) is Data and [*data._store] == [each.name for each in self.attributes])
        for each in self.attributes:
            value, whole = data._store[each.name], each.values
            begin, end = int(each.slices[number]), int(each.slices[number + 1])
            need(is_plain(value) and value.dtype is whole.dtype and value.stride() == whole.stride())
            need(value.shape == whole.narrow(each.dim, begin, end - begin).shape)
            first = whole.data_ptr() + begin * whole.stride(each.dim) * whole.element_size()
            need(begin == end or value.data_ptr() == first)

    def batch(self, numbers: Tensor) -> Batch:
        """The batch of some graphs, as PyG makes it."""
        count, every = numbers.numel(), torch.arange(numbers.numel(), device="cpu")
        rows, bounds, graphs = [], [], []
        for slices in self.slices:
            begins = _gathered(slices, 0, numbers)
            sizes = _gathered(slices, 0, numbers + 1) - begins
            sums = _sums(sizes)
            total = int(sums[-1])
            # The graph of each row, from which all else is gathered.
            graph = torch.repeat_interleave(every, sizes, output_size=total)
            places = torch.arange(total, device="cpu")
            rows.append(places.add_(_gathered(begins - sums[:-1], 0, graph)))
            bounds.append(sums)
            graphs.append(graph)
        firsts = bounds[self.nodes][:-1]
        out = Batch(_base_cls=Data)
        store, slice_dict, inc_dict = out._store, dict[str, Tensor](), dict[str, Tensor]()
        for each in self.attributes:
            value = _gathered(each.values, each.dim, rows[each.group])
            slice_dict[each.name] = bounds[each.group].clone()
            inc_dict[each.name] = firsts.clone() if each.increases else torch.zeros_like(firsts)
            if each.increases and int(firsts[-1]):
                # Numbers of nodes are joined along their last dimension.
                value = value + _gathered(firsts, 0, graphs[each.group])
            store[each.name] = value
        store["batch"], store["ptr"] = graphs[self.nodes], bounds[self.nodes].clone()
        out._num_graphs, out._slice_dict, out._inc_dict = count, slice_dict, inc_dict
        return out


def _sums(counts: Tensor) -> Tensor:
    """[n + 1]: where each of some pieces begins, and the last one ends."""
    sums = counts.new_zeros(counts.numel() + 1)
    torch.cumsum(counts, 0, out=sums[1:])
    return sums


# By the id of the data of all graphs.
_known: dict[int, tuple["weakref.ref[Data]", _Joined]] = {}


def _joined_by(dataset: Any) -> _Joined:
    """The attributes of a data set, found again or looked at.

    Raises:
        Leave: PyG's code has to run.
    """
    ref, known = _known.get(id(dataset._data), (None, None))
    if ref is not None and ref() is dataset._data and known is not None and known.holds(dataset):
        return known
    data, store, slices = dataset._data, dataset._data._store, dataset.slices
    need(not hasattr(store, "_num_nodes") and all(name in store for name in slices))
    groups: list[Tensor] = []
    attributes = []
    for name, bounds in slices.items():
        values = store[name]
        need(type(values) is Tensor and values.is_cpu and values.layout is torch.strided and values.dim() > 0)
        need(not values.is_nested and not values.requires_grad and "batch" not in name)
        need(name not in ("num_nodes", "ptr") and type(bounds) is Tensor and bounds.is_cpu)
        need(bounds.dim() == 1 and bounds.dtype is torch.int64 and bounds.numel() == dataset.len() + 1)
        dim = data.__cat_dim__(name, values) % values.dim()
        need(int(bounds[0]) == 0 and int(bounds[-1]) <= values.size(dim) and bool((bounds.diff() >= 0).all()))
        group = next((at for at, known in enumerate(groups) if torch.equal(known, bounds)), len(groups))
        if group == len(groups):
            groups.append(bounds)
        increases = "index" in name or name == "face"
        attributes.append(_Attribute(name, values, bounds, bounds._version, dim, increases, group))
    # The first of these tells the number of nodes, as in PyG.
    nodes = next((each.group for each in attributes if each.name in N_KEYS), None)
    need(nodes is not None)
    assert nodes is not None
    found, number = _Joined(tuple(attributes), tuple(groups), nodes), id(data)
    _known[number] = weakref.ref(data, lambda _: _known.pop(number, None)), found
    return found
