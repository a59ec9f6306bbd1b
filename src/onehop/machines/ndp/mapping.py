"""Pods: the ranks that together hold a feature vector, the columns of each, and the owner of a node."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onehop.errors import ArgumentError, ConfigurationError
from onehop.machines.ndp.sections import Topology
from onehop.plans.ndp import PODS

ELEMENT_BYTES = 4  # FP32, as the paper's

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Pods:
    """A mapping of feature vectors to ranks.

    Rank r belongs to pod r // size and has slice r % size of the vectors of the pod's nodes. The adjacency is
    partitioned by source: rank r holds the columns of the nodes assigned to it, whatever the mapping.

    Attributes:
        name: One of :data:`onehop.plans.ndp.PODS`.
        size: Ranks of a pod.
        topology: The machine's.
    """

    name: str
    size: int
    topology: Topology

    @classmethod
    def of(cls, topology: Topology, name: str) -> "Pods":
        """The mapping of this name.

        Raises:
            ArgumentError: The mapping is unknown.
            ConfigurationError: The machine's ranks cannot be divided this way.
        """
        if name not in PODS:
            raise ArgumentError(f"mapping: expected one of {', '.join(PODS)}, got {name!r}.")
        whole, _, _ = name.partition("-channel")
        if whole.isdecimal():
            if topology.channels % int(whole):
                raise ConfigurationError(
                    f"mapping: {topology.channels} channels cannot be divided into pods of {whole}; choose "
                    "another mapping or number of channels."
                )
            size = int(whole) * topology.ranks_per_channel
        else:
            size = {
                "rank": 1,
                "dimm": topology.ranks_per_dimm,
                "channel": topology.ranks_per_channel,
                "system": topology.ranks,
            }[name]
        return cls(name, size, topology)

    @property
    def count(self) -> int:
        """Pods of the machine."""
        return self.topology.ranks // self.size

    @property
    def channels(self) -> int:
        """Channels that a pod's ranks span."""
        return max(1, self.size // self.topology.ranks_per_channel)

    @property
    def in_channel(self) -> int:
        """Ranks of a pod in one channel."""
        return min(self.size, self.topology.ranks_per_channel)

    @property
    def inside_dimm(self) -> bool:
        """Return whether a pod's ranks share a buffer chip."""
        return self.size <= self.topology.ranks_per_dimm

    def slices(self, width: int) -> Integers:
        """Return [size + 1]: bounds of each rank's columns; the first slices take the remainder."""
        each, left = divmod(width, self.size)
        return np.cumsum([0, *(each + (j < left) for j in range(self.size))], dtype=np.int64)

    def slice_bytes(self, width: int) -> Integers:
        """Return [ranks]: bytes of a rank's slice of one vector."""
        return np.tile(np.diff(self.slices(width)) * ELEMENT_BYTES, self.count)

    def slice_bursts(self, width: int, burst_bytes: int) -> Integers:
        """Return [ranks]: bursts of a rank's slice of one vector; every slice begins at a burst."""
        return -(-self.slice_bytes(width) // burst_bytes)


def check_width(width: int) -> None:
    """Refuses what cannot be the columns of feature vectors.

    Raises:
        ArgumentError: Not an integer of at least 1.
    """
    if type(width) is not int or width < 1:
        raise ArgumentError(f"width: expected an integer of at least 1, got {width!r}.")


def candidates(topology: Topology) -> list[Pods]:
    """The mappings that differ from one another on this machine, from the smallest pods to the largest."""
    found: dict[int, Pods] = {}
    for name in PODS:
        whole, _, _ = name.partition("-channel")
        if whole.isdecimal() and (topology.channels % int(whole) or int(whole) >= topology.channels):
            continue
        pods = Pods.of(topology, name)
        found.setdefault(pods.size, pods)
    return list(found.values())


def owners(topology: Topology, nodes: int) -> NDArray[np.uint8]:
    """Return [nodes]: the rank that every node is assigned to."""
    ranks = np.arange(topology.ranks, dtype=np.uint8)
    if topology.node_block == 0:
        return np.repeat(ranks, assigned(topology, nodes))
    in_turn = np.repeat(ranks, topology.node_block)
    return np.tile(in_turn, -(-nodes // len(in_turn)))[:nodes]


def assigned(topology: Topology, nodes: int) -> Integers:
    """Return [ranks]: nodes that are assigned to each rank."""
    rank = np.arange(topology.ranks, dtype=np.int64)
    if topology.node_block == 0:
        # Node i has rank i * ranks // nodes.
        return np.diff(-(-np.append(rank, topology.ranks) * nodes // topology.ranks))
    rounds, left = divmod(nodes, topology.ranks * topology.node_block)
    return rounds * topology.node_block + np.clip(left - rank * topology.node_block, 0, topology.node_block)
