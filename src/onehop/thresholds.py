"""Sizes above which an optimisation applies, all in one place, with a switch that applies it at every size.

Code that runs only above a size is easily missed by tests, whose graphs are small. With
``ONEHOP_THRESHOLDS=none``, or inside :func:`lifted`, it always runs: tensors are cached at the first use,
blocks have a few edges, every loop is shared among the threads.
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
    """A threshold; ``lifted`` is its value with which everything runs at every size."""
    return dataclasses.field(default=ordinary, metadata={"lifted": lifted})


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The thresholds. A quantity at or above its threshold is large enough.

    Attributes:
        meetings: Number of uses of constant features or weights before a derived tensor is cached.
        kept_work: Edges times width from which on aggregates of constant features are cached; below, the sum
            costs hardly more than the lookup.
        ordered_edges: Edges from which on weights are cached in the graph's order; fewer stay in the nearest
            caches.
        pooled_bytes: Size from which on an output comes from the memory pool; below, torch's allocator
            recycles as well as the pool would.
        serial_work: Edges times width below which the default plan has one thread. A cautious choice: at five
            times as many (10,556 edges, width 16) two threads took three quarters of the time of one.
        wide_edges: Edges above which numbers of edges have 64 bits.
        product_block_rows: Rows of a block, over which the gradient of a linear step may be summed. 1,024 to
            4,096 take the same time, 128 half as long again.
        product_work: Rows times columns of x times columns of the result from which on a product of a linear
            step runs in the fastest library: about a millisecond of work, beside which the choice costs
            nothing.
        sparse_numbers: Entries of constant features from which on it is found out whether nearly all are 0;
            below, the product costs hardly more.
        awaited_numbers: Entries of features on a device from which on the order of a layer's linear step and
            aggregation is chosen there. The host then waits to know whether what came first is finite, some
            tens of microseconds, in which a GPU reads about as many entries: a mini-batch is not worth it.
        few_edges: Edges below which no graph is made if the work is small too: making a graph and recognising
            it takes longer. Such edges are read as a list where native code serves it, and by PyG's own code
            elsewhere, where an edge of attention, a maximum or a minimum counts four times. Self loops and
            norms of fewer edges, loops included, are made anew at every call. Fresh graphs of 60 edges ran
            at 0.6 (SAGE) and 0.8 (GAT) of PyG's speed without this bound.
        few_work: Edges times width below which that work is small, where PyG's own code runs.
        listed_work: The same where a list of edges is served. Fresh edges of 2,000 to 4,000 and width 64 took
            GCNConv, GATConv, GATv2Conv, GINConv and SAGEConv 1.1 to 1.7 times as long over a graph.
        cached_bytes: Bytes of edges times the widest operand below which PyG's own code runs instead of
            blocks: its tensors fit in the cache too, and blocks run again in the backward pass. A SAGEConv
            with a median, of 10,000 edges and width 32, forward and backward, took twice as long in blocks.
            Also bytes below which attention may make a tensor of edges that is larger than the features
            that it is made of.
        compiled_edges: Edges from which on a message that can be compiled is; fewer run in blocks.
        block_bytes: Bytes of the largest intermediate tensor of a message in a block. A handful of such
            tensors is alive at once. Measured on 2 cores with 32 MiB of last-level cache, GINEConv and
            ResGatedGraphConv of width 64, forward and backward: 4 MiB takes 4 to 20 % longer, 1 MiB 5 to 7 %,
            512 KiB 15 to 35 %, in calls and in barriers between threads.
        block_edges: Fewest edges of a block of several rows, however wide its messages.
        edge_columns: Columns of edge features from which on attention's product with them is made by a
            library, for all edges at once, and not in the kernel, which makes it in every sweep. With
            GATv2Conv and TransformerConv of width 32 to 256, forward and backward, with 6,000 and 300,000
            edges, the kernel takes 0.7 to 1.0 times as long with 4 columns, 1.0 to 1.8 with 16, where it
            spares memory, 1.1 to 2.0 with 32, and 1.4 to 3.3 with 272. Compiled messages, which
            multiply features of edges in tiles, take as long either way with 32 and 48 columns, and 1.5 times
            as long in tiles with 128.
        columns_of_a_head: Columns of a head below which weighted sums run as messages, column beside column,
            and not head by head. With 20,000 nodes and 200,000 edges of 128 columns, forward and backward,
            weights without gradients, messages take 48 ms and heads 538 with 1 column, 63 and 109 with 4, 47
            and 44 with 8.
        rows_a_node: Rows of HGTConv's relations that are made at once, for every node; more are made group by
            group, and again in the backward pass. Of 5 relations, groups of one or two take 1.5 times as long
            as all at once, for 0.8 of the memory.
        degree_rows: Rows of one degree from which on they are multiplied by a matrix of their own, which is
            as long in the making as about a hundred rows are multiplied by three.
        direct_numbers: Entries from which on PyG's ``segment`` and ``softmax`` run as aggregations; an entry
            of these counts eight times. Fewer are reduced before their rows are found.
        index_entries: Entries of an index below which torch's own indexing runs, whatever else is there.
        index_numbers: Numbers that torch's own indexing and PyG's ``scatter`` gather or scatter from which on
            they run over the graph of the index: of sums. Of torch's others see what each costs
            (csrc/bindings/torch_kernels.cpp); of PyG's means that are differentiated a quarter, of such
            extrema a twelfth. With an index that is new in each call, sums of 1.3 million ran at 0.8 of
            torch's speed and of 3.2 million at 1.5; PyG's extrema with their gradients of 128,000 at 1.1, of
            256,000 at 1.5.
        index_columns: Numbers of a row, times threads, from which on torch's sums by an index run over its
            graph; of its means and extrema, and of a subscript, a quarter. torch adds single numbers in one
            thread, 8 million in 10 milliseconds, which over a graph take 25, and 75 where it is new.
        sorted_edges: Edges from which on PyG's functions of edges run as ours. Fewer are sorted by comparison
            in torch, in which equal edges change their order; from 32,768 on torch sorts by radix, and they
            keep it, as here.
        sorted_numbers: Integers from which on torch's ``unique``, ``isin`` and stable ``sort`` run as ours.
        tuned_work: Edges times width from which on a graph is tuned under ``patch(tune="auto")``; below,
            calls are so short that no plan saves any time.
        dropout_elements: Elements from which on dropout draws torch's numbers itself; below, reading and
            writing the generator's state takes longer than torch's draw.
        dropout_recorded_elements: The same where a backward pass is recorded, which in Python takes 50
            microseconds more than torch's own.
        dropout_share: Elements of each thread from which on the stream of random numbers is divided among
            threads: a thread's way to its share of it takes as long as drawing half a million numbers.
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
"""Values with which everything runs at every size: small inputs make several blocks."""

now = NONE if config.without_thresholds() else ORDINARY
"""The thresholds in force; process-wide."""


@contextlib.contextmanager
def changed(**bounds: int) -> Iterator[None]:
    """Sets some thresholds, by name, inside the block; for tests.

    Raises:
        TypeError: There is no threshold of that name.
    """
    with _in_force(dataclasses.replace(now, **bounds)):
        yield


@contextlib.contextmanager
def lifted() -> Iterator[None]:
    """Makes every optimisation apply at every size inside the block, as ``ONEHOP_THRESHOLDS=none`` does."""
    with _in_force(NONE):
        yield


@contextlib.contextmanager
def _in_force(bounds: Thresholds) -> Iterator[None]:
    """Sets the thresholds inside the block, of all threads, which run backward passes and loaders for it.

    Not a :class:`.Scoped`: small calls of torch read ``now``, and an attribute is read without a call.
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
    """Calls a function with the thresholds in force, now and whenever they change."""
    with _lock:
        _followers.append(follower)
        follower(now)


class _Followed(types.ModuleType):
    """This module, which tells its followers of the thresholds that anybody puts in force."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "now":
            for follower in _followers:
                follower(value)


_module: Any = sys.modules[__name__]
_module.__class__ = _Followed
_followers: list[Callable[[Thresholds], None]] = []

_lock = threading.Lock()
# The last is in force; the first is what was in force before.
_blocks = [Entry(now)]
