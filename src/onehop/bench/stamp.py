"""The circumstances of a measurement: machine, threads, versions, date, commit, arguments."""

import datetime
import functools
import importlib.metadata
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

import onehop
from onehop import config, native, processor

# Packages whose version may change a result.
PACKAGES = (
    "torch",
    "torch_geometric",
    "numpy",
    "scipy",
    "numba",
    "torch_sparse",
    "torch_scatter",
    "isplib",
    "dgl",
    "triton",
    "ogb",
)

# The checkout, where the package runs from one.
ROOT = Path(__file__).resolve().parents[3]
CACHE_FOLDER = Path("/sys/devices/system/cpu/cpu0/cache")


def stamp() -> dict[str, Any]:
    """Return machine, instruction set, threads, versions, date, commit and arguments, ready for JSON."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "arguments": arguments(sys.argv[1:]),
        "machine": machine(),
        "isa": native.extension.selected_isa(),
        "threads": native.threads(),
        "openmp_bound": native.extension.openmp_bound(),
        "versions": versions(),
    }


@functools.cache
def commit() -> dict[str, Any] | None:
    """Return the commit of the checkout that this process runs from, as it is at the first call.

    Returns:
        ``{"hash": "0ac08bc9...", "changed": False}``, where ``changed`` says whether tracked files other than
        results differ from the commit. None without a checkout, or without git.
    """
    if not (ROOT / ".git").exists():
        return None
    last = _git("rev-parse", "HEAD")
    changes = _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":(exclude)benchmarks/results")
    return None if last is None or changes is None else {"hash": last, "changed": bool(changes)}


def arguments(words: Iterable[str]) -> list[str]:
    """Return the arguments of a command; of absolute paths the last name alone."""
    return [Path(word).name if Path(word).is_absolute() else word for word in words]


def machine() -> dict[str, Any]:
    """Return processor, caches and memory."""
    return {
        "processor": processor.name(),
        "cores": cores(),
        "caches_bytes": caches(),
        "memory_bytes": config.physical_memory_bytes(),
        "system": f"{platform.system()} {platform.release()}",
        "huge_pages": _read("/sys/kernel/mm/transparent_hugepage/enabled"),
    }


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def versions() -> dict[str, str | None]:
    """Return the versions of Python, onehop and important packages; None if one is not installed."""
    by_package: dict[str, str | None] = {"python": platform.python_version(), "onehop": onehop.__version__}
    for package in PACKAGES:
        try:
            by_package[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            by_package[package] = None
    if by_package["torch"] is not None:
        by_package["torch"] = torch.__version__  # with the build, for example 2.13.0+cpu
    return by_package


def caches() -> dict[str, int]:
    """Return the bytes of each cache of the first core, such as ``{"L1 data": 32768, "L3": 33554432}``."""
    sizes = {}
    for folder in sorted(CACHE_FOLDER.glob("index*")):
        kind, level, size = (_read(folder / name) for name in ("type", "level", "size"))
        if kind is None or level is None or size is None or kind == "Instruction":
            continue
        sizes[f"L{level} data" if kind == "Data" else f"L{level}"] = _size(size)
    return sizes


def last_level_cache_bytes() -> int:
    """Return the bytes of the largest cache; 32 MiB if the system does not report it."""
    return max(caches().values(), default=32 << 20)


def machine_line(made: Mapping[str, Any] | None = None) -> str:
    """Return the machine of a stamp in one line, for titles; None means this machine, now."""
    if made is None:
        made = {
            "machine": {"processor": processor.name()},
            "threads": native.threads(),
            "isa": native.extension.selected_isa(),
            "versions": {"torch": torch.__version__},
        }
    threads = f"{made['threads']} thread{'' if made['threads'] == 1 else 's'}"
    return f"{made['machine']['processor']}, {threads}, {made['isa']}, torch {made['versions']['torch']}"


def _git(*words: str) -> str | None:
    """Return what git prints about the checkout; None if there is no git, or if it fails."""
    try:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return None if done.returncode else done.stdout.strip()


def _size(text: str) -> int:
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)


def _read(path: str | Path) -> str | None:
    path = Path(path)
    return path.read_text().strip() if path.exists() else None
