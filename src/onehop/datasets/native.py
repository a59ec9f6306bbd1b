"""The generators' native loops, ready to use: they lie in the extension module of the simulated machines."""

from onehop import _machines as extension
from onehop.native import TORCH_CPU_LIBRARY, threads

__all__ = ["extension", "threads"]

extension.bind_openmp(TORCH_CPU_LIBRARY)
