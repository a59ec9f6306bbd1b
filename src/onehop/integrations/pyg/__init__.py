"""The patch of PyTorch Geometric. Exported programs import only the modules that do not need PyG."""
