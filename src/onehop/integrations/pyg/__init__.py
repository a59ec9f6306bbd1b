"""PyTorch Geometric."""
