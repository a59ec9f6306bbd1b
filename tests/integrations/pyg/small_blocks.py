"""Lets graphs of a few edges run in blocks, several of them, or as compiled messages."""

import dataclasses

import pytest

from onehop import thresholds


def force(monkeypatch: pytest.MonkeyPatch, edges: int = 8, compiled: bool = False) -> None:
    """Blocks of ``edges`` edges, however small the graph; ``compiled`` lets messages be compiled first."""
    bounds = dataclasses.replace(
        thresholds.now,
        cached_bytes=0,
        block_bytes=0,
        block_edges=edges,
        compiled_edges=0 if compiled else 1 << 60,
    )
    monkeypatch.setattr(thresholds, "now", bounds)
