"""Specifications run on torch's own functions, also where a patch replaces these by our kernels.

Otherwise a specification would check a kernel against itself, and a gradient that is taken by a specification
would never end.
"""

from contextlib import AbstractContextManager

from onehop.scopes import Scoped

runs_specification = Scoped("onehop_specification", False)
"""Whether this thread runs a specification now."""


def independent() -> AbstractContextManager[bool]:
    """Leaves torch's functions to torch inside the block."""
    return runs_specification.set(True)
