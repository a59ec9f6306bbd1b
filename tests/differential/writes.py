"""Steps that write to tensors: outputs, features, weights, edges, parameters."""

import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.differential.program import Spec
from tests.differential.world import World, new_nodes


def _numpy(tensor: Tensor) -> None:
    array = tensor.detach().numpy()
    array *= 3.0


def _set(tensor: Tensor) -> None:
    if tensor._is_view():
        return  # torch crashes when its base is written to later
    tensor.set_((tensor.detach() * 2.0).untyped_storage(), 0, tensor.shape)


def _storage(tensor: Tensor) -> None:
    """Writes to the bytes, as files mapped to memory and other libraries do."""
    other = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
    other.mul_(0.5)


def _dlpack(tensor: Tensor) -> None:
    torch.from_dlpack(tensor.detach()).mul_(0.5)


def _swap(tensor: Tensor) -> None:
    _exchange(tensor, (tensor.detach() * 2.0).requires_grad_(tensor.requires_grad))


def _exchange(tensor: Tensor, other: Tensor) -> None:
    # Torch refuses while anything else holds one of them, as frames of a checkpointed pass do for a while.
    gc.collect()
    torch.utils.swap_tensors(tensor, other)


def _part(tensor: Tensor) -> None:
    tensor[..., :1] += 1.0


def _quietly(write: Callable[[Tensor], object]) -> Callable[[Tensor], None]:
    def run(tensor: Tensor) -> None:
        with torch.no_grad():
            write(tensor)

    return run


WRITES: dict[str, Callable[[Tensor], object]] = {
    "times two": lambda tensor: tensor.mul_(2.0),
    "plus one": lambda tensor: tensor.add_(1.0),
    "zero": lambda tensor: tensor.zero_(),
    "relu": lambda tensor: F.relu(tensor, inplace=True),
    "dropout": lambda tensor: F.dropout(tensor, 0.5, inplace=True),
    "part": _part,
    "part quietly": _quietly(_part),
    "times two quietly": _quietly(lambda tensor: tensor.mul_(2.0)),
    "detached": lambda tensor: tensor.detach().mul_(0.5),
    "view": lambda tensor: tensor.view(-1)[:1].add_(1.0),
    "data": lambda tensor: tensor.data.mul_(0.5),
    "data part": lambda tensor: tensor.data[..., :1].add_(1.0),
    "new data": lambda tensor: setattr(tensor, "data", tensor.data * 2.0),
    "numpy": _numpy,
    "storage": _storage,
    "dlpack": _dlpack,
    "set": _set,
    "swap": _swap,
    "inference": lambda tensor: torch.inference_mode()(tensor.mul_)(2.0),
}

HIDDEN = ("data", "data part", "new data", "numpy", "storage", "dlpack", "detached", "set", "swap")
"""Writes that a version counter may not see."""


def _write(world: World, tensor: Tensor, how: str) -> None:
    """Writes to a tensor that layers were given or gave out."""
    if how in HIDDEN:
        # What a backward pass needs and is written behind the counter's back gives gradients that torch
        # itself does not promise.
        world.forget_recorded()
    (WRITES | PROPERTIES)[how](tensor)


PROPERTIES: dict[str, Callable[[Tensor], object]] = {
    "needs gradient": lambda tensor: tensor.requires_grad_(),
    "needs no gradient": lambda tensor: tensor.requires_grad_(False),
    "detach": lambda tensor: tensor.detach_(),
    "retain gradient": lambda tensor: tensor.retain_grad(),
    "hook": lambda tensor: tensor.register_hook(_doubled),
    "no gradient kept": lambda tensor: setattr(tensor, "grad", None),
}


def _doubled(grad: Tensor) -> Tensor:
    return grad * 2.0


@dataclass(frozen=True, repr=False)
class WriteOutput(Spec):
    """Writes to an output, or changes a property of it."""

    age: int = 0  # which: 0 is the newest
    how: str = "times two"  # a key of ``WRITES`` or ``PROPERTIES``

    def run(self, world: World) -> None:
        out = world.output(self.age)
        if out is not None:
            _write(world, out, self.how)
            if self.how == "swap":
                world.count_writes_anew()


@dataclass(frozen=True, repr=False)
class WriteFeatures(Spec):
    """Writes to features, or changes a property of them."""

    features: int = 0
    how: str = "times two"  # a key of ``WRITES`` or ``PROPERTIES``
    base: bool = False  # whether it is the tensor that they are a view of that is written

    def run(self, world: World) -> None:
        nodes = world.feature(self.features)
        _write(world, nodes.held if self.base else nodes.x, self.how)


