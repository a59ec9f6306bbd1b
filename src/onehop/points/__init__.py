"""Searches among points: the nearest, all within a distance, the farthest, and images in cells that repeat.

The package imports only ``config``, ``errors``, ``native`` and ``sizes``.
"""
