"""``onehop info``: what is available here, and why something is missing."""

import importlib
import importlib.util
import os
import platform
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import torch

import onehop
from onehop import config, native
from onehop.backends import backends
from onehop.bench.results import write_json
from onehop.bench.stamp import stamp
from onehop.cli import condition
from onehop.cli.arguments.info import Options
from onehop.cli.console import output
from onehop.errors import ConfigurationError
from onehop.integrations.torch import kernels
from onehop.kernels.products import KINDS, libraries
from onehop.ops import torch_stream
from onehop.sizes import readable
from onehop.tables import PAIR, Table
from onehop.tuner import products

# Optional package -> its purpose, and how to install it.
OPTIONAL = {
    "torch_geometric": ("what onehop.patch() accelerates", "pip install 'onehop[pyg]'"),
    "numba": ("a peer in onehop bench ops", "pip install 'onehop[bench]'"),
    "triton": ("the kernels for GPUs", "pip install 'onehop[gpu]'"),
    "ogb": ("graphs named ogb:NAME", "pip install 'onehop[datasets]'"),
    "torch_sparse": ("a peer in onehop bench", "pip install torch_sparse"),
    "dgl": ("a peer in onehop bench ops", "pip install dgl"),
}
# Variable -> its effective value.
_SETTINGS: dict[str, Callable[[], object]] = {
    "ONEHOP_ISA": lambda: config.isa() or native.extension.selected_isa(),
    "ONEHOP_POOL_BYTES": config.pool_bytes,
    "ONEHOP_CACHE_BYTES": config.graph_cache_bytes,
    "ONEHOP_KEEP_MEMORY": config.keep_memory,
    "ONEHOP_REUSE": config.reuse,
    "ONEHOP_ASSOCIATE": config.associate,
    "ONEHOP_DROPOUT": config.dropout,
    "ONEHOP_PRODUCTS": config.products,
    "ONEHOP_INDEXING": config.indexing,
    "ONEHOP_TUNED": config.tuned,
    "ONEHOP_DISABLE": config.disabled,
    "ONEHOP_CHECK": lambda: "full" if config.full_check() else "version",
    "ONEHOP_CACHE_DIR": lambda: str(config.cache_dir()),
}
# Names and their values as text.
Lines = Iterator[tuple[str, str]]


def info(options: Options) -> None:
    """Print the facts of ``onehop info``; see :class:`Options`."""
    found = facts(options.measure)
    console = output()
    console.print(condition.table(found))
    for title, lines in _TABLES.items() if options.every else ():
        console.print()
        console.print(Table(PAIR, list(lines(found)), title))
    write_json(options.json, "info", found)


def facts(measure: bool = True) -> dict[str, Any]:
    """Return versions, instruction sets, backends, pool, caches, settings and packages, ready for JSON.

    Args:
        measure: Also measure the memory; otherwise ``bandwidth`` is None.
    """
    return {
        **stamp(),
        "bandwidth": condition.bandwidth() if measure else None,
        "isas": list(native.extension.available_isas()),
        "vector_bytes": native.extension.vector_bytes(),
        "backends": {name: _facts_of(backend) for name, backend in backends().items()},
        "dropout_agrees": torch_stream.agrees(),
        "operators_known": kernels.is_known(),
        "products": _or_error(_products_of),
        "pool": dict(native.extension.pool_info()),
        "cache": _or_error(lambda: asdict(onehop.cache_info())),
        "c_library": " ".join(platform.libc_ver()).strip() or None,
        "settings": {name: _setting(name) for name in _SETTINGS},
        "packages": {name: _package(name) for name in OPTIONAL},
    }


def _facts_of(backend: Any) -> dict[str, Any]:
    reason = backend.refuse(torch.device("cpu"), torch.float32)
    return {"describes": backend.describe(), "refuses_cpu_float32": reason}


def _products_of() -> dict[str, Any]:
    """Return the available libraries of dense products, and the choices for classes that were measured."""
    return {
        "libraries": {kind: list(libraries(kind)) for kind in KINDS},
        "store": str(products.store_path()),
        "chosen": [chosen.to_dict() | {"class": str(chosen.case)} for chosen in products.known()],
    }


def _or_error(compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the result; or, if a setting is wrong, the error's sentence, which users look for here."""
    try:
        return compute()
    except ConfigurationError as error:
        return {"error": str(error)}


def _setting(name: str) -> dict[str, Any]:
    return {"set_to": os.environ.get(name), **_or_error(lambda: {"effective": _SETTINGS[name]()})}


def _package(name: str) -> dict[str, Any]:
    purpose, remedy = OPTIONAL[name]
    present = importlib.util.find_spec(name) is not None
    return {"present": present, "purpose": purpose, "remedy": None if present else remedy}


def _memory(found: dict[str, Any]) -> Lines:
    pool = found["pool"]
    yield "pool of outputs", f"{readable(pool['kept_bytes'])} kept of at most {readable(pool['limit_bytes'])}"
    for name, value in found["cache"].items():
        is_size = name.endswith("bytes") and isinstance(value, int)
        yield f"graph cache: {name.replace('_', ' ')}", readable(value) if is_size else str(value)


def _backends(found: dict[str, Any]) -> Lines:
    for name, backend in found["backends"].items():
        told, reason = backend["describes"], backend["refuses_cpu_float32"]
        if reason is not None and reason != told:
            told = f"{told}; refuses CPU tensors of float32: {reason}"
        yield name, told


def _products(found: dict[str, Any]) -> Lines:
    found = found["products"]
    if "error" in found:
        yield "libraries", found["error"]
        return
    names = dict.fromkeys(name for each in found["libraries"].values() for name in each)
    yield "libraries", ", ".join(names)
    for chosen in found["chosen"]:
        gain = chosen["gains"].get(chosen["library"])
        than = "" if gain is None else f" ({gain[1]:.2f} times as fast as torch's own)"
        yield chosen["class"], chosen["library"] + than
    if not found["chosen"]:
        yield "measured", "nothing yet; a class of shapes is measured before its first use"


def _packages(found: dict[str, Any]) -> Lines:
    for name, package in found["packages"].items():
        version = found["versions"].get(name) or "there"
        state = version if package["present"] else f"not installed; {package['remedy']}"
        yield name, f"{state} ({package['purpose']})"


def _settings(found: dict[str, Any]) -> Lines:
    for name, setting in found["settings"].items():
        origin = "default" if setting["set_to"] is None else "set"
        yield name, setting.get("error") or f"{setting['effective']} ({origin})"


_TABLES = {
    "memory and caches": _memory,
    "backends": _backends,
    "dense products under onehop.patch()": _products,
    "optional packages": _packages,
    "environment variables": _settings,
}
