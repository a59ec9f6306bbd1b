"""The native loops of the generators, which are part of the simulated machines' extension module."""

from onehop import _machines as extension
from onehop.native import TORCH_CPU_LIBRARY, threads

__all__ = ["extension", "threads"]

extension.bind_openmp(TORCH_CPU_LIBRARY)