@dataclass(frozen=True, repr=False)
class WriteWeights(Spec):
    """Writes to edge weights, or changes a property of them."""

    graph: int = 0  # of which graph
    how: str = "times two"  # a key of ``WRITES`` or ``PROPERTIES``
    base: bool = False  # whether it is the tensor that they are a view of that is written

    def run(self, world: World) -> None:
        edges = world.graph(self.graph)
        if edges.values is not None:
            # A product with a matrix keeps it, and some of ours keep no values.
            world.forget_recorded()
            _write(world, edges.values, self.how)
            return
        written = edges.held[-1] if self.base and len(edges.held) > 1 else edges.weight
        if written is not None:
            _write(world, written, self.how)


def _other_targets(index: Tensor) -> Tensor:
    """The same sources, with the destinations in another order."""
    return torch.stack([index[0], index[1].roll(1)])


def _swap_edges(index: Tensor) -> None:
    _exchange(index, _other_targets(index))


def _column(index: Tensor) -> None:
    if index.size(1):
        index[:, 0] = index[:, -1].clone()


def _storage_of_edges(index: Tensor) -> None:
    changed = _other_targets(index)
    torch.empty(0, dtype=index.dtype).set_(
        index.untyped_storage(), index.storage_offset(), index.shape, index.stride()
    ).copy_(changed)


EDGE_WRITES: dict[str, Callable[[Tensor], object]] = {
    "copy": lambda index: index.copy_(_other_targets(index)),
    "column": _column,
    "row": lambda index: index[1].copy_(index[1].roll(1)),
    "flip": lambda index: index.copy_(index.flip(0)),
    "zero": lambda index: index.zero_(),
    "out of range": lambda index: index.fill_(1_000),
    "negative": lambda index: index[:, :1].fill_(-1),
    "set": lambda index: index.set_(_other_targets(index)),
    "swap": _swap_edges,
    "new data": lambda index: setattr(index, "data", _other_targets(index)),
}

SEEN_EDGE_WRITES = ("copy", "column", "row", "flip", "zero", "out of range", "negative")

MATRIX_WRITES: dict[str, Callable[[Tensor | None, Tensor], object]] = {
    "values": lambda values, columns: values is not None and values.mul_(2.0),
    "one value": lambda values, columns: values is not None and values[:1].fill_(3.0),
    "columns": lambda values, columns: columns.copy_(columns.flip(0)),
    "columns past the counter": lambda values, columns: columns.data.copy_(columns.flip(0)),
}
"""Writes through a CSR matrix or a ``SparseTensor``."""


def _write_matrix(matrix: Any, how: str) -> None:
    if isinstance(matrix, Tensor):
        MATRIX_WRITES[how](matrix.values(), matrix.col_indices())
    else:
        MATRIX_WRITES[how](matrix.storage.value(), matrix.storage.col())


HIDDEN_EDGE_WRITES: dict[str, Callable[[Tensor], object]] = {
    "data": lambda index: index.data.copy_(_other_targets(index)),
    "storage": _storage_of_edges,
}
"""Writes that no version counter sees: the documents promise to notice them under a full check alone."""


@dataclass(frozen=True, repr=False)
class WriteEdges(Spec):
    """Writes to the edges."""

    graph: int = 0  # of which graph
    how: str = "copy"  # a key of ``EDGE_WRITES`` or ``HIDDEN_EDGE_WRITES``
    # A key of ``MATRIX_WRITES``, for edges that are a CSR matrix or a ``SparseTensor``.
    matrix: str = "values"

    def run(self, world: World) -> None:
        index = world.graph(self.graph).index
        if not isinstance(index, Tensor) or index.layout is torch.sparse_csr:
            _write_matrix(index, self.matrix)
            world.forget_recorded()
        elif index.layout is torch.strided:
            (EDGE_WRITES | HIDDEN_EDGE_WRITES)[self.how](index)
            if self.how not in SEEN_EDGE_WRITES:
                world.forget_recorded()


@dataclass(frozen=True, repr=False)
class WriteParameters(Spec):
    """Writes to the parameters of a model."""

    model: int = 0  # of which
    how: str = "times two quietly"  # a key of ``WRITES``
    only: int | None = None  # which parameter; None means all

    def run(self, world: World) -> None:
        parameters = list(world.model(self.model).parameters())
        if self.only is not None and parameters:
            parameters = [parameters[self.only % len(parameters)]]
        for parameter in parameters:
            _write(world, parameter, self.how)


@dataclass(frozen=True, repr=False)
class CopyFeatures(Spec):
    """Fills features with other numbers in place, as a data loader with one buffer does."""

    features: int = 0
    seed: int = 0  # of the numbers
    data: bool = False  # whether behind the version counter's back

    def run(self, world: World) -> None:
        x = world.feature(self.features).x
        numbers = new_nodes(world, self.features, self.seed).x.detach()
        with torch.no_grad():
            (x.data if self.data else x).copy_(numbers)
        if self.data:
            world.forget_recorded()


WRITES_OPERANDS = (WriteFeatures, WriteWeights, CopyFeatures)
"""Steps after which what a layer was given is no longer what it was."""
