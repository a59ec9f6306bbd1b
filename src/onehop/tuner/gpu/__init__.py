"""Tuning of the GPU kernels: operations, candidates, times, and the search with what belongs to it."""
