"""The page of what PyG needs: it is up to date, and its script notices what PyG adds."""

from pathlib import Path

import pytest

from tests import scripts

pytest.importorskip("torch_geometric")
script = scripts.load("pyg_needs")

MODULE = """
import torch_geometric.typing
from torch_geometric.typing import WITH_NEW_PACKAGE

try:
    import brand_new
    WITH_BRAND_NEW = True
except ImportError:
    WITH_BRAND_NEW = False


class Layer:
    def __init__(self):
        if not torch_geometric.typing.WITH_NEWEST:
            raise ImportError("'Layer' requires 'newest'")


def function():
    try:
        import torch, other.part
    except (ImportError, AttributeError):
        pass
    raise ValueError
"""


def test_what_pyg_adds_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "nn").mkdir()
    (tmp_path / "nn" / "__init__.py").write_text(MODULE)
    needs = script.read(tmp_path)
    assert dict(needs.imports) == {"brand_new": {"nn"}, "other": {"nn"}}
    assert script.unanswered(needs) == [
        "raises ImportError: nn:Layer",
        "flag: WITH_NEW_PACKAGE in nn",
        "flag: WITH_BRAND_NEW in nn",
        "flag: WITH_NEWEST in nn",
    ]


def test_the_page_is_up_to_date() -> None:
    script.main(check=True)


def test_nothing_is_answered_that_pyg_no_longer_asks() -> None:
    needs = script.read(script.installed())
    assert set(script.RAISES) == set(needs.raises)
    assert set(script.FLAGS) == set(needs.flags)
