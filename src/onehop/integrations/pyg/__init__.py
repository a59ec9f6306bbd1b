"""The patch of PyTorch Geometric. Programs that were exported import none of it that needs PyG."""
