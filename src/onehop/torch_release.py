"""Refuses releases of torch that onehop does not work with, before anything else is imported."""

import torch

from onehop.errors import ExtensionError

OLDEST = (2, 6)


def check(version: str) -> None:
    """Raises for a release that is too old.

    Args:
        version: Such as "2.13.0+cpu".

    Raises:
        ExtensionError: It is too old.
    """
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        raise ExtensionError(
            f"onehop works with torch {'.'.join(map(str, OLDEST))} or later, and this is {version}: "
            "pip install -U torch"
        )


check(torch.__version__)
