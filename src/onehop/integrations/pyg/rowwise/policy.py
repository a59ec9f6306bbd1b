"""How large blocks are, and for which graphs they are worth their while."""

BLOCK_BYTES = 4 << 20
"""Bytes that the largest tensor a message makes has in a block. A handful of such tensors is alive at once.
Measured on 2 cores with 32 MiB of last-level cache: half as much takes about a tenth longer, in calls and in
barriers between threads; twice as much is faster for one layer and slower for another."""

FEWEST_EDGES = 64
"""Edges that a block of several rows has at least, however wide its messages."""

SMALL_BYTES = 16 << 20
"""Bytes of edges times the widest operand below which PyG's own code runs: its tensors fit in the cache too,
and looking at the message costs about a millisecond. Measured with ResGatedGraphConv of width 64, forward and
backward: 13 % slower than PyG at 10 MB, 12 % faster at 26 MB."""


def block_edges(row_bytes: int) -> int:
    """How many edges a block has where an edge's largest row has so many bytes."""
    return max(BLOCK_BYTES // max(row_bytes, 1), FEWEST_EDGES)
