"""A check for releases of torch that are too old for onehop; it runs before other imports."""

import torch

from onehop.errors import ExtensionError

OLDEST = (2, 6)


def check(version: str) -> None:
    """Raise if a release is too old.

    Args:
        version: The release, such as "2.13.0+cpu".

    Raises:
        ExtensionError: The release is too old.
    """
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        raise ExtensionError(
            f"onehop works with torch {'.'.join(map(str, OLDEST))} or later, and this is {version}: "
            "pip install -U torch"
        )


check(torch.__version__)
