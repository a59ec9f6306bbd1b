"""The interface of a peer."""

import importlib
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from torch import Tensor

from onehop.bench.cases import Case


class Peer(Protocol):
    """A way to aggregate that onehop is measured against."""

    name: str

    def available(self) -> str | None:
        """None if it can be used here, else the reason why not."""
        ...

    def refuse(self, case: Case) -> str | None:
        """None if it has this operation, else the reason why not."""
        ...

    def extra_bytes(self, case: Case) -> int:
        """Bytes allocated beside operands and result, if they grow with edges times width."""
        ...

    def build(self, case: Case) -> Callable[[], Tensor]:
        """Prepares everything that does not depend on x; the call returned is what is timed.

        It returns the result [N, F], or the gradient of x [N, F] where the case has a backward pass.
        """
        ...


def import_reason(*modules: str) -> str | None:
    """The reason why the modules cannot be imported; None if they can."""
    for module in modules:
        try:
            importlib.import_module(module)
        except ImportError as error:
            return f"{module} cannot be imported ({error})"
        except OSError as error:  # a shared library built for another torch
            return f"{module} cannot be loaded ({str(error).splitlines()[0]})"
    return None


@contextmanager
def beta_warnings_ignored() -> Iterator[None]:
    """Ignores what torch says once about its sparse layouts: that they are in beta, and check nothing."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CS[RC] tensor support is in beta state")
        warnings.filterwarnings("ignore", message="Sparse invariant checks are implicitly disabled")
        yield
