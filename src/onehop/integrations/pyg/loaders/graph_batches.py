"""Batches of small graphs from an ``InMemoryDataset``, with one copy of each graph's rows.

PyG slices each graph of a batch out of the data set, and then concatenates the graphs. The data set already
stores all graphs one after the other, so here a batch is gathered directly from the rows of its graphs. PyG
handles data sets and attributes that are unusual in some way.
"""

import copy
import math
import operator
import weakref
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Subset, get_worker_info
from torch.utils.data._utils.fetch import _MapDatasetFetcher
from torch_geometric.data import Batch, Data, Dataset, InMemoryDataset
from torch_geometric.data.storage import N_KEYS
from torch_geometric.loader.dataloader import Collater

from onehop import native
from onehop.integrations.pyg.leave import is_plain, need
from onehop.integrations.rows import Row, replacing
from onehop.ops.contexts import context_reason, is_memory

# Functions of data sets, data and collaters that must be PyG's own.
_OF_SETS = (
    ("__getitem__", Dataset),
    ("indices", Dataset),
    ("get", InMemoryDataset),
    ("len", InMemoryDataset),
)
_COLLATE = Collater.__call__


def rows() -> list[Row]:
    """Return the rows of the patch table."""
    return [replacing(_MapDatasetFetcher, "fetch", fetch, counted_as="DataLoader")]


def fetch(_: Any, fetcher: Any, chosen: Any) -> Batch | None:
    """Joins the graphs of a batch; None if PyG's code has to run.

    Args:
        fetcher: The fetcher of torch's ``DataLoader``.
        chosen: The numbers of the graphs.
    """
    collater = fetcher.collate_fn
    if type(collater) is not Collater or not fetcher.auto_collation or Collater.__call__ is not _COLLATE:
        return None
    # PyG would make some tensors of a batch on the default device.
    if torch.get_default_device().type != "cpu":
        return None
    # In a worker, PyG writes the batch to shared memory.
    if collater.follow_batch or collater.exclude_keys or get_worker_info() is not None:
        return None
    dataset, numbers = _of_subset(fetcher.dataset, chosen)
    if not _is_ordinary(dataset) or context_reason() is not None:
        return None
    joined = _joined_by(dataset)
    indices = dataset.indices()
    numbers = [int(indices[number]) for number in numbers]
    joined.check(dataset, numbers)
    return joined.batch(numbers)


def _of_subset(dataset: Any, chosen: Any) -> tuple[Any, list[int]]:
    """Return the data set behind torch's subsets, and the graphs' numbers in it."""
    need(type(chosen) is list and len(chosen) > 0 and all(type(number) is int for number in chosen))
    while type(dataset) is Subset:
        chosen, dataset = [dataset.indices[number] for number in chosen], dataset.dataset
    return dataset, [int(number) for number in chosen]


