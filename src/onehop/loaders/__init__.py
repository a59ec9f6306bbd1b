"""Mini-batches: neighbours drawn around seed nodes, for PyG's loaders."""
