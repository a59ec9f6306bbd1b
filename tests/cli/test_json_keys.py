"""docs/reference/json.md names all keys that the commands write."""

import json
import re
from pathlib import Path

import pytest

from tests.cli.running import written

pytest.importorskip("torch_geometric")

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
SHARED = ("Every command", "Stamp", "Times", "Ratio", "Bandwidth", "Graph")

COMMANDS = {
    "info": "info --no-measure",
    "ingest": "ingest edges.csv --out graph --source a --target b",
    "tune": "tune --graph ring.txt --widths 16 --budget 0.2",
    "bench ops": "bench ops --graphs ring.txt --widths 16 --cases sum --peers torch-csr-int32 --rounds 2",
    "bench models": "bench models --graphs ring.txt --models gcn --hidden 4 --rounds 1",
    "bench limits": "bench limits --widths 16 --megabytes 1 --rounds 2 --graph ring.txt",
    "demo": "demo --graph ring.txt --model gcn --hidden 4 --epochs 2",
    "simulate dram": "simulate dram --requests 100 --sweep faw=32,48 --set queue=8",
    "simulate gpu": "simulate gpu --graph ring.txt --width 16 --sweep sms=20,40",
    "simulate ndp": "simulate ndp --graph ring.txt --width 16 --model gcn --priors --sweep tile=32,64",
    "simulate ndp, a sample": "simulate ndp --graph ring.txt --width 16 --sample 2",
    "simulate pim": "simulate pim --graph ring.txt --width 16 --host",
    "simulate pim, a model": "simulate pim --graph ring.txt --width 16 --plan 1x32 --model gcn",
    "simulate pim, a sweep": "simulate pim --graph ring.txt --width 16 --plan 1x32 --sweep clock_mhz=350,500",
    "simulate pim, a grid": (
        "simulate pim --graph ring.txt --width 16 --plan 1x32 --grid --sweep clock_mhz=350,500 "
        "--sweep ranks=32,64"
    ),
}


def sections() -> dict[str, str]:
    """The sections of the page by their titles."""
    page = (ROOT / "docs" / "reference" / "json.md").read_text()
    parts = re.split(r"^##+ (.*)\n", page, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def keys_of(title: str) -> set[str]:
    """The paths that a section names, also those within the objects that it refers to."""
    known = sections()
    found = set()
    for row in re.findall(r"^\| (`.*?) \| (.*) \|$", known[title], re.M):
        names = re.findall(r"`([^`]*)`", row[0])
        found |= set(names)
        for shared in re.findall(r"\]\(#([a-z]+)\)", row[1]):
            if shared.capitalize() in SHARED:
                found |= {f"{name}.{key}" for name in names for key in keys_of(shared.capitalize())}
    return found


def paths(value: object, at: str = "") -> set[str]:
    """The paths of all keys of a document."""
    if isinstance(value, dict):
        return {
            path for key, inner in value.items() for path in (paths(inner, f"{at}.{key}") or {f"{at}.{key}"})
        }
    if isinstance(value, list):
        return {path for inner in value for path in paths(inner, f"{at}[]")}
    return set() if at.endswith("[]") or not at else {at}


def unnamed(document: object, title: str) -> set[str]:
    """The keys of a document that a section of the page, and what all commands share, do not name."""
    titles = ["Every command", title, *(["simulate"] if title.startswith("simulate ") else [])]
    known = [key.split(".") for each in titles for key in keys_of(each)]
    found = (path.lstrip(".").replace("grid[]", "sweep[]") for path in paths(document))
    return {path for path in found if not any(is_named(path.split("."), key) for key in known)}


def is_named(path: list[str], key: list[str]) -> bool:
    """Whether a path is the key of the page; or an empty object above the key."""
    return len(path) <= len(key) and all(
        one.removesuffix("[]") == other.removesuffix("[]") or other == "NAME"
        for one, other in zip(path, key, strict=False)
    )


@pytest.mark.parametrize(("title", "command"), COMMANDS.items(), ids=COMMANDS)
def test_the_page_names_every_key(title, command, edge_list, tmp_path, monkeypatch, forked_runs):
    monkeypatch.chdir(edge_list.parent)
    Path("edges.csv").write_text("a,b\n1,2\n2,3\n")
    document, _ = written(tmp_path / "out.json", command, "--quiet")
    assert document["schema"] == 1
    assert unnamed(document, title.partition(",")[0]) == set()


@pytest.mark.parametrize("name", ["pygim", "grande", "io-aware", "isplib", "pygim-fit", "grande-fit"])
def test_the_page_names_every_key_of_reproduce(name):
    document = json.loads((RESULTS / "reproduce" / f"{name}.json").read_text())
    assert {path for path in unnamed(document, "reproduce") if not path.startswith("charts")} == set()


def test_a_key_that_the_page_lacks_is_found():
    assert unnamed({"schema": 1, "results": [{"graph": "cora", "grpah": 3}]}, "bench ops") == {
        "results[].grpah"
    }
