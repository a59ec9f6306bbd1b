"""Running specifications on torch's own functions, even where a patch replaces them by our kernels.

Otherwise a specification would check a kernel against itself, and a gradient computed by a specification
would recurse without end.
"""

from contextlib import AbstractContextManager

from onehop.scopes import Scoped

runs_specification = Scoped("onehop_specification", False)
"""Whether this thread runs a specification now."""


def independent() -> AbstractContextManager[bool]:
    """Use torch's own functions inside the block."""
    return runs_specification.set(True)
