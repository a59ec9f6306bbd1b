"""Mini-batches: neighbours drawn around seeds, for PyG's loaders."""
