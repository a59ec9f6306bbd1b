"""PyTorch Geometric. Imported only when PyG is to be patched."""