def _is_ordinary(dataset: Any) -> bool:
    """Return whether only the data set's slices define its graphs."""
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
        name: The attribute's name.
        values: The values of all graphs, concatenated.
        slices: [graphs + 1]: the begin of each graph's values, and the end of the last.
        facts: The result of :func:`_facts` for values and slices.
        dim: The dimension of the rows.
        increases: Whether the values are node numbers, which increase from graph to graph in a batch.
        group: The number of the group of attributes that have these slices.
        rows: The values in the form for native code.
    """

    name: str
    values: Tensor
    slices: Tensor
    facts: tuple[Any, ...]
    dim: int
    increases: bool
    group: int
    rows: Any


def _facts(values: Tensor, slices: Tensor) -> tuple[Any, ...]:
    """Return addresses, shapes and layout of values and slices, and the version of the slices."""
    where = values.data_ptr(), slices.data_ptr(), values.shape, slices.shape, values.dtype
    return (*where, values.is_contiguous(), values.requires_grad, slices.is_contiguous(), slices._version)


@dataclass(frozen=True, slots=True)
class _Joined:
    """The attributes of a data set.

    Attributes:
        attributes: The attributes, in PyG's order.
        slices: The slices of each group.
        nodes: The group of the attribute that gives the number of nodes.
        cut: For each graph that PyG has already sliced out, its values; they were verified to share the data
            set's memory.
    """

    attributes: tuple[_Attribute, ...]
    slices: tuple[Tensor, ...]
    nodes: int
    cut: dict[int, tuple[Any, ...]] = field(default_factory=dict)

    def holds(self, dataset: Any) -> bool:
        """Return whether the data set still has these attributes."""
        store, slices = dataset._data._store, dataset.slices
        return [*slices] == [attr.name for attr in self.attributes] and all(
            store.get(attr.name) is attr.values
            and slices[attr.name] is attr.slices
            and _facts(attr.values, attr.slices) == attr.facts
            for attr in self.attributes
        )

    def check(self, dataset: Any, numbers: list[int]) -> None:
        """Raises :class:`Leave` for invalid graph numbers, and if a graph that PyG sliced out has changed."""
        need(min(numbers) >= 0 and max(numbers) < dataset.len())
        cut = vars(dataset).get("_data_list")
        for number in numbers if cut is not None else ():
            data, checked = cut[number], self.cut.get(number, ())
            if data is None:
                continue
            values = data._store._mapping.values()
            if len(values) != len(checked) or not all(map(operator.is_, values, checked)):
                self._check_cut(data, number)
                self.cut[number] = (*values,)

    def _check_cut(self, data: Any, number: int) -> None:
        """Raises :class:`Leave` if a sliced graph does not share the data set's memory."""
        need(type(data) is Data and [*data._store] == [attr.name for attr in self.attributes])
        for attr in self.attributes:
            value, whole = data._store[attr.name], attr.values
            begin, end = int(attr.slices[number]), int(attr.slices[number + 1])
            need(is_plain(value) and value.dtype is whole.dtype and value.stride() == whole.stride())
            need(value.shape == whole.narrow(attr.dim, begin, end - begin).shape)
            first = whole.data_ptr() + begin * whole.stride(attr.dim) * whole.element_size()
            need(begin == end or value.data_ptr() == first)

    def batch(self, numbers: list[int]) -> Batch:
        """Return the batch of some graphs, as PyG makes it.

        Raises:
            Leave: The slices contradict each other.
        """
        extension, count = native.extension, len(numbers)
        chosen, places = extension.ChosenGraphs(), torch.tensor(numbers, dtype=torch.int64, device="cpu")
        chosen.numbers, chosen.count = places.data_ptr(), count
        bounds = [torch.empty(count + 1, dtype=torch.int64, device="cpu") for _ in self.slices]
        for slices, of_group in zip(self.slices, bounds, strict=True):
            need(extension.join_bounds(chosen, slices.data_ptr(), of_group.data_ptr()))
        totals = [int(of_group[-1]) for of_group in bounds]
        of_nodes = bounds[self.nodes]
        out = copy.copy(_empty())
        store, slice_dict, inc_dict = out._store, dict[str, Tensor](), dict[str, Tensor]()
        for attr in self.attributes:
            shape, of_group = list(attr.values.shape), bounds[attr.group]
            shape[attr.dim] = totals[attr.group]
            value = torch.empty(shape, dtype=attr.values.dtype, device="cpu")
            added = of_nodes.data_ptr() if attr.increases else 0
            need(extension.join_rows(chosen, attr.rows, of_group.data_ptr(), added, value.data_ptr()))
            slice_dict[attr.name] = of_group.clone()
            inc_dict[attr.name] = of_nodes[:-1].clone() if attr.increases else places.new_zeros(count)
            store[attr.name] = value
        graphs = torch.empty(totals[self.nodes], dtype=torch.int64, device="cpu")
        extension.write_graphs(of_nodes.data_ptr(), count, graphs.data_ptr())
        store["batch"], store["ptr"] = graphs, of_nodes
        out._num_graphs, out._slice_dict, out._inc_dict = count, slice_dict, inc_dict
        return out


@cache
def _empty() -> Batch:
    """Return an empty batch, made once, because PyG makes a class whenever it makes a batch."""
    return Batch(_base_cls=Data)


# The keys are the ids of the data sets' data.
_known: dict[int, tuple["weakref.ref[Data]", _Joined]] = {}


def _joined_by(dataset: Any) -> _Joined:
    """Return the attributes of a data set, cached or new.

    Raises:
        Leave: PyG's code has to run.
    """
    ref, joined = _known.get(id(dataset._data), (None, None))
    if ref is not None and ref() is dataset._data and joined is not None and joined.holds(dataset):
        return joined
    data, store, slices = dataset._data, dataset._data._store, dataset.slices
    need(not hasattr(store, "_num_nodes") and all(name in store for name in slices))
    groups: list[Tensor] = []
    attributes = []
    for name, bounds in slices.items():
        values = store[name]
        need(is_memory(values) and is_memory(bounds))
        # The facts are noted before the values are read, so that a write in between counts as a later write.
        facts = _facts(values, bounds)
        need(values.is_contiguous() and values.dim() > 0)
        need(type(values) is Tensor and not values.requires_grad and "batch" not in name)
        need(name not in ("num_nodes", "ptr") and bounds.is_contiguous())
        need(bounds.dim() == 1 and bounds.dtype is torch.int64 and bounds.numel() == dataset.len() + 1)
        dim = data.__cat_dim__(name, values) % values.dim()
        need(int(bounds[0]) == 0 and int(bounds[-1]) <= values.size(dim) and bool((bounds.diff() >= 0).all()))
        group = next((at for at, others in enumerate(groups) if torch.equal(others, bounds)), len(groups))
        if group == len(groups):
            groups.append(bounds)
        increases = "index" in name or name == "face"
        need(values.dtype is torch.int64 or not increases)
        rows = _rows(values, bounds, dim)
        attributes.append(_Attribute(name, values, bounds, facts, dim, increases, group, rows))
    # As in PyG, the first attribute with one of these names gives the number of nodes.
    nodes = next((attr.group for attr in attributes if attr.name in N_KEYS), None)
    need(nodes is not None)
    assert nodes is not None
    joined, number = _Joined(tuple(attributes), tuple(groups), nodes), id(data)
    _known[number] = weakref.ref(data, lambda _: _known.pop(number, None)), joined
    return joined


def _rows(values: Tensor, slices: Tensor, dim: int) -> Any:
    """Return an attribute's values in the form for native code."""
    rows = native.extension.GraphRows()
    rows.values, rows.slices = values.data_ptr(), slices.data_ptr()
    rows.blocks, rows.rows = math.prod(values.shape[:dim]), values.size(dim)
    rows.row_bytes = math.prod(values.shape[dim + 1 :]) * values.element_size()
    return rows
