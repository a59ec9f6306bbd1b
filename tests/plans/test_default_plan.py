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
    plan = default.default_plan.__wrapped__(4096, 4096, 40_960, 64, 4)
    assert plan.prefetch_hint == hint
