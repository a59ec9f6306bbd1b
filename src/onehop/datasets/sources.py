"""Data sets by a short name, as the command line gives them."""

from onehop.datasets.dataset import Dataset, Progress
from onehop.datasets.external import ogb, pyg
from onehop.datasets.twins import names, twin
from onehop.errors import ArgumentError

# What a short name begins with; anything else is the path of a file, see onehop.datasets.from_file.
PREFIXES = ("twin:", "pyg:", "ogb:")


def load(
    spec: str,
    seed: int = 0,
    scale: float = 1.0,
    progress: Progress | None = None,
    *,
    features: bool = True,
) -> Dataset:
    """The data set that ``spec`` names.

    Args:
        spec: ``twin:NAME``, ``pyg:NAME`` or ``ogb:NAME``.
        seed: For twins, see :func:`onehop.datasets.twin`.
        scale: For twins.
        progress: For twins.
        features: For twins.

    Raises:
        ArgumentError: The prefix or the name is unknown.
        DatasetError: A package is not installed, or a download failed.
    """
    kind, colon, name = spec.partition(":")
    match kind + colon:
        case "twin:":
            return twin(name, seed, scale, progress, features=features)
        case "pyg:":
            return pyg(name)
        case "ogb:":
            return ogb(name)
    raise ArgumentError(
        f"spec: expected twin:NAME (one of {', '.join(names())}), pyg:NAME or ogb:NAME, got {spec!r}. "
        f"A file is read by onehop.datasets.from_file(path)."
    )
