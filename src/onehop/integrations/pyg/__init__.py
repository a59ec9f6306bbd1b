"""PyTorch Geometric. It is imported only when PyG is to be patched, and not by what programs call."""
