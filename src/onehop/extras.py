"""Packages that extras of the installation bring, imported where they are used."""

import contextlib
from collections.abc import Iterator

from onehop.errors import ConfigurationError


@contextlib.contextmanager
def needed(asked: str, extra: str) -> Iterator[None]:
    """Says what to install where an import inside the block finds no package.

    Args:
        asked: What needs the package, as the user called it: the subject of the sentence.
        extra: The extra of onehop that brings the package.

    Raises:
        ConfigurationError: A package is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "onehop":
            raise
        raise ConfigurationError(
            f"{asked} needs {error.name.partition('.')[0]}, which is not installed: "
            f"pip install 'onehop[{extra}]'."
        ) from error
