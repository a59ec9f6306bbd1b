"""Kernels for GPUs in Triton.

The modules with kernels import triton, an optional package, so they are imported on first use.
``availability``, ``work`` and ``tiles`` do not need it.
"""
