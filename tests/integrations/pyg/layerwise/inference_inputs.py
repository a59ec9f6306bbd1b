"""Sizes of what the tests of inference layer by layer are given."""

NODES, WIDTH = 150, 24
# Bytes of memory that hold neither the graph nor the features.
SMALL = 60_000
