"""PyG's own example scripts, unmodified, with and without the patch: ``python -m benchmarks.examples``."""
