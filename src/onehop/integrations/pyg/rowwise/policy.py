"""How large blocks are, and for which graphs they are worth their while."""

BLOCK_BYTES = 2 << 20
"""Bytes that the largest tensor a message makes has in a block. A handful of such tensors is alive at once,
and the last-level cache holds them; halving it costs more in calls than it saves in misses."""

FEWEST_EDGES = 64
"""Edges that a block of several rows has at least, however wide its messages."""

SMALL_BYTES = 8 << 20
"""Bytes of edges times width below which PyG's own code runs: its tensors fit in the cache then too, and
looking at the message costs about a millisecond."""


def block_edges(row_bytes: int) -> int:
    """How many edges a block has where an edge's largest row has so many bytes."""
    return max(BLOCK_BYTES // max(row_bytes, 1), FEWEST_EDGES)
