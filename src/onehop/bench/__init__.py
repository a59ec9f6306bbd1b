"""Measuring: peers side by side in one process, correctness first, the memory limit next to every figure."""
