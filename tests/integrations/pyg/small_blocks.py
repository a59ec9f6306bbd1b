"""Lets graphs of a few edges run in blocks, several of them."""

import pytest

from onehop.integrations.pyg.rowwise import policy


def force(monkeypatch: pytest.MonkeyPatch, edges: int = 8) -> None:
    """Blocks of ``edges`` edges, however small the graph."""
    monkeypatch.setattr(policy, "SMALL_BYTES", 0)
    monkeypatch.setattr(policy, "BLOCK_BYTES", 0)
    monkeypatch.setattr(policy, "FEWEST_EDGES", edges)
