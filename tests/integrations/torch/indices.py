"""Indices and numbers for tests of torch's gathers and scatters."""

from collections import Counter
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

import onehop
from onehop.integrations.rows import counted

ROWS, ENTRIES = 11, 60
ANY = torch.randint(0, ROWS, (ENTRIES,), generator=torch.Generator().manual_seed(0))
# Rows 3 and 10 have no entry, so that scatters leave them alone.
ANY[ANY == 3] = 4
ANY[ANY == 10] = 9
SORTED = ANY.sort().values
EDGES = torch.stack([SORTED, ANY])
ODD = torch.arange(ROWS) % 2 == 1
LENGTHS = torch.bincount(SORTED, minlength=ROWS)


@pytest.fixture(autouse=True)
def _forgets():
    """The indices live as long as this module, and so would what is kept of them."""
    yield
    onehop.clear_cache()


def numbers(*shape: int, seed: int = 1) -> Tensor:
    """Whole numbers, so that extrema tie, also at 0."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-3, 3, shape, generator=generator).double()


_WHAT = {
    **dict.fromkeys(("x[index]", "index_select", "gather"), "gathered"),
    **dict.fromkeys(
        ("index_put", "index_add", "scatter_add", "scatter_reduce", "segment_reduce"), "scattered"
    ),
}


class Calls:
    """The calls of torch's operators that onehop served."""

    def __init__(self, counts: Counter[tuple[str, bool]]) -> None:
        self._counts = counts

    def __bool__(self) -> bool:
        return any(ours for _, ours in self._counts)

    def __contains__(self, what: str) -> bool:
        return any(ours and _WHAT.get(name) == what for name, ours in self._counts)

    def __repr__(self) -> str:
        return repr(self._counts)


@pytest.fixture
def served() -> Iterator[Calls]:
    """What onehop served since the test began."""
    with counted(everywhere=True) as counts:
        yield Calls(counts)


def entries(index: Tensor, like: Tensor) -> Tensor:
    """An index of rows, expanded to an index of entries."""
    return index.view(-1, *[1] * (like.dim() - 1)).expand(-1, *like.shape[1:])


def columns(index: Tensor, *shape: int) -> Tensor:
    return entries(index, torch.empty(0, *shape))
