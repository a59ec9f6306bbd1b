"""How large blocks are, and for which graphs they are worth their while."""

BLOCK_BYTES = 2 << 20
"""Bytes that the largest tensor a message makes has in a block. A handful of such tensors is alive at once.
Measured on 2 cores with 32 MiB of last-level cache, GINEConv and ResGatedGraphConv of width 64, forward and
backward: 4 MiB takes 4 to 20 % longer, 1 MiB 5 to 7 %, 512 KiB 15 to 35 %, in calls and in barriers between
threads."""

FEWEST_EDGES = 64
"""Edges that a block of several rows has at least, however wide its messages."""

SMALL_BYTES = 16 << 20
"""Bytes of edges times the widest operand below which PyG's own code runs: its tensors fit in the cache too,
and looking at the message costs about a millisecond. Measured with ResGatedGraphConv of width 64, forward and
backward: 13 % slower than PyG at 10 MB, 12 % faster at 26 MB."""


def block_edges(row_bytes: int) -> int:
    """How many edges a block has where an edge's largest row has so many bytes."""
    return max(BLOCK_BYTES // max(row_bytes, 1), FEWEST_EDGES)
