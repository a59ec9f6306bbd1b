"""Edges in an array file: .npy of [2, E] or [E, 2], or raw pairs; weights and types are in separate files."""

from pathlib import Path

import numpy as np

from onehop.errors import FileFormatError
from onehop.streaming.from_file.columns import wider_weights
from onehop.streaming.from_file.database import Database
from onehop.streaming.from_file.request import Request

_BITS = (("TINYINT", 8), ("SMALLINT", 16), ("INTEGER", 32), ("BIGINT", 64))
_KINDS = {
    **{f"int{bits}": kind for kind, bits in _BITS},
    **{f"uint{bits}": f"U{kind}" for kind, bits in _BITS},
    **{"float32": "FLOAT", "float64": "DOUBLE"},
}
# Smaller files are read, not mapped, because an array without entries cannot be mapped.
_SMALL = 4096


def load(database: Database, request: Request, block: int) -> None:
    """Create the table ``edges``, ``block`` edges at a time.

    Raises a FileFormatError if an array has another shape or dtype, or is truncated.
    """
    source, target = _ends(request)
    columns = {"source": source, "target": target}
    if request.weight is not None:
        columns["weight"] = _beside(request.weight, len(source), "weight", "biuf")
    if request.edge_type is not None:
        columns["kind"] = _beside(request.edge_type, len(source), "edge_type", "iu")
    dtypes = {name: values.dtype.newbyteorder("=") for name, values in columns.items()}
    if request.weight is not None:
        dtypes["weight"] = np.dtype(request.weight_dtype)
    kinds = {name: _KINDS[dtype.name] for name, dtype in dtypes.items()}
    database.run(f"CREATE TABLE edges ({', '.join(f'{name} {kind}' for name, kind in kinds.items())})")
    for begin in range(0, len(source), block):
        # A copy in memory, in this machine's byte order.
        with np.errstate(over="ignore"):
            part = {
                name: np.array(values[begin : begin + block], dtype=dtypes[name])
                for name, values in columns.items()
            }
        if request.weight is not None:
            _check_weights(request, columns["weight"], part["weight"], begin)
        database.append("edges", part)
        database.progress("reading", min(begin + block, len(source)) / len(source))


def _ends(request: Request) -> tuple[np.ndarray, np.ndarray]:
    """Return sources and destinations, [E] each, memory-mapped."""
    path = request.path
    if request.ending == ".bin":
        kind = np.dtype(request.dtype)
        size = path.stat().st_size
        if size % (2 * kind.itemsize):
            raise FileFormatError(
                f"{path}: {size} bytes are no whole pairs of {kind}. Give another dtype, or copy the "
                "file again."
            )
        pairs = np.memmap(path, kind, "r").reshape(-1, 2) if size else np.empty((0, 2), kind)
        return pairs[:, 0], pairs[:, 1]
    edges = _mapped(path)
    if edges.dtype.kind not in "iu" or edges.ndim != 2 or 2 not in edges.shape:
        raise FileFormatError(
            f"{path}: expected integers of shape [2, E] (sources above destinations) or [E, 2], got "
            f"{edges.dtype} of shape {list(edges.shape)}."
        )
    return (edges[0], edges[1]) if edges.shape[0] == 2 else (edges[:, 0], edges[:, 1])


def _beside(path: str, edges: int, which: str, letters: str) -> np.ndarray:
    values = _mapped(Path(path))
    if values.dtype.kind not in letters or values.shape != (edges,):
        expected = "integers" if letters == "iu" else "numbers"
        raise FileFormatError(
            f"{which}: expected {expected} of shape [{edges}] in {path}, one for each edge, got "
            f"{values.dtype} of shape {list(values.shape)}."
        )
    return values


def _check_weights(request: Request, weights: np.ndarray, stored: np.ndarray, begin: int) -> None:
    """Refuse weights that became infinite; ``stored``, [n], has stored weights from entry ``begin`` on."""
    wrong = np.isinf(stored) & ~np.isinf(weights[begin : begin + len(stored)])
    if wrong.any():
        entry = begin + int(wrong.argmax())
        raise FileFormatError(
            f"{request.weight}, entry {entry}: expected a number that {request.weight_dtype} holds, got "
            f"{weights[entry]}. Correct it{wider_weights(request, weights[entry])}."
        )


def _mapped(path: Path) -> np.ndarray:
    try:
        array = np.load(path, allow_pickle=False) if path.stat().st_size <= _SMALL else np.load(path, "r")
    except (ValueError, EOFError) as error:
        raise FileFormatError(f"{path}: not a whole .npy file ({error}). Copy or write it again.") from error
    if not isinstance(array, np.ndarray):
        raise FileFormatError(f"{path}: expected one array, as numpy.save writes it.")
    return array
