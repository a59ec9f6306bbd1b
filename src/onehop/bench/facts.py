"""Facts that ``onehop info`` prints: all that decides what runs, and how fast."""

import importlib
import importlib.util
import os
import platform
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch

import onehop
from onehop import config, native
from onehop.backends import backends
from onehop.bench.stamp import stamp
from onehop.errors import ConfigurationError
from onehop.kernels.products import KINDS, libraries
from onehop.ops import torch_stream
from onehop.tuner import products

# Optional package -> what it is for, and how to get it.
OPTIONAL = {
    "torch_geometric": ("what onehop.patch() accelerates", "pip install 'onehop[pyg]'"),
    "numba": ("a peer in onehop bench ops", "pip install 'onehop[bench]'"),
    "triton": ("the kernels for GPUs", "pip install 'onehop[gpu]'"),
    "ogb": ("graphs named ogb:NAME", "pip install 'onehop[datasets]'"),
    "torch_sparse": ("a peer in onehop bench", "pip install torch_sparse"),
    "dgl": ("a peer in onehop bench ops", "pip install dgl"),
}
# Variable -> what it amounts to now.
_SETTINGS: dict[str, Callable[[], object]] = {
    "ONEHOP_ISA": lambda: config.isa() or native.extension.selected_isa(),
    "ONEHOP_POOL_BYTES": config.pool_bytes,
    "ONEHOP_CACHE_BYTES": config.graph_cache_bytes,
    "ONEHOP_KEEP_MEMORY": config.keep_memory,
    "ONEHOP_REUSE": config.reuse,
    "ONEHOP_ASSOCIATE": config.associate,
    "ONEHOP_DROPOUT": config.dropout,
    "ONEHOP_PRODUCTS": config.products,
    "ONEHOP_TUNED": config.tuned,
    "ONEHOP_DISABLE": config.disabled,
    "ONEHOP_CHECK": lambda: "full" if config.full_check() else "version",
    "ONEHOP_CACHE_DIR": lambda: str(config.cache_dir()),
}


def facts() -> dict[str, Any]:
    """Stamp, instruction sets, backends, pool, caches, settings and packages, ready for JSON."""
    return {
        **stamp(),
        "isas": list(native.extension.available_isas()),
        "vector_bytes": native.extension.vector_bytes(),
        "backends": {name: _backend(backend) for name, backend in backends().items()},
        "dropout_agrees": torch_stream.agrees(),
        "products": _or_error(_products),
        "pool": dict(native.extension.pool_info()),
        "cache": _or_error(lambda: asdict(onehop.cache_info())),
        "c_library": " ".join(platform.libc_ver()).strip() or None,
        "settings": {name: _setting(name) for name in _SETTINGS},
        "packages": {name: _package(name) for name in OPTIONAL},
    }


def _backend(backend: Any) -> dict[str, Any]:
    reason = backend.refuse(torch.device("cpu"), torch.float32)
    return {"describes": backend.describe(), "refuses_cpu_float32": reason}


def _products() -> dict[str, Any]:
    """The libraries of dense products: which there are, and which serve the classes that were measured."""
    return {
        "libraries": {kind: list(libraries(kind)) for kind in KINDS},
        "store": str(products.store_path()),
        "chosen": [chosen.to_dict() | {"class": str(chosen.case)} for chosen in products.known()],
    }


def _or_error(ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The result of ``ask``, or, if a setting is wrong, the error's sentence, which users look for here."""
    try:
        return ask()
    except ConfigurationError as error:
        return {"error": str(error)}


def _setting(name: str) -> dict[str, Any]:
    return {"set_to": os.environ.get(name), **_or_error(lambda: {"effective": _SETTINGS[name]()})}


def _package(name: str) -> dict[str, Any]:
    purpose, remedy = OPTIONAL[name]
    present = importlib.util.find_spec(name) is not None
    return {"present": present, "purpose": purpose, "remedy": None if present else remedy}
