"""Layers and models of packages that are built on PyG."""
