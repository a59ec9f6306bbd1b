"""Imports of optional packages, which extras of the installation provide."""

import contextlib
from collections.abc import Iterator

from onehop.errors import ConfigurationError


@contextlib.contextmanager
def needed(asked: str, extra: str) -> Iterator[None]:
    """Turn a missing package inside the block into an error that names what to install.

    Args:
        asked: The feature that needs the package, as the user named it; the subject of the message.
        extra: The extra of onehop that provides the package.

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
