"""The interface of a peer."""

import importlib
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import Tensor

from onehop.bench.cases import Case

Forward = Callable[[Tensor], Tensor]


class Peer(ABC):
    """A way to aggregate that onehop is measured against.

    Attributes:
        name: Its name in tables and on the command line.
        needs: The modules that it imports.
    """

    name: str
    needs: tuple[str, ...] = ()

    def available(self) -> str | None:
        """Return None if it can be used here, else the reason why not."""
        return import_reason(*self.needs)

    def refuse(self, case: Case) -> str | None:
        """Return None if it has this operation, else the reason why not."""
        return None

    def extra_bytes(self, case: Case) -> int:
        """Return the bytes allocated beside operands and result, if they grow with edges times width."""
        return 0

    @abstractmethod
    def forward(self, case: Case) -> Forward:
        """Prepare everything that does not depend on x, and return the function of x [N, F]."""

    def build(self, case: Case) -> Callable[[], Tensor]:
        """Return the call that is timed.

        It returns the result [N, F], or the gradient of x [N, F] where the case has a backward pass.
        """
        return case.call(self.forward(case))


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
