"""Memory traffic: its kinds, and requests in order of arrival from a kind, a graph or the user."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onehop.errors import ArgumentError, check_choice
from onehop.graph import Graph
from onehop.machines.common.checks import check_integer
from onehop.machines.dram.device import Dram, Organisation
from onehop.machines.dram.layout import Layout

PATTERNS = ("random", "sequential")
OPERATIONS = ("read", "write")
_ELEMENT_BYTES = 4  # float32


@dataclass(frozen=True, slots=True)
class Access:
    """A kind of traffic.

    Attributes:
        pattern: ``random``: each run starts at a uniformly random multiple of the run's length.
            ``sequential``: bursts follow each other from address 0.
        run_bytes: Contiguous bytes of a random run; partial bursts are moved as whole ones. Ignored for
            sequential traffic.
        op: ``read`` or ``write``.
        span_bytes: Size of the address range, starting at 0, that contains the random runs; at least one run.
            None means anywhere. In a small range, runs find rows open more often.
        write_share: Share of the runs that are writes, drawn at random; for sequential traffic, share of the
            bursts. The others are reads. None means that all are as ``op`` says. Only the command level
            simulates mixed traffic.

    Examples:
        >>> from onehop.machines.dram import Access, Memory, preset
        >>> memory = Memory(preset("DDR5_4800AN"))
        >>> kinds = Access("random", run_bytes=64), Access("random", run_bytes=1024), Access("sequential")
        >>> [round(memory.run(kind, requests=5000).percent_of_peak) for kind in kinds]
        [62, 91, 88]
    """

    pattern: str = "random"
    run_bytes: int = 64
    op: str = "read"
    span_bytes: int | None = None
    write_share: float | None = None

    def __post_init__(self) -> None:
        check_choice("pattern", self.pattern, PATTERNS)
        check_choice("op", self.op, OPERATIONS)
        check_integer("run_bytes", self.run_bytes)
        if self.span_bytes is not None and (type(self.span_bytes) is not int or self.span_bytes < 1):
            raise ArgumentError(
                f"span_bytes: expected None or an integer of at least 1, got {self.span_bytes!r}."
            )

        share = self.write_share
        is_number = isinstance(share, int | float) and not isinstance(share, bool)
        if share is not None and not (is_number and 0 <= share <= 1):
            raise ArgumentError(f"write_share: expected None or a number from 0 to 1, got {share!r}.")

    def run_bursts(self, organisation: Organisation) -> int:
        """Return the number of bursts in a run."""
        return -(-self.run_bytes // organisation.burst_bytes)


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
        """Check shapes and types, and make contiguous copies if needed."""
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
        """Check that every burst is inside the ranks.

        Raises:
            ArgumentError: A burst is outside the ranks.
        """
        if len(self) and (int(self.bursts.min()) < 0 or int(self.bursts.max()) >= layout.bursts):
            raise ArgumentError(
                f"requests: expected bursts from 0 to {layout.bursts - 1}, as many as the ranks hold, got "
                f"{int(self.bursts.min())} to {int(self.bursts.max())}; use more ranks, or addresses modulo "
                "their size."
            )


def generate(access: Access, organisation: Organisation, layout: Layout, count: int, seed: int) -> Requests:
    """Generate ``count`` requests of a kind of traffic; the last run is cut off if needed.

    Raises:
        ArgumentError: A run is longer than the capacity of the ranks.
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
    """Return reads of every edge's source vector, target by target: the first ``most`` bursts.

    Vectors are stored in node order, and each begins at a burst boundary; columns have 4 bytes.

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
