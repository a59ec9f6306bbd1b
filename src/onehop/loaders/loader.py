"""``onehop.loader``: mini-batches with their features, prepared by threads while a training step runs."""

import mmap
import os
import warnings
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count, islice, repeat, starmap
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from onehop import native
from onehop.errors import ArgumentError, IndexRangeError, integer
from onehop.extras import needed
from onehop.kernels.cpu.rows import copy_mapped_rows, copy_rows
from onehop.loaders.keys import drawing_at
from onehop.loaders.neighbor_sampler import NeighborSampler
from onehop.ops.streaming import RawMatrix
from onehop.ops.streaming.matrix_file import MatrixFile


@runtime_checkable
class Rows(Protocol):
    """A source of features for a loader.

    Attributes:
        in_order: Whether requests must be made one after the other, in the same order in every process.
    """

    in_order: bool

    def __len__(self) -> int:
        """Return the number of rows."""

    def rows(self, numbers: Tensor) -> Tensor:
        """Return [n, ...]: the rows with these numbers, [n], int64, in memory that nothing else shares."""


class HeldRows:
    """Rows of a tensor, or of a memory-mapped file on disk.

    :meth:`rows` returns its result in separate memory from the memory pool. The pool reuses that memory only
    after the last tensor that shares it is gone.

    Args:
        name: The argument's name, for error messages.
        given: [N, ...]: a tensor on the CPU; a NumPy array, which may be memory-mapped; the path of a .npy
            file; or a :class:`onehop.RawMatrix` stored by rows. It must not be written to.

    Raises:
        ArgumentError: ``given`` is not one of these.
        FileFormatError: The file is damaged or truncated.
        FileNotFoundError: The file does not exist.
    """

    in_order = False

    def __init__(self, name: str, given: Tensor | np.ndarray | RawMatrix | str | os.PathLike[str]) -> None:
        if isinstance(given, RawMatrix | str | os.PathLike):
            array, dtype = _opened(name, given)
            held = _as_tensor(array)
            self._matrix = held if dtype is None else held.view(dtype)
            self._is_mapped = _is_mapped(array)
        elif isinstance(given, np.ndarray) and not given.dtype.hasobject:
            self._matrix, self._is_mapped = _as_tensor(given), _is_mapped(given)
        elif isinstance(given, Tensor):
            self._matrix, self._is_mapped = given.detach(), False
        else:
            raise ArgumentError(
                f"{name}: expected a tensor, a NumPy array, the path of a .npy file, a RawMatrix, or an "
                f"object with rows(numbers), got {type(given).__name__}."
            )
        if self._matrix.dim() == 0 or not self._matrix.is_cpu or self._matrix.layout != torch.strided:
            raise ArgumentError(
                f"{name}: expected rows [N, ...] in the CPU's memory, got shape {list(self._matrix.shape)} "
                f"on {self._matrix.device}."
            )
        self._name = name

    def __len__(self) -> int:
        return self._matrix.size(0)

    def rows(self, numbers: Tensor) -> Tensor:
        """Return [n, ...]: the rows with these numbers, [n], int64; or raise an IndexRangeError."""
        if numbers.numel() and not 0 <= int(numbers.min()) <= int(numbers.max()) < len(self):
            raise IndexRangeError(
                f"{self._name}: expected rows 0 to {len(self) - 1}, was asked for {int(numbers.min())} to "
                f"{int(numbers.max())}. Give a row for each node of the graph."
            )
        shape, dtype = (numbers.numel(), *self._matrix.shape[1:]), self._matrix.dtype
        pooled = dtype in native.DTYPE_CODES
        out = native.empty(shape, dtype) if pooled else torch.empty(shape, dtype=dtype, device="cpu")
        copy = copy_mapped_rows if self._is_mapped else copy_rows
        copy(self._matrix, numbers.contiguous(), out)
        return out


