"""A partitioned graph on disk: one folder per part, so that each process reads only its own part.

``meta.json`` describes the whole graph. ``part-00003/`` has a ``.npy`` file for each array of part 3. Its
folder ``tensors/`` has the part's rows of the tensors that were stored with the graph.
"""

import dataclasses
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onehop.distributed.division import Division, ListDivision, fingerprint
from onehop.distributed.numbering import edges_of, grouped
from onehop.distributed.part import ARRAYS, Part, edge_kind
from onehop.distributed.partition import Method, partition
from onehop.errors import ArgumentError, FileFormatError
from onehop.graph import Graph
from onehop.graph.stored import StoredGraph
from onehop.storage import write_all, writing


class StoredDivision(Division):
    """A division of a stored graph; memory holds one block of edges, or one part, and some numbers per node.

    The graph has as many destinations as sources; owners [N], int32, give the part of every node. ``scratch``
    is an empty folder with room for 4 bytes per edge and 4 bytes per row that is sent.

    Raises:
        FileFormatError: The graph's files contradict themselves.
        StorageError: The disk is full.
    """

    def __init__(self, graph: StoredGraph, owner: Tensor, parts: int, scratch: Path) -> None:
        self._rowptr = graph.rowptr
        self._row_bounds, self._rows = (each.numpy() for each in grouped(owner, parts))
        per_row = np.diff(self._rowptr)[self._rows]
        self._edge_bounds = np.concatenate([[0], per_row.cumsum()])[self._row_bounds]
        self._sources = scratch / "sources"
        identity = self._deal(graph, owner.numpy(), parts)
        super().__init__(owner, parts, graph.num_edges, identity, scratch / "halos")

    def _deal(self, graph: StoredGraph, owner: np.ndarray, parts: int) -> int:
        """Write the sources of each part's edges to its region of a file; return the graph's identity."""
        # The narrowest dtype, because NumPy sorts it in one pass.
        owner_of_row = owner.astype(np.min_scalar_type(parts))
        identity = fingerprint(torch.from_numpy(owner))
        ends = self._edge_bounds[:-1].copy()
        with writing("folder", self._sources):
            # Unbuffered: with a buffer, closing the file would fail a second time.
            opened = self._sources.open("wb", buffering=0)
        with opened as file:
            # The caller does not choose the block boundaries, so equal graphs have equal blocks and
            # identities.
            for first, degrees, col in graph.blocks():
                identity = fingerprint(degrees, col, torch.tensor(identity, device="cpu"))
                of_edge = np.repeat(owner_of_row[first : first + len(degrees)], degrees.numpy())
                dealt = col.numpy()[np.argsort(of_edge, kind="stable")]
                counts = np.bincount(of_edge, minlength=parts)
                with writing("folder", self._sources, dealt.nbytes):
                    for rank, sources in enumerate(np.split(dealt, counts.cumsum()[:-1])):
                        file.seek(int(ends[rank]) * dealt.itemsize)
                        write_all(file, sources.data)
                ends += counts
        return identity

    def edges(self, rank: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the edges of a part; see :meth:`Division.edges`."""
        begin, end = self._edge_bounds[rank : rank + 2]
        source = np.fromfile(self._sources, np.int32, end - begin, offset=4 * int(begin))
        rows = self._rows[self._row_bounds[rank] : self._row_bounds[rank + 1]]
        numbers, counts = edges_of(self._rowptr, rows)
        target = np.repeat(rows, counts)
        return torch.from_numpy(source), torch.from_numpy(target), torch.from_numpy(numbers)


# Number of bytes of a tensor that are in memory at a time.
_BLOCK_BYTES = 1 << 26


def deal(array: np.ndarray, division: Division, files: list[Path]) -> None:
    """Write each part's rows of an array to a .npy file of the part, in a folder that exists.

    The array, [N, ...], may be memory-mapped, because it is read once and in order. Raises an OSError if the
    disk is full.
    """
    row_bytes = array.dtype.itemsize * int(np.prod(array.shape[1:], dtype=np.int64))
    begins = []
    for rank in range(division.parts):
        shape = (len(division.owned(rank)), *array.shape[1:])
        description = np.lib.format.dtype_to_descr(array.dtype)
        with files[rank].open("wb") as file:
            header = {"descr": description, "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            begins.append(file.tell())
    step = max(_BLOCK_BYTES // max(row_bytes, 1), 1)
    local = division.rows.local.numpy()
    for first in range(0, len(array), step):
        block = array[first : first + step]
        # A part's inner rows have consecutive numbers, and so have its other rows.
        kinds = division.kinds(first, first + step)
        order = np.argsort(kinds, kind="stable")
        distinct, runs = np.unique(kinds[order], return_index=True)
        for kind, rows in zip(distinct.tolist(), np.split(order, runs[1:]), strict=True):
            rank = kind // 2
            with files[rank].open("r+b") as file:
                file.seek(begins[rank] + int(local[first + rows[0]]) * row_bytes)
                file.write(np.ascontiguousarray(block[rows]).data)


_FORMAT = "onehop partitioned graph 3"
_META = "meta.json"
_WHOLE = ("num_nodes", "num_edges", "cut_edges", "cut_rows", "identity")


def save(
    folder: str | os.PathLike[str],
    graph: Tensor | StoredGraph,
    num_nodes: int | None = None,
    *,
    parts: int,
    method: Method = "auto",
    seed: int = 0,
    tensors: Mapping[str, Tensor | np.ndarray] | None = None,
    edge_tensors: Mapping[str, Tensor | np.ndarray] | None = None,
) -> dict[str, Any]:
    """Divide a graph, and write a folder that :meth:`DistributedGraph.open` reads part by part.

    Call this once, in one process. The folder appears only when it is complete.

    Args:
        folder: The path of the folder, which must not exist.
        graph: The list of edges, [2, E], int32 or int64, on the CPU; or a graph on disk
            (:meth:`onehop.Graph.open`), of which this process holds one part at a time in memory. A graph on
            disk temporarily needs 4 more bytes of disk space per edge, and 4 bytes per row that is sent.
        num_nodes: Number of nodes; None means one more than the largest number in the list, or the number of
            nodes of the graph on disk.
        parts: Number of processes.
        method: See :func:`onehop.distributed.partition`.
        seed: See :func:`onehop.distributed.partition`.
        tensors: Tensors [N, ...] by name, for example features and labels, that are divided in the same way;
            or NumPy arrays, which may be memory-mapped.
        edge_tensors: Tensors [E, ...] by name, for example features of edges, in the order of the list, or of
            the rows of the graph on disk. Each edge's row goes to the part in which the edge ends; memory
            holds one part's rows at a time.

    Returns:
        The content of ``meta.json``: numbers of nodes and edges, ``cut_edges`` and ``cut_rows``.

    Raises:
        ArgumentError: The folder exists, or an argument does not fit.
        FileFormatError: The files of the graph on disk contradict themselves.
        IndexRangeError: A node number is negative or too large.
        StorageError: The disk is full, or not writable.

    Examples:
        >>> import tempfile, torch
        >>> from onehop.distributed import save
        >>> edges = torch.tensor([[0, 1, 2, 0, 3, 4, 5, 3, 2], [1, 2, 0, 2, 4, 5, 3, 5, 3]])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     meta = save(f"{folder}/a", edges, parts=2, method="greedy", tensors={"x": torch.ones(6, 4)})
        >>> meta["num_nodes"], meta["cut_edges"]  # two triangles, joined by the edge 2->3
        (6, 1)
    """
    goal = Path(folder)
    with writing("folder", goal):
        exists = goal.exists()
    if exists:
        raise ArgumentError(f"folder: {goal} exists; remove it or give another name.")
    whole = graph if isinstance(graph, StoredGraph) else Graph.from_edge_index(graph, num_nodes)
    if num_nodes is not None and num_nodes != whole.num_dst:
        raise ArgumentError(f"num_nodes: the graph on disk has {whole.num_dst} nodes, not {num_nodes}.")
    arrays = _as_arrays("tensors", tensors, whole.num_dst, "nodes")
    of_edges = _as_arrays("edge_tensors", edge_tensors, whole.num_edges, "edges")
    owner = partition(whole, parts, method, seed)
    beside = goal.with_name(f"{goal.name}.{os.getpid()}.tmp")
    scratch = beside / "scratch"
    try:
        with writing("folder", scratch):
            scratch.mkdir(parents=True)
        division: Division
        if isinstance(graph, StoredGraph):
            division = StoredDivision(graph, owner, parts, scratch)
        else:
            division = ListDivision(graph, owner, parts)
        meta: dict[str, Any] = {"format": _FORMAT, "parts": parts, "method": method, "seed": seed}
        for rank in range(parts):
            part = division.part(rank)
            inside = beside / _name(rank)
            with writing("folder", inside):
                (inside / "tensors").mkdir(parents=True)
                (inside / "edge_tensors").mkdir()
            for name in ARRAYS:
                _store(inside / f"{name}.npy", getattr(part, name).numpy())
            numbers = part.edge_numbers.numpy()
            for name, array in of_edges.items():
                _store(inside / "edge_tensors" / f"{name}.npy", array[numbers])
            meta.update({name: getattr(part, name) for name in _WHOLE})
            meta.setdefault("inner_rows", []).append(part.inner_rows)
            meta.setdefault("owned_rows", []).append(len(part.owned_nodes))
            meta.setdefault("contents", []).append(_contents(part))
        for name, array in arrays.items():
            files = [beside / _name(rank) / "tensors" / f"{name}.npy" for rank in range(parts)]
            with writing("folder", beside):
                deal(array, division, files)
        with writing("folder", goal):
            shutil.rmtree(scratch)
            (beside / _META).write_text(json.dumps(meta, indent=2) + "\n")
            beside.rename(goal)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    return meta


def _store(path: Path, array: np.ndarray) -> None:
    """Write a .npy file; raise a StorageError if the disk is full."""
    with writing("folder", path, array.nbytes), path.open("wb") as file:
        # NumPy would write to a Python file by itself; on a full disk, its error says only how much it wrote.
        np.save(SimpleNamespace(write=file.write), array)


def _contents(part: Part) -> int:
    """Return a number that identifies the arrays of a part."""
    return fingerprint(*(getattr(part, name) for name in ARRAYS))


def _as_arrays(
    argument: str, tensors: Mapping[str, Tensor | np.ndarray] | None, rows: int, what: str
) -> dict[str, np.ndarray]:
    """Check tensors and return them as arrays [rows, ...] by name."""
    arrays: dict[str, np.ndarray] = {}
    for name, tensor in (tensors or {}).items():
        if not name.isidentifier() or tensor.ndim == 0 or len(tensor) != rows:
            raise ArgumentError(
                f"{argument}: expected names like 'x' and a row for each of {rows} {what}, got {name!r} "
                f"of shape {list(tensor.shape)}."
            )
        arrays[name] = tensor if isinstance(tensor, np.ndarray) else tensor.detach().cpu().numpy()
        if arrays[name].dtype.hasobject:
            raise ArgumentError(f"{argument}: expected numbers, got {name!r} of Python objects; convert it.")
    return arrays


@dataclasses.dataclass(frozen=True, slots=True)
class Folder:
    """The folder of one part, inside the folder of the whole graph, and the content of ``meta.json``."""

    path: Path
    rank: int
    meta: dict[str, Any]

    @classmethod
    def open(cls, folder: str | os.PathLike[str], rank: int, parts: int) -> "Folder":
        """Open the part of one process; see :meth:`DistributedGraph.open` for the errors."""
        path = Path(folder)
        if not path.is_dir():
            raise FileNotFoundError(f"{path}: there is no such folder; onehop.distributed.save() writes one.")
        try:
            meta = json.loads((path / _META).read_text())
            written = int(meta["parts"])
            whole = [int(meta[name]) for name in _WHOLE]
            lists = [len(meta[name]) for name in ("inner_rows", "owned_rows", "contents")]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FileFormatError(
                f"{path}: expected a folder written by onehop.distributed.save(), and its {_META} cannot be "
                f"used ({error})."
            ) from error
        if meta.get("format") != _FORMAT or min(whole) < 0 or set(lists) != {written}:
            raise FileFormatError(
                f"{path / _META}: expected {_FORMAT!r}, got {meta.get('format')!r}. Save the graph again."
            )
        if written != parts:
            raise ArgumentError(
                f"folder: {path} was written for {written} processes, and this job has {parts}. Start "
                f"{written} processes, or save the graph again with parts={parts}."
            )
        return cls(path, rank, meta)

    def part(self) -> Part:
        """Read the part and check that its indices are in bounds of its arrays."""
        arrays = {name: self._array(Path(f"{name}.npy")) for name in ARRAYS}
        part = Part(
            rank=self.rank,
            parts=self.meta["parts"],
            inner_rows=self.meta["inner_rows"][self.rank],
            **{name: self.meta[name] for name in _WHOLE},
            **arrays,  # type: ignore[arg-type]
        )
        rows, halo = len(part.owned_nodes), len(part.halo_nodes)
        edges = len(part.source)
        numbers, nodes, counts = edge_kind(part.num_edges), torch.int32, torch.int64
        expected = {
            "owned_nodes": (nodes, part.num_nodes),
            "halo_nodes": (nodes, part.num_nodes),
            "halo_counts": (counts, halo + 1),
            "send_counts": (counts, len(part.send_rows) + 1),
            "send_rows": (nodes, rows),
            "rowptr": (counts, edges + 1),
            "source": (nodes, rows + halo),
            "edge_numbers": (numbers, part.num_edges),
        }
        for name, (kind, bound) in expected.items():
            array = arrays[name]
            outside = array.numel() > 0 and not 0 <= int(array.min()) <= int(array.max()) < bound
            if array.dim() != 1 or array.dtype != kind or outside:
                raise self._damaged(f"{name}.npy", f"{kind} numbers in [0, {bound})")
        agree = (
            len(part.edge_numbers) == edges
            and len(part.halo_counts) == len(part.send_counts) == part.parts
            and int(part.halo_counts.sum()) == halo
            and int(part.send_counts.sum()) == len(part.send_rows)
            and rows == self.meta["owned_rows"][self.rank]
            and 0 <= part.inner_rows <= rows
            and len(part.rowptr) == rows + 1
            and int(part.rowptr[0]) == 0
            and int(part.rowptr[-1]) == edges
            and not bool((part.rowptr.diff() < 0).any())
            and not bool((part.source[: int(part.rowptr[part.inner_rows])] >= rows).any())
        )
        if not agree:
            raise self._damaged("*.npy", f"arrays that fit each other and {_META}")
        if _contents(part) != self.meta["contents"][self.rank]:
            raise self._damaged("*.npy", f"part {self.rank} of the graph of {_META}, not that of another")
        return part

    def tensor(self, name: str, rows: int) -> Tensor:
        """Return [rows, ...]: the part's rows of a tensor."""
        return self._rows(f"tensors/{name}.npy", rows, "nodes")

    def edge_tensor(self, name: str, rows: int) -> Tensor:
        """Return [rows, ...]: the rows of a tensor of edges for the part's edges."""
        return self._rows(f"edge_tensors/{name}.npy", rows, "edges")

    def _rows(self, inside: str, rows: int, what: str) -> Tensor:
        tensor = self._array(Path(inside))
        if tensor.dim() == 0 or tensor.size(0) != rows:
            raise self._damaged(inside, f"a row for each of {rows} {what}")
        return tensor

    def _array(self, inside: Path) -> Tensor:
        file = self.path / _name(self.rank) / inside
        if not file.exists():
            raise FileNotFoundError(f"{file}: there is no such file; was the folder copied as a whole?")
        try:
            return torch.from_numpy(np.load(file, allow_pickle=False))
        except (ValueError, EOFError, OSError, TypeError) as error:
            raise self._damaged(inside, f"a whole .npy file ({error})") from error

    def _damaged(self, inside: str | Path, expected: str) -> FileFormatError:
        return FileFormatError(
            f"{self.path / _name(self.rank) / inside}: expected {expected}. Copy or save the folder again."
        )


def _name(rank: int) -> str:
    return f"part-{rank:05d}"
