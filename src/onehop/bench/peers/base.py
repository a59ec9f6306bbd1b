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
    """A way to aggregate with which onehop is compared.

    Attributes:
        name: The peer's name in tables and on the command line.
        needs: The modules that the peer imports.
    """

    name: str
    needs: tuple[str, ...] = ()

    def available(self) -> str | None:
        """Return None if the peer can be used here, else the reason why not."""
        return import_reason(*self.needs)

    def refuse(self, case: Case) -> str | None:
        """Return None if the peer has this operation, else the reason why not."""
        return None

    def extra_bytes(self, case: Case) -> int:
        """Return the bytes allocated besides operands and result, if they grow with edges times width."""
        return 0

    @abstractmethod
    def forward(self, case: Case) -> Forward:
        """Prepare everything that does not depend on x, and return the function of x [N, F]."""

    def build(self, case: Case) -> Callable[[], Tensor]:
        """Return the call that is timed.

        It returns the result [N, F], or the gradient of x [N, F] if the case has a backward pass.
        """
        return case.call(self.forward(case))


def import_reason(*modules: str) -> str | None:
    """Return why the modules cannot be imported; None if they can."""
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
    """Ignore torch's warnings that its sparse layouts are in beta and are not checked."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CS[RC] tensor support is in beta state")
        warnings.filterwarnings("ignore", message="Sparse invariant checks are implicitly disabled")
        yield
