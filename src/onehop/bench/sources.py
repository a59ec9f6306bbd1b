"""The graphs that ``--graph`` and ``--graphs`` name."""

from pathlib import Path

from onehop import datasets
from onehop.bench import graphs
from onehop.bench.cases import Workload
from onehop.errors import ArgumentError

GRAPH_HELP = "A file, or pyg:NAME, ogb:NAME or twin:NAME."


def dataset(source: str, progress: datasets.Progress | None = None) -> datasets.Dataset:
    """The data set that ``source`` names: a file, ``pyg:NAME``, ``ogb:NAME`` or ``twin:NAME``.

    Raises:
        ArgumentError: The kind or the name is unknown.
        FileNotFoundError: There is no such file.
    """
    if source.startswith(datasets.PREFIXES):
        return datasets.load(source, progress=progress)
    if ":" in source and not Path(source).exists():
        raise ArgumentError(
            f"graph: expected a file or one of {', '.join(f'{prefix}NAME' for prefix in datasets.PREFIXES)}, "
            f"got {source!r}."
        )
    return datasets.from_file(source)


def training_set(source: str, progress: datasets.Progress | None = None) -> datasets.Dataset:
    """As :func:`dataset`, where a benchmark graph's bare name stands for its twin."""
    return dataset(f"twin:{source}" if source in graphs.GRAPHS else source, progress)


def structure(source: str) -> Workload:
    """The edges that ``source`` names: a benchmark graph's bare name, or as :func:`dataset`."""
    if source in graphs.GRAPHS:
        return graphs.workload(source)
    found = dataset(source)
    return Workload(found.name, found.edge_index, found.num_nodes)
