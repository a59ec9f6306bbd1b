"""Lets graphs of a few edges run in blocks, several of them."""

import dataclasses

import pytest

from onehop import thresholds


def force(monkeypatch: pytest.MonkeyPatch, edges: int = 8) -> None:
    """Blocks of ``edges`` edges, however small the graph."""
    bounds = dataclasses.replace(thresholds.now, cached_bytes=0, block_bytes=0, block_edges=edges)
    monkeypatch.setattr(thresholds, "now", bounds)
