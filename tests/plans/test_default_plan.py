"""The plan that is used where nothing was tuned."""

import pytest

from onehop.plans import default

KIB = 1 << 10


@pytest.mark.parametrize(
    ("first", "second", "hint"),
    [(32 * KIB, 512 * KIB, "L2"), (48 * KIB, 512 * KIB, "L1"), (32 * KIB, 2048 * KIB, "L1"), (0, 0, "L2")],
    ids=["small first cache", "roomy first cache", "second cache holds all rows", "nothing is told"],
)
def test_rows_are_asked_for_into_a_cache_with_room(
    first: int, second: int, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    caches = {level: size for level, size in ((1, first), (2, second)) if size}
    monkeypatch.setattr(default, "caches", lambda: caches)
    # 4,096 rows of 256 bytes: a megabyte.
    plan = default._plan.__wrapped__(4096, 4096, 40_960, 64, 4, False)
    assert plan.prefetch_hint == hint


@pytest.mark.parametrize(
    ("width", "sources", "last", "ahead"),
    [
        (64, 4096, 32 << 20, 64),  # short rows
        (256, 4096, 32 << 20, 12),  # rows of 1 KiB in the last cache: a quarter of 48 KiB
        (512, 4096, 32 << 20, 6),
        (4096, 1024, 32 << 20, 4),
        (128, 4096, 32 << 20, 24),
        (256, 4096, 5 << 20, 32),  # four megabytes are more than three quarters of five
        (256, 4096, 0, 32),  # nothing is told
    ],
)
def test_long_rows_that_are_near_are_not_asked_for_so_early_that_they_fill_the_first_cache(
    width: int, sources: int, last: int, ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {1: 48 * KIB, 2: 512 * KIB, 3: last} if last else {}
    monkeypatch.setattr(default, "caches", lambda: sizes)
    monkeypatch.setattr(default, "last_level_cache_bytes", lambda: last)
    plan = default._plan.__wrapped__(sources, 4096, 40_960, width, 4, False)
    assert plan.prefetch == ahead


@pytest.mark.parametrize(
    ("edges", "item"),
    [
        (0, default._LEAST_EDGES),
        (default._PIECES * default._LEAST_EDGES, default._LEAST_EDGES),
        (default._PIECES * (default._LEAST_EDGES + 7), default._LEAST_EDGES + 7),
        (default._PIECES * (default._LEAST_EDGES + 7) - 1, default._LEAST_EDGES + 6),
        (default._PIECES * (default._MOST_EDGES + 7), default._MOST_EDGES),
    ],
)
def test_a_graph_has_so_many_pieces_of_work(edges: int, item: int) -> None:
    assert default._plan.__wrapped__(4096, 4096, edges, 64, 4, False).edges_per_item == item
