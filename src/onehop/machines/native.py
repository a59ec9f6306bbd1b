"""The native extension module of the machines; its loops run on the OpenMP runtime that torch loaded."""

from onehop import _machines as extension
from onehop.native import TORCH_CPU_LIBRARY

__all__ = ["extension"]

extension.bind_openmp(TORCH_CPU_LIBRARY)
