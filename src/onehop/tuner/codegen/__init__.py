"""Kernels for one width, dtype and graph, generated, compiled, tested and cached on this machine."""
