"""Requests in order of arrival: of a kind of traffic, of a graph's feature vectors, or given by the user."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.machines.common.checks import check_integer
from onehop.machines.dram.access import Access
from onehop.machines.dram.device import Dram, Organisation
from onehop.machines.dram.layout import Layout

_ELEMENT_BYTES = 4  # float32


@dataclass(frozen=True, slots=True, eq=False)
class Requests:
    """Bursts to read or write.

    Attributes:
        bursts: int64 [N], numbers of bursts: byte addresses divided by the bytes of a burst.
        writes: uint8 [N], 1 for a write, 0 for a read.
    """

    bursts: NDArray[np.int64]
    writes: NDArray[np.uint8]

    def __post_init__(self) -> None:
        """Checks shapes and types, and takes contiguous copies where needed."""
        for name, dtype in (("bursts", np.int64), ("writes", np.uint8)):
            value = np.asarray(getattr(self, name))
            if value.ndim != 1 or not (value.dtype == bool or np.issubdtype(value.dtype, np.integer)):
                raise ArgumentError(
                    f"requests.{name}: expected integers in one dimension, got {value.dtype} of shape "
                    f"{value.shape}."
                )
            object.__setattr__(self, name, np.ascontiguousarray(value, dtype=dtype))
        if self.bursts.shape != self.writes.shape:
            raise ArgumentError(
                f"requests: expected as many writes as bursts, got {len(self.writes)} and {len(self.bursts)}."
            )

    def __len__(self) -> int:
        """Number of requests."""
        return len(self.bursts)

    def check(self, layout: Layout) -> None:
        """Raises unless the ranks have every burst.

        Raises:
            ArgumentError: A burst lies outside the ranks.
        """
        if len(self) and (int(self.bursts.min()) < 0 or int(self.bursts.max()) >= layout.bursts):
            raise ArgumentError(
                f"requests: expected bursts from 0 to {layout.bursts - 1}, as many as the ranks hold, got "
                f"{int(self.bursts.min())} to {int(self.bursts.max())}; use more ranks, or addresses modulo "
                "their size."
            )


def generate(access: Access, organisation: Organisation, layout: Layout, count: int, seed: int) -> Requests:
    """Generates requests of a kind of traffic.

    Args:
        access: The traffic.
        organisation: Of the ranks.
        layout: Fixes the number of bursts.
        count: Requests; the last run is truncated if they do not divide evenly.
        seed: Seed of the addresses of random runs.

    Raises:
        ArgumentError: A run is longer than the ranks hold.
    """
    if access.pattern == "sequential":
        bursts = np.arange(count, dtype=np.int64) % layout.bursts
    else:
        run = access.run_bursts(organisation)
        if run > layout.bursts:
            raise ArgumentError(
                f"run_bytes: expected at most the {layout.bursts * organisation.burst_bytes} bytes of the "
                f"ranks, got {access.run_bytes}."
            )
        space = layout.bursts
        if access.span_bytes is not None:
            space = min(space, max(run, -(-access.span_bytes // organisation.burst_bytes)))
        starts = np.random.default_rng(seed).integers(0, space // run, size=-(-count // run)) * run
        bursts = (starts[:, None] + np.arange(run)).reshape(-1)[:count]
    if access.write_share is None:
        return Requests(bursts, np.full(count, access.op == "write", dtype=np.uint8))
    length = 1 if access.pattern == "sequential" else access.run_bursts(organisation)
    written = np.random.default_rng(seed + 1).random(-(-count // length)) < access.write_share
    return Requests(bursts, np.repeat(written, length)[:count].astype(np.uint8))


def vector_reads(graph: Graph, width: int, dram: Dram, most: int) -> Requests:
    """Reads of the source's vector of every edge, target by target.

    Vectors are stored in the order of their numbers, and each begins at a burst.

    Args:
        graph: The graph.
        width: Columns of the vectors, of 4 bytes each.
        dram: The device, whose bursts are read.
        most: Bursts at most: the first ones.

    Raises:
        ArgumentError: The width or the number is not a positive integer, or the graph has no edges.
    """
    for name, value in (("width", width), ("requests", most)):
        check_integer(name, value)
    if not graph.num_edges:
        raise ArgumentError("graph: it has no edges, so an aggregation reads no vectors.")
    bursts = -(-width * _ELEMENT_BYTES // dram.organisation.burst_bytes)
    sources = graph.col[: -(-most // bursts)].numpy().astype(np.int64)
    wanted = (sources[:, None] * bursts + np.arange(bursts)).reshape(-1)[:most]
    return Requests(wanted, np.zeros(len(wanted), dtype=np.uint8))
