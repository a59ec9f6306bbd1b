"""Mappings of feature vectors to ranks: which ranks share a vector, and who has which columns and nodes.

A mapping is a class with a name; :data:`mappings` has GraNDe's mappings, and users can register their own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from onehop.errors import ArgumentError, ConfigurationError
from onehop.machines.common.registry import Registry
from onehop.machines.ndp.config import Topology
from onehop.plans.ndp import MAPPINGS, PODS

ELEMENT_BYTES = 4  # FP32, as in the paper

Integers = NDArray[np.int64]


class Mapping:
    """A mapping of feature vectors to ranks; subclasses override what differs.

    A pod is a group of neighbouring ranks that together hold whole vectors: rank r belongs to pod r // size,
    and has slice r % size of the vectors of the pod's nodes.

    Attributes:
        name: The mapping's name in plans and reports.

    Examples:
        >>> from onehop.machines import ndp
        >>> @ndp.mappings.register
        ... class Pairs(ndp.Mapping):
        ...     name = "pairs"
        ...     def size(self, topology):
        ...         return 2  # two ranks together hold a vector
        >>> ndp.mappings["pairs"].slices(width=5, size=2)  # the first has columns 0 to 2, the second 3 and 4
        [0, 3, 5]
        >>> plan = ndp.NdpPlan(mapping="pairs")
    """

    name: str

    def size(self, topology: Topology) -> int:
        """Return the ranks of a pod: a divisor of all ranks, and a divisor or multiple of a channel's ranks.

        Args:
            topology: The machine's ranks.
        """
        raise NotImplementedError

    def slices(self, width: int, size: int) -> Sequence[int] | NDArray[Any]:
        """Return [size + 1]: the columns at which the slices of a pod's ranks begin, followed by ``width``.

        The default slices are as equal as possible; the first slices have the remainder.

        Args:
            width: Columns of a vector.
            size: Ranks of a pod.
        """
        each, left = divmod(width, size)
        return [each * rank + min(rank, left) for rank in range(size + 1)]

    def owners(self, topology: Topology, nodes: int) -> ArrayLike:
        """Return [nodes]: the rank that each node is assigned to; by default, nodes are assigned in turn.

        A rank stores the adjacency's columns of its nodes, and its pod stores the nodes' vectors.

        Args:
            topology: The machine's ranks.
            nodes: Number of nodes.
        """
        return owners(topology, nodes)


mappings = Registry("mapping", Mapping, MAPPINGS)


@dataclass(frozen=True)
class _Formula(Mapping):
    """Pods whose size is a formula of the topology."""

    name: str
    ranks: Callable[[Topology], int]

    def size(self, topology: Topology) -> int:
        return self.ranks(topology)


def _of_channels(count: int, topology: Topology) -> int:
    """Return the number of ranks in ``count`` channels."""
    if topology.channels % count:
        raise ConfigurationError(
            f"mapping: {topology.channels} channels cannot be divided into pods of {count}; choose "
            "another mapping or number of channels."
        )
    return count * topology.ranks_per_channel


_GRANDE: dict[str, Callable[[Topology], int]] = {
    "rank": lambda _: 1,
    "dimm": lambda topology: topology.ranks_per_dimm,
    "channel": partial(_of_channels, 1),
    "2-channel": partial(_of_channels, 2),
    "4-channel": partial(_of_channels, 4),
    "system": lambda topology: topology.ranks,
}
for _name, _ranks in _GRANDE.items():
    mappings.register(_Formula(_name, _ranks))


@dataclass(frozen=True, slots=True)
class Pods:
    """A mapping on a machine; the sizes and slices that the mapping returns are checked.

    Attributes:
        mapping: The mapping.
        size: Number of ranks in a pod.
        topology: The machine's ranks.
    """

    mapping: Mapping
    size: int
    topology: Topology

    @classmethod
    def of(cls, topology: Topology, name: str) -> "Pods":
        """Return the mapping of this name, or of the class ``FILE.py:CLASS``.

        Raises:
            ArgumentError: The mapping is unknown, or its pod size does not fit this machine.
            ConfigurationError: The machine's ranks cannot be divided this way.
        """
        mapping = mappings.named(name)
        size, in_channel = mapping.size(topology), topology.ranks_per_channel
        is_size = type(size) is int and size > 0 and topology.ranks % size == 0
        if not is_size or (in_channel % size and size % in_channel):
            raise ArgumentError(
                f"mapping {mapping.name!r}: expected pods of a number of ranks that divides the {in_channel} "
                f"of a channel, or of whole channels that divide the {topology.channels}; got {size!r}."
            )
        return cls(mapping, size, topology)

    @property
    def name(self) -> str:
        """The mapping's name."""
        return self.mapping.name

    @property
    def own(self) -> "Pods | None":
        """These pods if the mapping is a user's, because graphs are then counted separately; else None."""
        return None if self.name in PODS else self

    @property
    def count(self) -> int:
        """Number of pods in the machine."""
        return self.topology.ranks // self.size

    @property
    def channels(self) -> int:
        """Number of channels that a pod's ranks span."""
        return max(1, self.size // self.topology.ranks_per_channel)

    @property
    def in_channel(self) -> int:
        """Number of a pod's ranks in one channel."""
        return min(self.size, self.topology.ranks_per_channel)

    @property
    def inside_dimm(self) -> bool:
        """Return whether a pod's ranks share a buffer chip."""
        return self.size <= self.topology.ranks_per_dimm

    def slices(self, width: int) -> Integers:
        """Return [size + 1]: bounds of each rank's columns.

        Raises:
            ArgumentError: The mapping loses columns, or gives some columns to two ranks.
        """
        return _slices(self.mapping, width, self.size)

    def slice_bytes(self, width: int) -> Integers:
        """Return [ranks]: bytes of each rank's slice of one vector."""
        return np.tile(np.diff(self.slices(width)) * ELEMENT_BYTES, self.count)

    def slice_bursts(self, width: int, burst_bytes: int) -> Integers:
        """Return [ranks]: bursts of each rank's slice of one vector; slices begin at burst boundaries."""
        return -(-self.slice_bytes(width) // burst_bytes)

    def owners(self, nodes: int) -> NDArray[np.uint8]:
        """Return [nodes]: the rank that each node is assigned to.

        Raises:
            ArgumentError: The mapping loses nodes, or assigns some to ranks that do not exist.
        """
        found = np.asarray(self.mapping.owners(self.topology, nodes))
        what = f"mapping {self.name!r}: expected owners to be the ranks of {nodes} nodes"
        if found.ndim != 1 or len(found) > nodes or (nodes and found.dtype.kind not in "iu"):
            raise ArgumentError(f"{what}, [{nodes}], integers; got {list(found.shape)}, {found.dtype}.")
        if len(found) < nodes:
            raise ArgumentError(
                f"{what}, got {len(found)}: the rows of {_span('node', len(found), nodes)} are lost."
            )
        wrong = np.flatnonzero((found < 0) | (found >= self.topology.ranks))
        if len(wrong):
            first = int(wrong[0])
            raise ArgumentError(
                f"{what}, 0 to {self.topology.ranks - 1}: the row of node {first} is lost, on rank "
                f"{found[first]}, and {len(wrong) - 1} more."
            )
        return found.astype(np.uint8)


# A layer needs its slices many times, and a user's mapping may take long to compute them.
@lru_cache(maxsize=256)
def _slices(mapping: Mapping, width: int, size: int) -> Integers:
    given = mapping.slices(width, size)
    bounds = [int(each) for each in given]
    what = f"mapping {mapping.name!r}: expected {size + 1} bounds from 0 to {width}, ascending, got {bounds}"
    if len(bounds) != size + 1 or any(each != own for each, own in zip(bounds, given, strict=True)):
        raise ArgumentError(f"{what}.")
    for begin, end in ((0, bounds[0]), (bounds[-1], width)):
        if begin < end:
            lost = (end - begin) * ELEMENT_BYTES
            raise ArgumentError(
                f"{what}: {_span('column', begin, end)}, {lost} bytes of every vector, are lost."
            )
    if bounds[0] < 0 or bounds[-1] > width:
        raise ArgumentError(f"{what}: there are no other columns.")
    for rank, (begin, end) in enumerate(pairwise(bounds)):
        if begin > end:
            raise ArgumentError(f"{what}: rank {rank} of a pod ends before it begins.")
    return np.array(bounds, dtype=np.int64)


def _span(what: str, begin: int, end: int) -> str:
    return f"{what} {begin}" if end - begin == 1 else f"{what}s {begin} to {end - 1}"


def candidates(topology: Topology) -> list[Pods]:
    """Return GraNDe's mappings that differ from one another on this machine, smallest pods first."""
    found: dict[int, Pods] = {}
    for name in PODS:
        whole, _, _ = name.partition("-channel")
        if whole.isdecimal() and (topology.channels % int(whole) or int(whole) >= topology.channels):
            continue
        pods = Pods.of(topology, name)
        found.setdefault(pods.size, pods)
    return list(found.values())


def owners(topology: Topology, nodes: int) -> NDArray[np.uint8]:
    """Return [nodes]: the rank that every node is assigned to, in turn, by the topology's blocks of nodes."""
    if topology.node_block == 0:
        return (np.arange(nodes) * topology.ranks // max(nodes, 1)).astype(np.uint8)
    in_turn = np.repeat(np.arange(topology.ranks, dtype=np.uint8), topology.node_block)
    return np.tile(in_turn, -(-nodes // len(in_turn)))[:nodes]
