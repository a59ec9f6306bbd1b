import pytest
import torch

from onehop.cli import condition, info
from tests.cli.running import onehop, written

MEASURED = {"in_order": 20.0, "random_rows": 10.0, "sum": 9.0}


@pytest.fixture(autouse=True)
def _nothing_is_measured(monkeypatch):
    monkeypatch.setattr(condition, "bandwidth", lambda: MEASURED)


def lines(**changes):
    """The ten lines by name, of this machine with changes."""
    found = info.facts() | changes
    return {line.name: line for line in condition.table(found).rows}


def test_info_shows_ten_lines_and_writes_what_there_is(tmp_path):
    document, output = written(tmp_path / "info.json", "info")
    for part in ("instruction set", "threads", torch.__version__, "9.0 GB/s", "huge pages", "allocator"):
        assert part in output
    assert "graph cache" not in output
    assert len(lines()) == 10
    assert document["command"] == "info"
    assert document["bandwidth"] == MEASURED
    assert {
        "isas",
        "backends",
        "dropout_agrees",
        "operators_known",
        "pool",
        "cache",
        "settings",
        "packages",
    } <= set(document)


def test_info_shows_everything_on_request():
    told = onehop("info --all --no-measure").stdout
    for part in ("not measured", "graph cache", "cpu", "ONEHOP_KEEP_MEMORY"):
        assert part in told


def test_the_memory_is_measured(monkeypatch):
    monkeypatch.undo()
    found = condition.bandwidth(1 << 20)
    assert found.keys() == MEASURED.keys()
    assert all(value > 0 for value in found.values())


def test_info_names_the_remedy_for_what_is_missing(monkeypatch):
    monkeypatch.setattr("onehop.cli.info.importlib.util.find_spec", lambda name: None)
    assert "not installed; pip install 'onehop[pyg]'" in onehop("info --all").stdout


def test_info_shows_a_wrong_setting_instead_of_failing(monkeypatch):
    monkeypatch.setenv("ONEHOP_CACHE_BYTES", "plenty")
    assert onehop("info").exit_code == 0
    line = lines()["settings"]
    assert "ONEHOP_CACHE_BYTES must be a number" in line.state
    assert line.remedy == "unset ONEHOP_CACHE_BYTES"


def test_settings_that_are_set_are_named(monkeypatch):
    assert lines(settings={"ONEHOP_REUSE": {"set_to": None}, **KEPT})["settings"].state == "defaults"
    monkeypatch.setenv("ONEHOP_REUSE", "0")
    assert lines()["settings"].state.startswith("ONEHOP_REUSE=0")


KEPT = {"ONEHOP_KEEP_MEMORY": {"set_to": None, "effective": True}}
NOT_KEPT = {"ONEHOP_KEEP_MEMORY": {"set_to": None, "effective": False}}


@pytest.mark.parametrize(
    ("changes", "name", "state", "remedy"),
    [
        (
            {"isa": "avx2", "isas": ["avx512", "avx2"]},
            "instruction set",
            "avx512 is there",
            "unset ONEHOP_ISA",
        ),
        ({"isa": "portable", "isas": ["portable"]}, "instruction set", "portable", "ONEHOP_ISAS=native"),
        ({"openmp_bound": False}, "threads", "OpenMP was not found", "pip install"),
        ({"threads": 0}, "threads", "0 on", "export OMP_NUM_THREADS="),
        ({"bandwidth": None}, "memory", "not measured", "onehop info"),
        ({"c_library": "glibc 2.36", "settings": KEPT}, "allocator", "freed memory is kept", ""),
        (
            {"c_library": "glibc 2.36", "settings": NOT_KEPT},
            "allocator",
            "not kept",
            "unset ONEHOP_KEEP_MEMORY",
        ),
        ({"c_library": "musl 1.2", "settings": KEPT}, "allocator", "only with glibc can it be kept", ""),
        ({"c_library": None, "settings": KEPT}, "system", "a C library unknown here", ""),
        ({"dropout_agrees": False}, "torch's libraries", "dropout is torch's own", ""),
        ({"operators_known": False}, "torch's libraries", "indexing and products are torch's own", ""),
    ],
)
def test_a_line_says_what_slows_the_machine_and_what_improves_it(changes, name, state, remedy):
    line = lines(**changes)[name]
    assert state in line.state
    assert line.remedy.startswith(remedy) if remedy else line.remedy == ""


def test_without_a_framework_the_command_that_installs_one_is_named():
    versions = dict.fromkeys(info.facts()["versions"]) | {"onehop": "1.0"}
    assert lines(versions=versions)["versions"].remedy == "pip install 'onehop[pyg]'"


def test_huge_pages_that_are_off_have_a_remedy():
    machine = info.facts()["machine"] | {"huge_pages": "always madvise [never]"}
    assert "sudo tee" in lines(machine=machine)["huge pages"].remedy


def test_another_allocator_is_named(monkeypatch):
    monkeypatch.setenv("LD_PRELOAD", "/usr/lib/libjemalloc.so.2")
    assert lines()["allocator"].state.startswith("jemalloc")
