"""Kernels for GPUs in Triton.

The modules with kernels import triton, which is an optional package: they are imported when they are used.
``availability``, ``work`` and ``tiles`` do without it.
"""