def rows_of(name: str, given: object, expected: int, what: str) -> Rows:
    """Return the rows that an argument refers to: :class:`Rows`, or what :class:`HeldRows` takes.

    Raises an ArgumentError if the argument is neither, or does not have the expected number of rows.
    """
    rows: Rows = given if isinstance(given, Rows) else HeldRows(name, given)  # type: ignore[arg-type]
    if len(rows) != expected:
        raise ArgumentError(f"{name}: expected {expected} rows, one for each {what}, got {len(rows)}.")
    return rows


def _opened(name: str, given: RawMatrix | str | os.PathLike[str]) -> tuple[np.ndarray, torch.dtype | None]:
    """Return the contents of a file, mapped unless it is empty, and the dtype to view them as, if another."""
    if isinstance(given, RawMatrix):
        file = MatrixFile.open(name, given)
        if file.by_columns and file.columns > 1:
            raise ArgumentError(
                f"{name}: expected the numbers of a row one after the other; store it by rows."
            )
        shape = (file.rows, file.columns)
        if not file.nbytes:
            return np.empty(shape, file.dtype), file.torch_dtype
        return np.memmap(file.path, file.dtype, "r", file.offset, shape), file.torch_dtype
    try:
        array = np.load(given, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        if "mmap an empty file" not in str(error):
            raise ArgumentError(f"{name}: {os.fspath(given)} cannot be mapped ({error}).") from error
        array = np.load(given, allow_pickle=False)
    return array, None


def _is_mapped(array: np.ndarray) -> bool:
    return getattr(array, "_mmap", None) is not None


def _as_tensor(array: np.ndarray) -> Tensor:
    """Return a tensor on the same memory; the system reads only the pages of a mapped file that have rows."""
    file = getattr(array, "_mmap", None)
    if file is not None:
        file.madvise(mmap.MADV_RANDOM)
    with warnings.catch_warnings():
        # torch warns about arrays that it cannot write to; here, rows are only copied out of the array.
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        return torch.from_numpy(array)


with needed("onehop.loader", "pyg"):
    from torch_geometric.data import Data
    from torch_geometric.sampler import NodeSamplerInput

    from onehop.loaders.outputs import edge_index_of

# Arguments of torch's DataLoader that determine which seeds are in a batch.
_OPTIONS = ("batch_size", "shuffle", "sampler", "batch_sampler", "drop_last", "generator")


def loader(
    neighbor_sampler: NeighborSampler,
    input_nodes: Tensor | None = None,
    *,
    features: Mapping[str, Any] | None = None,
    edge_features: Mapping[str, Any] | None = None,
    input_time: Tensor | None = None,
    threads: int = 1,
    ahead: int = 2,
    **options: Any,
) -> "Loader":
    """Make mini-batches as PyG's ``NeighborLoader`` does, some of them ahead of the one in use.

    Threads draw neighbours and gather features while the program computes; both run in C++ without Python's
    global lock. Nothing is copied between processes, and a file of features is mapped once. Batches are the
    same, in the same order, for any number of threads, and equal the batches of PyG's ``NeighborLoader`` with
    this sampler (without a seed: of a patched ``NeighborLoader``). The edges of a batch are sorted by
    destination, and patched layers know its graph.

    Each batch has its own memory while any tensor of it, or view of a tensor, is alive; then later batches
    reuse the memory.

    Args:
        neighbor_sampler: The sampler that draws the neighbours; for a graph with one type of nodes and edges.
        input_nodes: The seeds: [n], integers, or a mask [num_nodes]; None means all nodes.
        features: By name, data with a row for each node, for example ``{"x": "features.npy", "y": labels}``:
            tensors, NumPy arrays, which may be memory-mapped, paths of .npy files, :class:`onehop.RawMatrix`,
            or :class:`onehop.distributed.RemoteRows`.
        edge_features: By name, data with a row for each edge, in the order of the graph's edges, in the same
            forms.
        input_time: [n], integers: the times of the seeds; None means the times of the nodes.
        threads: Number of threads; each makes one batch at a time on one core. 0 means that a batch is made
            when it is requested, with torch's threads.
        ahead: Number of batches that are prepared before they are requested.
        options: ``batch_size``, ``shuffle``, ``sampler``, ``batch_sampler``, ``drop_last`` and ``generator``
            as for :class:`torch.utils.data.DataLoader`.

    Raises:
        ArgumentError: An argument is not as described.
        IndexRangeError: A seed is not a node.

    Examples:
        >>> import onehop, torch
        >>> graph = onehop.Graph.from_edge_index(torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]))  # a ring
        >>> sampler = onehop.NeighborSampler(graph, num_neighbors=[-1])  # all neighbours of one hop
        >>> for batch in onehop.loader(sampler, features={"x": torch.arange(4.0) * 10}, batch_size=2):
        ...     print(batch.n_id.tolist(), batch.x.tolist(), batch.edge_index.tolist())
        [0, 1, 3] [0.0, 10.0, 30.0] [[2, 0], [0, 1]]
        [2, 3, 1] [20.0, 30.0, 10.0] [[2, 0], [0, 1]]
    """
    unknown = [name for name in options if name not in _OPTIONS]
    if unknown:
        raise ArgumentError(
            f"{', '.join(unknown)}: expected some of {', '.join(_OPTIONS)}; for worker processes and other "
            "options of torch's DataLoader, give the sampler to PyG's NeighborLoader as neighbor_sampler=."
        )
    if not isinstance(neighbor_sampler, NeighborSampler) or neighbor_sampler.is_hetero:
        raise ArgumentError(
            "neighbor_sampler: expected an onehop.NeighborSampler of one graph; for several types of nodes "
            "or edges, give it to PyG's NeighborLoader as neighbor_sampler=."
        )
    pace = _Pace(integer("threads", threads), integer("ahead", ahead, 1))
    by_name = _named("features", features, int(neighbor_sampler.num_nodes), "node")  # type: ignore[arg-type]
    of_edges = _named("edge_features", edge_features, neighbor_sampler.num_edges, "edge")
    if pace.threads > 1 and any(each.in_order for each in (*by_name.values(), *of_edges.values())):
        raise ArgumentError(
            "threads: rows of other processes are fetched batch after batch, in one order on all ranks; give "
            "threads=1."
        )
    inputs = _inputs(neighbor_sampler, input_nodes, input_time)
    return Loader(neighbor_sampler, inputs, _Contents(by_name, of_edges), pace, options)


class _Contents(NamedTuple):
    """Contents of batches other than their edges, by name."""

    features: Mapping[str, Rows]
    edge_features: Mapping[str, Rows]


class _Pace(NamedTuple):
    """Number of threads that make batches, and number of batches that are prepared ahead."""

    threads: int
    ahead: int


class Loader:
    """Iterates over mini-batches; create it with :func:`loader`."""

    def __init__(
        self,
        sampler: NeighborSampler,
        inputs: NodeSamplerInput,
        contents: _Contents,
        pace: _Pace,
        options: Mapping[str, Any],
    ) -> None:
        self.sampler = sampler
        self._inputs, self._contents, self._pace = inputs, contents, pace
        self._generator = options.get("generator")
        # There is no DataLoader without seeds, because torch refuses to shuffle an empty data set.
        numbers: Any = range(inputs.node.numel())
        self._order: Any = DataLoader(numbers, **options).batch_sampler if len(numbers) else ()

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[Data]:
        """Start an epoch."""
        # torch's DataLoader also draws this number first, so the order of the seeds is drawn from the same
        # state.
        base = torch.empty((), dtype=torch.int64, device="cpu")
        base.random_(generator=self._generator)
        chosen = zip(repeat(int(base)), count(), self._order)
        return starmap(self._made, chosen) if self._pace.threads == 0 else self._ahead_of(chosen)

    def _ahead_of(self, chosen: Iterator[tuple[int, int, list[int]]]) -> Iterator[Data]:
        """Yield the batches while threads prepare the next ones.

        When a program leaves its loop, every process of a job has started equally many batches. After an
        error, no further batch is made: if a rank is lost, messages of two batches would mix.
        """
        errors: list[BaseException] = []

        def made(which: tuple[int, int, list[int]]) -> Data:
            if errors:
                raise errors[0]
            try:
                return self._made(*which)
            except BaseException as error:
                errors.append(error)
                raise

        waiting: deque[Future[Data]] = deque()
        with ThreadPoolExecutor(self._pace.threads, "onehop.loader", native.one_thread) as pool:
            for which in islice(chosen, self._pace.ahead):
                waiting.append(pool.submit(made, which))
            while waiting:
                batch = waiting.popleft().result()
                for which in islice(chosen, 1):
                    waiting.append(pool.submit(made, which))
                yield batch
                del batch  # otherwise its memory would not be free while the program waits for the next batch

    def _made(self, base: int, number: int, indices: list[int]) -> Data:
        """Make a batch of the epoch with seed ``base``, with the attributes that PyG's loader sets."""
        inputs = self._inputs[torch.tensor(indices, dtype=torch.int64, device="cpu")]
        # Numbered as in a PyG loader, in the first epoch of its iterator.
        with drawing_at(base, 0, number):
            out: Any = self.sampler.sample_from_nodes(inputs)
        edge_index = edge_index_of(out.row, out.col)
        data = Data(
            edge_index=torch.stack([out.row, out.col]) if edge_index is None else edge_index,
            num_nodes=out.node.numel(),
        )
        for name, rows in self._contents.features.items():
            data[name] = rows.rows(out.node)
        for name, rows in self._contents.edge_features.items():
            data[name] = rows.rows(out.edge)
        data.n_id, data.e_id, data.batch = out.node, out.edge, out.batch
        data.num_sampled_nodes, data.num_sampled_edges = out.num_sampled_nodes, out.num_sampled_edges
        data.input_id, data.seed_time = out.metadata
        data.batch_size = len(indices)
        return data


def _named(argument: str, given: Mapping[str, Any] | None, expected: int, what: str) -> dict[str, Rows]:
    if given is not None and not isinstance(given, Mapping):
        raise ArgumentError(f"{argument}: expected a dictionary by name, got {type(given).__name__}.")
    return {
        name: rows_of(f"{argument}[{name!r}]", each, expected, what) for name, each in (given or {}).items()
    }


def _inputs(sampler: NeighborSampler, nodes: Tensor | None, time: Tensor | None) -> NodeSamplerInput:
    """Return the seeds; as in PyG's loaders, a mask numbers them by node, and a list by position."""
    count = int(sampler.num_nodes)  # type: ignore[arg-type]
    if nodes is None:
        return NodeSamplerInput(input_id=None, node=torch.arange(count, device="cpu"), time=time)
    is_mask = isinstance(nodes, Tensor) and nodes.dtype == torch.bool
    if not isinstance(nodes, Tensor) or nodes.dim() != 1 or (is_mask and nodes.numel() != count):
        raise ArgumentError(f"input_nodes: expected a tensor of nodes [n], or a mask [{count}].")
    if nodes.dtype.is_floating_point or nodes.is_complex():
        raise ArgumentError(f"input_nodes: expected integers or a mask, got {nodes.dtype}.")
    seeds = nodes.cpu().nonzero().view(-1) if is_mask else nodes.cpu().long()
    if seeds.numel() and not 0 <= int(seeds.min()) <= int(seeds.max()) < count:
        raise IndexRangeError(
            f"input_nodes: nodes {int(seeds.min())} to {int(seeds.max())} are not all in [0, {count})."
        )
    return NodeSamplerInput(input_id=seeds if is_mask else None, node=seeds, time=time)
