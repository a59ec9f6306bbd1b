"""Tuning of the GPU kernels: operations, candidates, timing, and the search."""
