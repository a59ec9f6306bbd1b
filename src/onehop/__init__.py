"""Neighbour aggregation for graph neural networks, as fast as memory allows."""

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onehop import datasets, distributed, errors, files, graph, machines, ops, plans, tuner
    from onehop.compiler.message import message
    from onehop.errors import (
        ArgumentError,
        BackendError,
        ConfigurationError,
        FileFormatError,
        IndexRangeError,
        MachineMemoryError,
        OnehopError,
    )
    from onehop.graph import Graph
    from onehop.graph.identity import CacheInfo, cache_info, clear_cache
    from onehop.integrations.explain import Explanation, explain
    from onehop.integrations.patch import Patch, accelerate, autotune, patch, patched, unpatch
    from onehop.integrations.pyg.layerwise import infer
    from onehop.irreps.paths import TensorPaths
    from onehop.loaders.loader import loader
    from onehop.loaders.neighbor_sampler import NeighborSampler
    from onehop.ops.aggregate import aggregate
    from onehop.ops.attention import attention, gat, gatv2
    from onehop.ops.dropout import dropout
    from onehop.ops.edge_softmax import edge_softmax
    from onehop.ops.extremum import extremum
    from onehop.ops.fusedmm import fusedmm
    from onehop.ops.rows import gather, scatter
    from onehop.ops.sddmm import sddmm
    from onehop.ops.streaming import RawMatrix
    from onehop.ops.tensor_product import tensor_product
    from onehop.streaming import hops, ingest
    from onehop.tuner import TuningResult, tune

__all__ = [
    "ArgumentError",
    "BackendError",
    "CacheInfo",
    "ConfigurationError",
    "Explanation",
    "FileFormatError",
    "Graph",
    "IndexRangeError",
    "MachineMemoryError",
    "NeighborSampler",
    "OnehopError",
    "Patch",
    "RawMatrix",
    "TensorPaths",
    "TuningResult",
    "accelerate",
    "aggregate",
    "attention",
    "autotune",
    "cache_info",
    "clear_cache",
    "datasets",
    "distributed",
    "dropout",
    "edge_softmax",
    "errors",
    "explain",
    "extremum",
    "files",
    "fusedmm",
    "gat",
    "gather",
    "gatv2",
    "graph",
    "hops",
    "infer",
    "ingest",
    "loader",
    "machines",
    "message",
    "ops",
    "patch",
    "patched",
    "plans",
    "scatter",
    "sddmm",
    "tensor_product",
    "tune",
    "tuner",
    "unpatch",
]
__version__ = "0.1.0"

# In a checkout, pip has not checked the version of Python.
if sys.version_info < (3, 11):  # noqa: UP036
    raise ImportError(f"onehop needs Python 3.11 or later, and this is {sys.version.split()[0]}.")

_NAMES = {
    "onehop.compiler.message": "message",
    "onehop.errors": "ArgumentError BackendError ConfigurationError FileFormatError IndexRangeError "
    "MachineMemoryError OnehopError",
    "onehop.graph": "Graph",
    "onehop.graph.identity": "CacheInfo cache_info clear_cache",
    "onehop.integrations.explain": "Explanation explain",
    "onehop.integrations.patch": "Patch accelerate autotune patch patched unpatch",
    "onehop.irreps.paths": "TensorPaths",
    "onehop.ops": "aggregate attention dropout edge_softmax extremum fusedmm gat gather gatv2 scatter sddmm "
    "tensor_product",
}
# Modules that import PyG, or need megabytes in few programs; they are imported on first use.
_LATER = {
    "onehop.integrations.pyg.layerwise": "infer",
    "onehop.loaders.loader": "loader",
    "onehop.loaders.neighbor_sampler": "NeighborSampler",
    "onehop.ops.streaming": "RawMatrix",
    "onehop.streaming": "hops ingest",
    "onehop.tuner": "TuningResult tune",
}
# Names that raise an error where PyG is not installed.
_OF_PYG = ("NeighborSampler", "loader")
# The operators of exported programs, which are loaded from files and may run without PyG.
_OPERATORS = (
    "onehop.integrations.pyg.associations.operator",
    "onehop.integrations.pyg.edges.operators",
    "onehop.ops.dropout_in_programs",
)
_HOMES = {name: module for module, names in (_NAMES | _LATER).items() for name in names.split()}
# The modules of the reference, which are imported on first use.
_MODULES = ["datasets", "distributed", "errors", "files", "graph", "machines", "ops", "plans", "tuner"]


def _is_command() -> bool:
    """Return whether this process is the command ``onehop``, which answers ``--help`` without torch."""
    if sys.argv[0] == "-m":  # until python -m has imported the package; both lists end alike
        return sys.orig_argv[-len(sys.argv)].removeprefix("-m") == "onehop"
    return Path(sys.argv[0]).name == "onehop"


def __dir__() -> list[str]:
    """Return the public names, also those that are not imported yet; none that needs PyG without PyG."""
    missing = () if importlib.util.find_spec("torch_geometric") else _OF_PYG
    return [*(name for name in __all__ if name not in missing), "__version__"]


if not TYPE_CHECKING:  # A checker would take every name for an attribute.

    def __getattr__(name: str) -> Any:
        """Import and return a public name or module that is not imported yet."""
        if name in _MODULES:
            return importlib.import_module(f"onehop.{name}")
        if name not in _HOMES:
            raise AttributeError(f"module 'onehop' has no attribute {name!r}")
        value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
        return value


def _import_names() -> None:
    """Import the names that programs may use at once, and the operators."""
    importlib.import_module("onehop.torch_release")  # An older torch may lack what the others import.
    for name, module in _HOMES.items():
        if module in _NAMES:
            globals()[name] = getattr(importlib.import_module(module), name)
    for module in ("onehop.files", *_OPERATORS):
        importlib.import_module(module)


if not _is_command():
    _import_names()
