"""The memory that a streamed aggregation takes for free."""

import resource
from pathlib import Path

import pytest

from onehop.ops.streaming import budget


def available() -> int:
    """Bytes, as the system counts them for programs that start now."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    (kib,) = (int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    return kib * 1024


def test_the_systems_free_memory_is_counted_in_bytes() -> None:
    before, found, after = available(), budget._available(), available()
    # Others take and give back memory meanwhile, but not a quarter of it.
    assert 0.75 * min(before, after) < found < 1.25 * max(before, after)


@pytest.mark.parametrize("number", [0, 1], ids=["version 2", "version 1"])
def test_the_page_cache_of_a_control_group_is_free_but_for_libraries(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hierarchy = budget._HIERARCHIES[number]._replace(root=str(tmp_path))
    own = tmp_path / "outer" / "own"

    def group(folder: Path, limit: str, used: int, cached: int, mapped: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / hierarchy.limit).write_text(f"{limit}\n")
        (folder / hierarchy.used).write_text(f"{used}\n")
        counts = {"inactive_file": cached - 7, "active_file": 7, hierarchy.mapped: mapped}
        told = [f"{hierarchy.prefix}{name} {count}" for name, count in counts.items()]
        (folder / "memory.stat").write_text("\n".join(["anon 3", *told]) + "\n")

    monkeypatch.setattr(budget, "_HIERARCHIES", (hierarchy,))
    monkeypatch.setattr(budget, "_own_cgroup", lambda controller: "/outer/own")
    group(own, "1000000", 900_000, 500_000, 100_000)
    assert budget.default_bytes() == int(0.6 * 500_000)
    # The limit of a group around it holds, too, and where there is none it does not.
    group(own.parent, "600000", 550_000, 150_000, 50_000)
    assert budget.default_bytes() == int(0.6 * 150_000)
    group(own.parent, str(2**63 - 4096), 550_000, 150_000, 50_000)
    assert budget.default_bytes() == int(0.6 * 500_000)
    if hierarchy.prefix == "":
        group(own.parent, "max", 550_000, 150_000, 50_000)
        assert budget.default_bytes() == int(0.6 * 500_000)
    # More is mapped than is cached, as memory that is shared is.
    group(own, "1000000", 900_000, 50_000, 100_000)
    assert budget.default_bytes() == int(0.6 * 100_000)
    # What a system does not count is 0, to the byte.
    told = [f"{hierarchy.prefix}active_file 4", f"{hierarchy.prefix}{hierarchy.mapped} 0"]
    (own / "memory.stat").write_text("\n".join(told))
    assert budget.default_bytes() == int(0.6 * 100_004)


def test_the_default_budget_follows_the_limits_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    free = budget.default_bytes()
    assert 0 < free < 2**50
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (budget._status("VmSize") + (8 << 20), 0))
    assert budget.default_bytes() <= 6 << 20
