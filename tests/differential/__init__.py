"""Programs of PyG, run with and without the patch and compared after every step."""
