"""Neighbour aggregation for graph neural networks, as fast as memory allows."""

from onehop.errors import (
    ArgumentError as ArgumentError,
    BackendError as BackendError,
    ConfigurationError as ConfigurationError,
    FileFormatError as FileFormatError,
    IndexRangeError as IndexRangeError,
    OnehopError as OnehopError,
)
from onehop.graph import Graph as Graph
from onehop.ops import aggregate as aggregate, sddmm as sddmm

__version__ = "0.1.0"
