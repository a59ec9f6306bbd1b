"""Searches among points: the nearest, all within a distance, the farthest.

The package imports only ``errors`` and ``native``.
"""
