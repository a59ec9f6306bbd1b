"""All size thresholds of optimisations, with a switch that removes them.

Tests have small graphs, so they easily miss code that runs only above a size. With
``ONEHOP_THRESHOLDS=none``, or inside :func:`lifted`, such code always runs: tensors are cached at the first
use, blocks have a few edges, and every loop is divided among the threads.
"""

import contextlib
import dataclasses
import sys
import threading
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from onehop import config
from onehop.scopes import Entry


def _bound(ordinary: int, lifted: int = 0) -> Any:
    """Return a field for a threshold; ``lifted`` is its value with which the code runs at every size."""
    return dataclasses.field(default=ordinary, metadata={"lifted": lifted})


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The thresholds. A quantity at or above its threshold is large enough.

    Attributes:
        meetings: Number of uses of constant features or weights before a derived tensor is cached.
        kept_work: Minimal edges times width for caching aggregates of constant features; below, the sum costs
            hardly more than the lookup.
        ordered_edges: Minimal edges for caching weights in the graph's order; fewer weights stay in the
            fastest caches.
        pooled_bytes: Minimal size of an output from the memory pool; below, torch's allocator reuses memory
            equally well.
        serial_work: Edges times width below which the default plan has one thread. The choice is cautious: at
            five times this work (10,556 edges, width 16), two threads took three quarters of the time of one.
        wide_edges: Edges above which edge numbers have 64 bits.
        product_block_rows: Rows of a block when the gradient of a linear step is summed over blocks. 1,024 to
            4,096 rows take the same time, 128 rows 1.5 times as long.
        product_work: Minimal rows times columns of x times columns of the result for running a product of a
            linear step in the fastest library. This is about a millisecond of work, so the cost of the choice
            does not matter.
        sparse_numbers: Minimal entries of constant features for testing whether nearly all are 0; below, the
            product costs hardly more than the test.
        awaited_numbers: Minimal entries of features on a GPU for choosing the order of a layer's linear step
            and aggregation there. The host then waits some tens of microseconds to find out whether the first
            result is finite; in this time, a GPU reads about this many entries. For a mini-batch, this is too
            long.
        few_edges: Edges below which no graph is made if the work is small too, because making and recognising
            a graph takes longer. Native code reads such edges as a list if it can; otherwise PyG's own code
            runs, where an edge of attention, a maximum or a minimum counts four times. Self loops and
            normalisations of fewer edges, loops included, are computed again in every call. Without this
            bound, new graphs of 60 edges ran at 0.6 (SAGE) and 0.8 (GAT) of PyG's speed.
        few_work: Edges times width below which the work is small, if PyG's own code runs.
        listed_work: Edges times width below which the work is small, if native code reads the list. With
            2,000 to 4,000 new edges and width 64, GCNConv, GATConv, GATv2Conv, GINConv and SAGEConv took 1.1
            to 1.7 times as long over a graph.
        cached_bytes: Bytes of edges times the widest operand below which PyG's own code runs instead of
            blocks, because its tensors fit the cache too, and blocks run again in the backward pass. A
            SAGEConv with a median, 10,000 edges and width 32, forward and backward, took twice as long in
            blocks. It is also the size below which attention may make a tensor of edges that is larger than
            the features from which it is made.
        compiled_edges: Minimal edges for compiling a message; with fewer edges it runs in blocks.
        block_bytes: Bytes of the largest intermediate tensor of a message in a block. A few such tensors
            exist at once. Measured on 2 cores with 32 MiB of last-level cache, with GINEConv and
            ResGatedGraphConv of width 64, forward and backward: 4 MiB takes 4 to 20 % longer, 1 MiB 5 to 7 %,
            512 KiB 15 to 35 %, because of calls and of barriers between threads.
        block_edges: Minimal edges of a block of several rows, even if messages are wide.
        edge_columns: Minimal columns of edge features for computing attention's product with them by a
            library, for all edges at once, instead of in the kernel in every sweep. With GATv2Conv and
            TransformerConv of width 32 to 256, forward and backward, with 6,000 and 300,000 edges, the kernel
            takes 0.7 to 1.0 times as long with 4 columns, 1.0 to 1.8 times with 16 (but it saves memory), 1.1
            to 2.0 times with 32, and 1.4 to 3.3 times with 272. Compiled messages multiply edge features in
            tiles; they take equally long either way with 32 and 48 columns, and 1.5 times as long in tiles
            with 128.
        columns_of_a_head: Columns of a head below which weighted sums run as compiled messages, instead of
            head by head. With 20,000 nodes and 200,000 edges of 128 columns, forward and backward, weights
            without gradients, messages and heads take 48 and 538 ms with 1 column, 63 and 109 ms with 4, and
            47 and 44 ms with 8.
        rows_a_node: Rows of HGTConv's relations, per node, that are made at once; more rows are made group by
            group, and again in the backward pass. With 5 relations, groups of one or two relations take 1.5
            times as long as all at once, with 0.8 times the memory.
        degree_rows: Minimal rows of one degree for multiplying them by a separate matrix; making the matrix
            takes as long as multiplying about a hundred rows by three matrices.
        direct_numbers: Minimal entries for running PyG's ``segment`` and ``softmax`` as aggregations; each
            entry counts eight times. For a softmax of fewer entries, no graph is made.
        index_entries: Entries of an index below which torch's own indexing always runs.
        index_numbers: Minimal numbers that torch's indexing or PyG's ``scatter`` gathers or scatters for
            running over the graph of the index. This is the bound for sums. For torch's other operations it
            depends on their cost (csrc/bindings/torch_kernels.cpp); for PyG's differentiated means it is a
            quarter, for differentiated extrema a twelfth. With a new index in each call, sums of 1.3 million
            numbers ran at 0.8 times torch's speed, and sums of 3.2 million at 1.5 times; PyG's extrema with
            gradients ran at 1.1 times with 128,000 numbers, and at 1.5 times with 256,000.
        index_columns: Minimal numbers of a row, times threads, for running torch's sums by an index over its
            graph; for means, extrema and subscripts it is a quarter. torch adds single numbers in one thread:
            8 million numbers take 10 milliseconds, and over a graph 25, or 75 if the graph is new.
        sorted_edges: Minimal edges for running PyG's functions of edges in onehop. torch sorts fewer edges by
            comparison, which changes the order of equal edges; from 32,768 edges on, torch sorts by radix,
            which keeps their order, as onehop does.
        sorted_numbers: Minimal integers for running torch's ``unique``, ``isin`` and stable ``sort`` in
            onehop.
        tuned_work: Minimal edges times width for tuning a graph under ``patch(tune="auto")``; below, calls
            are so short that no plan saves time.
        dropout_elements: Minimal elements for drawing dropout's numbers in onehop; below, reading and writing
            the generator's state takes longer than torch's drawing.
        dropout_recorded_elements: Minimal elements if a backward pass is recorded; recording in Python takes
            50 microseconds more than in torch.
        dropout_share: Minimal elements per thread for dividing the stream of random numbers among threads;
            advancing to its share takes a thread as long as drawing half a million numbers.
    """

    meetings: int = _bound(2, lifted=1)
    kept_work: int = _bound(1 << 20)
    ordered_edges: int = _bound(1 << 16)
    pooled_bytes: int = _bound(1 << 20)
    serial_work: int = _bound(1 << 15)
    wide_edges: int = _bound(2**31 - 1)
    product_block_rows: int = _bound(1 << 11, lifted=4)
    product_work: int = _bound(1 << 26)
    sparse_numbers: int = _bound(1 << 20)
    awaited_numbers: int = _bound(1 << 26)
    few_edges: int = _bound(1 << 12)
    few_work: int = _bound(1 << 17)
    listed_work: int = _bound(1 << 18)
    cached_bytes: int = _bound(16 << 20)
    compiled_edges: int = _bound(0)
    block_bytes: int = _bound(2 << 20)
    block_edges: int = _bound(64, lifted=8)
    edge_columns: int = _bound(32)
    columns_of_a_head: int = _bound(8, lifted=1 << 30)
    rows_a_node: int = _bound(8)
    degree_rows: int = _bound(1 << 7, lifted=3)
    direct_numbers: int = _bound(1 << 22)
    index_entries: int = _bound(1 << 10)
    index_numbers: int = _bound(1 << 21)
    index_columns: int = _bound(8)
    sorted_edges: int = _bound(1 << 15)
    sorted_numbers: int = _bound(1 << 13)
    tuned_work: int = _bound(1 << 20)
    dropout_elements: int = _bound(1 << 10)
    dropout_recorded_elements: int = _bound(3 << 11)
    dropout_share: int = _bound(1 << 21, lifted=1)


ORDINARY = Thresholds()
NONE = Thresholds(**{each.name: each.metadata["lifted"] for each in dataclasses.fields(Thresholds)})
"""The values with which all code runs at every size; small inputs give several blocks."""

now = NONE if config.without_thresholds() else ORDINARY
"""The thresholds in force; process-wide."""


@contextlib.contextmanager
def changed(**bounds: int) -> Iterator[None]:
    """Set some thresholds, by name, inside the block; for tests.

    Raises:
        TypeError: There is no threshold with this name.
    """
    with _in_force(dataclasses.replace(now, **bounds)):
        yield


@contextlib.contextmanager
def lifted() -> Iterator[None]:
    """Apply every optimisation at every size inside the block, as with ``ONEHOP_THRESHOLDS=none``."""
    with _in_force(NONE):
        yield


@contextlib.contextmanager
def _in_force(bounds: Thresholds) -> Iterator[None]:
    """Sets the thresholds of all threads inside the block; others run backward passes and loaders for it.

    This is not a :class:`.Scoped`, because small torch calls read ``now``, and reading an attribute needs no
    call.
    """
    with _lock:
        if len(_blocks) == 1:
            _blocks[0].value = now
        entry = Entry(bounds)
        _blocks.append(entry)
        _module.now = bounds
    try:
        yield
    finally:
        with _lock:
            _blocks.remove(entry)
            _module.now = _blocks[-1].value


def follow(follower: Callable[[Thresholds], None]) -> None:
    """Call a function with the thresholds in force, now and whenever they change."""
    with _lock:
        _followers.append(follower)
        follower(now)


class _Followed(types.ModuleType):
    """The type of this module; it calls the followers when ``now`` is set."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "now":
            for follower in _followers:
                follower(value)


_module: Any = sys.modules[__name__]
_module.__class__ = _Followed
_followers: list[Callable[[Thresholds], None]] = []

_lock = threading.Lock()
# The last entry is in force; the first has the thresholds from before all blocks.
_blocks = [Entry(now)]
