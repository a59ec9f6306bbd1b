"""Neighbour aggregation for graph neural networks, as fast as memory allows."""

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onehop import files as files
    from onehop.compiler.message import message as message
    from onehop.errors import (
        ArgumentError as ArgumentError,
        BackendError as BackendError,
        ConfigurationError as ConfigurationError,
        FileFormatError as FileFormatError,
        IndexRangeError as IndexRangeError,
        MachineMemoryError as MachineMemoryError,
        OnehopError as OnehopError,
    )
    from onehop.graph import Graph as Graph
    from onehop.graph.identity import (
        CacheInfo as CacheInfo,
        cache_info as cache_info,
        clear_cache as clear_cache,
    )
    from onehop.integrations.explain import Explanation as Explanation, explain as explain
    from onehop.integrations.patch import (
        Patch as Patch,
        accelerate as accelerate,
        autotune as autotune,
        patch as patch,
        patched as patched,
        unpatch as unpatch,
    )
    from onehop.integrations.pyg.layerwise import infer as infer
    from onehop.irreps.paths import TensorPaths as TensorPaths
    from onehop.loaders.loader import loader as loader
    from onehop.loaders.neighbor_sampler import NeighborSampler as NeighborSampler
    from onehop.ops.aggregate import aggregate as aggregate
    from onehop.ops.attention import attention as attention, gat as gat, gatv2 as gatv2
    from onehop.ops.dropout import dropout as dropout
    from onehop.ops.edge_softmax import edge_softmax as edge_softmax
    from onehop.ops.extremum import extremum as extremum
    from onehop.ops.fusedmm import fusedmm as fusedmm
    from onehop.ops.rows import gather as gather, scatter as scatter
    from onehop.ops.sddmm import sddmm as sddmm
    from onehop.ops.streaming import RawMatrix as RawMatrix
    from onehop.ops.tensor_product import tensor_product as tensor_product
    from onehop.streaming import hops as hops, ingest as ingest
    from onehop.tuner import TuningResult as TuningResult, tune as tune

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
# The operators of exported programs, which are loaded from files and may run without PyG.
_OPERATORS = (
    "onehop.integrations.pyg.associations.operator",
    "onehop.integrations.pyg.edges.operators",
    "onehop.ops.dropout_in_programs",
)
_HOMES = {name: module for module, names in (_NAMES | _LATER).items() for name in names.split()}


def _is_command() -> bool:
    """Return whether this process is the command ``onehop``, which answers ``--help`` without torch."""
    if sys.argv[0] == "-m":  # until python -m has imported the package; both lists end alike
        return sys.orig_argv[-len(sys.argv)].removeprefix("-m") == "onehop"
    return Path(sys.argv[0]).name == "onehop"


def __getattr__(name: str) -> Any:
    """Import and return a public name or the file readers, if they are not imported yet."""
    if name == "files":
        return importlib.import_module("onehop.files")
    if name not in _HOMES:
        raise AttributeError(f"module 'onehop' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


if not _is_command():
    importlib.import_module("onehop.torch_release")  # An older torch may lack what the others import.
    for _name in (*_HOMES, "files"):
        if _HOMES.get(_name) not in _LATER:
            __getattr__(_name)
    for _name in _OPERATORS:
        importlib.import_module(_name)
