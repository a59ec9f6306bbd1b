"""The library as if every graph were large: what it does from some size on, it does at once."""

import contextlib
from collections.abc import Iterator
from unittest.mock import patch

from onehop import native
from onehop.integrations.pyg import reuse
from onehop.integrations.pyg.associations import product, rooted
from onehop.integrations.pyg.rowwise import policy
from onehop.kernels.cpu import ordered_weights

# Where a bound is kept, its name, and what makes it hold for any graph.
_BOUNDS = (
    (reuse, "LEAST_WORK", 0),
    (product, "_BLOCK_ROWS", 2),
    (product, "_LEAST_ROWS", 2),
    (rooted, "_LEAST_ROWS", 0),
    (policy, "SMALL_BYTES", 0),
    (policy, "BLOCK_BYTES", 0),
    (policy, "FEWEST_EDGES", 8),
    (ordered_weights, "LEAST_EDGES", 0),
    (native, "POOLED_BYTES", 1),
)


@contextlib.contextmanager
def without_thresholds() -> Iterator[None]:
    """Inside the block no graph is too small for anything, and blocks have eight edges."""
    with contextlib.ExitStack() as stack:
        for module, name, value in _BOUNDS:
            stack.enter_context(patch.object(module, name, value))
        yield
