"""The names of graphs on command lines, for reading them without torch.

A graph is ``twin:NAME``, ``pyg:NAME``, ``ogb:NAME`` or a file. A name alone means the twin, or, where only a
structure is measured, one of :data:`BENCHMARK_GRAPHS`.
"""

import difflib
from pathlib import Path

from onehop.errors import ArgumentError

TWIN = "twin:"
# Repeats of onehop.datasets, whose modules need torch; tests/bench/test_graph_names.py compares them.
TWINS = (
    "amazon",
    "amazonproducts",
    "arxiv",
    "arxiv-communities",
    "cora",
    "mag",
    "papers",
    "products",
    "proteins",
    "pubmed",
    "reddit",
    "reddit-mini",
    "reddit2",
    "road",
)
_NAMED = {TWIN: TWINS, "pyg:": ("Cora", "CiteSeer", "PubMed"), "ogb:": ("ogbn-arxiv", "ogbn-products")}
PREFIXES = tuple(_NAMED)

BENCHMARK_GRAPHS = ("arxiv", "reddit-mini", "road", "cora")
"""Structures without features, for measuring operators; a name alone means one of these there."""

HELP = "A file, or twin:NAME, pyg:NAME or ogb:NAME."


def full(option: str, source: str) -> str:
    """Return a graph's name with its prefix, or the path of a file that exists.

    Args:
        option: The option that names the graph, for errors.
        source: The name; a twin's name alone is completed.

    Raises:
        ArgumentError: There is no such graph.

    Examples:
        >>> full("graph", "cora"), full("graph", "ogb:ogbn-arxiv")
        ('twin:cora', 'ogb:ogbn-arxiv')
    """
    if source in TWINS:
        return TWIN + source
    prefix, colon, name = source.partition(":")
    known = _NAMED.get(prefix + colon)
    if known is not None:
        if name not in known:
            raise ArgumentError(
                f"{option}: expected {prefix}:NAME with one of {', '.join(known)}, got {source!r}"
                f"{_near(name, known)}"
            )
        return source
    if source and Path(source).exists():
        return source
    if colon:
        raise ArgumentError(
            f"{option}: expected a file or one of {', '.join(f'{each}NAME' for each in PREFIXES)}, "
            f"got {source!r}."
        )
    raise ArgumentError(
        f"{option}: there is no file {source!r}{_near(source, TWINS)} Generated graphs are twin:NAME, with "
        f"one of {', '.join(TWINS)}."
    )


def _near(name: str, known: tuple[str, ...]) -> str:
    """Return the end of a sentence, with the name that was probably meant."""
    near = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {near[0]}?" if near else "."
