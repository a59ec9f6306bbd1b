"""Aggregation of what does not fit into memory: tiles of rows and columns, read from and written to disk."""

from onehop.ops.streaming.run import aggregate as aggregate
