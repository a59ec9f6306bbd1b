"""Neighbour aggregation for graph neural networks, as fast as memory allows."""

from onehop import files as files
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
from onehop.graph.identity import CacheInfo as CacheInfo, cache_info as cache_info, clear_cache as clear_cache
from onehop.integrations.explain import Explanation as Explanation, explain as explain
from onehop.integrations.patch import (
    Patch as Patch,
    accelerate as accelerate,
    autotune as autotune,
    patch as patch,
    patched as patched,
    unpatch as unpatch,
)
from onehop.ops import (
    aggregate as aggregate,
    attention as attention,
    dropout as dropout,
    edge_softmax as edge_softmax,
    fusedmm as fusedmm,
    gat as gat,
    gatv2 as gatv2,
    sddmm as sddmm,
)
from onehop.tuner import TuningResult as TuningResult, tune as tune

__version__ = "0.1.0"
