"""Searches among points: the nearest, all within a distance, the farthest.

It imports ``errors`` and ``native``.
"""
