"""Nodes and edges of the paper's graphs, as it states them."""

from typing import NamedTuple


class Size(NamedTuple):
    """Size of a graph."""

    nodes: int
    edges: int


GRAPHS = {
    "tolokers-2": Size(11_758, 1_038_000),
    "hm-categories": Size(46_563, 21_461_990),
    "ogbn-arxiv": Size(169_343, 1_166_243),
    "city-roads-L": Size(142_257, 279_061),
    "twitch-views": Size(168_114, 13_595_114),
    "pokec-regions": Size(1_632_803, 30_622_564),
    "web-traffic": Size(2_890_331, 12_895_369),
    "ogbn-products": Size(2_449_029, 123_718_280),
}
