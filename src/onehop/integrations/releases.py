"""The releases of PyG and DGL that the patch supports, and error messages for the others."""

import contextlib
import importlib
from collections.abc import Iterator
from dataclasses import dataclass

from onehop.errors import ConfigurationError
from onehop.integrations.reports import LOGGER
from onehop.integrations.session import DGL, PYG


@dataclass(frozen=True, slots=True)
class Releases:
    """The releases of a framework, each as (major, minor).

    Attributes:
        package: The package to import.
        oldest: The oldest supported release.
        newest: The newest tested release.
    """

    package: str
    oldest: tuple[int, int]
    newest: tuple[int, int]

    def __str__(self) -> str:
        """The range of releases, such as "2.4 to 2.6"."""
        both = (f"{major}.{minor}" for major, minor in (self.oldest, self.newest))
        return " to ".join(dict.fromkeys(both))

    @property
    def version(self) -> str:
        """The installed version."""
        version: str = importlib.import_module(self.package).__version__
        return version

    @property
    def installed(self) -> tuple[int, ...]:
        """The installed release as (major, minor)."""
        return tuple(int(part) for part in self.version.split(".")[:2])

    @property
    def remedy(self) -> str:
        """The command that installs a supported release."""
        major, minor = self.newest
        return f"pip install -U '{self.package}<{major}.{minor + 1}'"


RELEASES = {PYG: Releases("torch_geometric", (2, 6), (2, 8)), DGL: Releases("dgl", (2, 1), (2, 1))}


@contextlib.contextmanager
def supported(name: str) -> Iterator[None]:
    """Turns import and attribute errors inside the block into an error that says which releases work.

    Args:
        name: "pyg" or "dgl"; any other name, such as "torch", is not checked.

    Raises:
        ConfigurationError: The release is too old, or it is newer than the tested ones and lacks what the
            patch replaces.
    """
    releases = RELEASES.get(name)
    if releases is None:
        yield
        return
    if releases.installed < releases.oldest:
        raise ConfigurationError(
            f"{releases.package} {releases.version} is too old for onehop.patch(), which works with "
            f"{releases}. Nothing was patched. Upgrade it: {releases.remedy}"
        )
    try:
        yield
    except (ImportError, AttributeError) as error:
        if releases.installed <= releases.newest:
            raise
        raise ConfigurationError(
            f"{releases.package} {releases.version} is newer than onehop.patch() works with, {releases}, and "
            f"lacks what it replaces ({error}). Nothing was patched. Install an older one: {releases.remedy}"
        ) from error


def warn_of_newer(name: str) -> None:
    """Logs a warning for a release that is newer than the tested ones."""
    releases = RELEASES.get(name)
    if releases is not None and releases.installed > releases.newest:
        LOGGER.warning(
            "onehop.patch() was tested with %s %s, and this is %s: compare results.",
            releases.package, releases, releases.version,
        )  # fmt: skip
