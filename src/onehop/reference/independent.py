"""Specifications run on torch's own functions, also where a patch replaces these by our kernels.

Otherwise a specification would check a kernel against itself, and a gradient that is taken by a specification
would never end.
"""

import contextlib
import threading
from collections.abc import Iterator


class _Running(threading.local):
    specification = False


running = _Running()
"""Whether this thread runs a specification now."""


@contextlib.contextmanager
def independent() -> Iterator[None]:
    """Leaves torch's functions to torch inside the block."""
    before, running.specification = running.specification, True
    try:
        yield
    finally:
        running.specification = before
