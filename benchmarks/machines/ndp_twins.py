"""Twins of GraNDe's graphs, as ``onehop reproduce grande`` has them, in other sizes and of other seeds."""

from dataclasses import replace

from onehop.graph import Graph
from onehop.reproduce.grande.graphs import TWINS
from onehop.reproduce.twins import silent

# Those whose speed-ups the paper gives.
GRAPHS = {twin.paper: twin for twin in TWINS}


def structure(name: str, scale: float, seed: int = 0) -> Graph:
    """The twin with self loops; ``scale`` multiplies its nodes and edges."""
    return replace(GRAPHS[name], scale=scale, seed=seed).graph(silent)
