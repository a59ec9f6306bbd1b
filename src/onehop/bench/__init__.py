"""Benchmarks: peers in the same process, correctness checks first, and the memory limit for every figure."""
