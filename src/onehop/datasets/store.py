"""Data sets cached on disk: one ``.npz`` file each, below the cache folder."""

import logging
import os
import re
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from onehop import config
from onehop.datasets.dataset import Dataset
from onehop.errors import ArgumentError

logger = logging.getLogger(__name__)

Arrays = dict[str, Any]
Content = TypeVar("Content")

# Part of every file's name; increase it when a generator's output or a file's content changes.
_VERSION = 1
_MASKS = ("train_mask", "val_mask", "test_mask")
# Errors that numpy and zipfile raise for a damaged file.
_DAMAGE = (
    OSError,
    ValueError,
    KeyError,
    IndexError,
    EOFError,
    NotImplementedError,
    zipfile.BadZipFile,
    zlib.error,
)


def kept(key: str, make: Callable[[], Dataset]) -> Dataset:
    """Return a whole data set from the cache as :func:`kept_as` does."""
    return kept_as(key, make, _pack, _unpack)


def kept_as(
    key: str,
    make: Callable[[], Content],
    pack: Callable[[Content], Arrays],
    unpack: Callable[[Arrays], Content],
) -> Content:
    """Return the entry with this key from the cache folder; it is generated and written if it is missing.

    A damaged file is generated again. If the folder cannot be written, the data set is generated every time.
    Both cases log a warning.

    Args:
        key: Identifies the content and everything that it depends on.
        make: Generates the content.
        pack: Returns the arrays to write.
        unpack: Returns the content of these arrays; raises KeyError or ValueError if they are not arrays of
            ``pack``.
    """
    path = folder() / f"{re.sub(r'[^A-Za-z0-9._-]', '_', key)}-v{_VERSION}.npz"
    if path.exists():
        try:
            return unpack(_read(path))
        except _DAMAGE as error:
            logger.warning("%s is damaged (%s); the data set is made anew.", path, error)
    content = make()
    try:
        _write(path, pack(content))
    except OSError as error:
        logger.warning("%s cannot be written (%s): the data set will be made anew next time.", path, error)
    return content


def folder() -> Path:
    """Return the folder of data sets."""
    return config.cache_dir() / "datasets"


def _pack(dataset: Dataset) -> Arrays:
    arrays = {
        "name": np.array(dataset.name),
        "counts": np.array([dataset.num_nodes, dataset.num_classes]),
        "edge_index": dataset.edge_index.numpy().astype(np.int32),
    }
    for field in ("x", "y", *_MASKS):
        value = getattr(dataset, field)
        if value is not None:
            arrays[field] = value.numpy()
    return arrays


def _unpack(arrays: Arrays) -> Dataset:
    num_nodes, num_classes = (int(count) for count in arrays.pop("counts"))
    name = str(arrays.pop("name"))
    arrays["edge_index"] = arrays["edge_index"].astype(np.int64)
    try:
        tensors = {key: torch.from_numpy(array) for key, array in arrays.items()}
        return Dataset(name=name, num_nodes=num_nodes, num_classes=num_classes, **tensors)
    except (ArgumentError, TypeError) as error:
        raise ValueError(str(error)) from error


def _write(path: Path, arrays: Arrays) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Written to another file and then renamed, so that no process reads half a file.
    handle, aside = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, **arrays)
        Path(aside).replace(path)
    finally:
        Path(aside).unlink(missing_ok=True)


def _read(path: Path) -> Arrays:
    # Opened here, because np.load leaves a damaged archive open.
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return {key: arrays[key] for key in arrays.files}
