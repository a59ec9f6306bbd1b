"""What users register, taken back after a test."""

from collections.abc import Iterator
from contextlib import contextmanager

from onehop.machines import ndp, pim


@contextmanager
def as_before() -> Iterator[None]:
    """Restores the registries of mappings, designs and schemes."""
    kept = [(registry, dict(registry), list(registry.names)) for registry in REGISTRIES]
    try:
        yield
    finally:
        for registry, entries, names in kept:
            registry.clear()
            registry.update(entries)
            registry.names[:] = names


REGISTRIES = (ndp.mappings, ndp.DESIGNS, pim.schemes)
