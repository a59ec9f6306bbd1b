"""Machines' files: all three machines are read and written alike."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from onehop.errors import ConfigurationError, FileFormatError
from onehop.machines import dram, ndp, pim
from onehop.machines.common.checks import check
from onehop.machines.common.files import document_of, made, written

# How a machine is loaded, a file of it, one of its sections with one of its keys, and the kind of errors.
KINDS: dict[str, tuple[Callable[[Path], Any], str, str, str, type[Exception]]] = {
    "dram": (dram.load, dram.to_toml(dram.preset("DDR4_2400")), "timing", "faw", FileFormatError),
    "ndp": (ndp.load, ndp.load("grande_16").to_toml(), "module", "lanes", ConfigurationError),
    "pim": (pim.load, pim.upmem_v1a().to_toml(), "core", "threads", ConfigurationError),
}


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]


def test_a_file_is_what_was_written(kind, tmp_path):
    load, text, *_ = kind
    path = tmp_path / "machine.toml"
    path.write_text(text)
    assert written(load(path)) == text


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda text, _, __: text.replace("name = ", "title = ", 1), "unknown key title; expected name, "),
        (lambda text, _, __: text.partition("\n")[2], "no name; expected name"),
        (lambda text, section, _: text.replace(f"[{section}]", f"[{section}"), r"not TOML \("),
        (
            lambda text, _, key: text.replace(f"\n{key} =", f"\n{key}s ="),
            r"\[{section}\]: unknown key {key}s",
        ),
    ],
)
def test_wrong_keys(kind, change, told, tmp_path):
    load, text, section, key, error = kind
    path = tmp_path / "machine.toml"
    path.write_text(change(text, section, key))
    with pytest.raises(error, match=told.format(section=section, key=key)):
        load(path)


def test_a_section_that_is_none(kind, tmp_path):
    load, text, section, _, error = kind
    head, _, tail = text.partition(f"[{section}]\n")
    path = tmp_path / "machine.toml"
    path.write_text(f"{section} = 3\n" + head + tail.partition("\n\n")[2])
    with pytest.raises(error, match=rf"expected a section \[{section}\], got 3"):
        load(path)


def test_a_file_that_is_no_text(kind, tmp_path):
    load, *_, error = kind
    path = tmp_path / "machine.toml"
    path.write_bytes(b"name = '\xff'")
    with pytest.raises(error, match=r"machine\.toml: not text"):
        load(path)


@dataclass(frozen=True)
class Part:
    whole: int = 1
    rate: float = 2.0
    on: bool = True
    word: str = "x"
    curve: tuple[tuple[float, float], ...] = ((1, 2.0), (3, 4.5))


@dataclass(frozen=True)
class Thing:
    name: str
    parts: dict[str, Part] = field(default_factory=dict)
    part: Part = Part()


@pytest.mark.parametrize("name", ["mine", 'a "quoted" one', "back\\slash", "two\nlines", "größer"])
def test_every_value_survives(name):
    thing = Thing(name, {"a": Part(on=False), "b": Part(rate=float("inf"))}, Part(word=name))
    assert made(Thing, document_of(written(thing))) == thing


def test_what_a_file_omits_is_the_bases():
    base = Thing("base", {"a": Part(3)}, Part(whole=7, rate=9.0))
    assert made(Thing, {"part": {"rate": 5.0}}, base=base) == Thing("base", {"a": Part(3)}, Part(7, 5.0))
    with pytest.raises(ConfigurationError, match=r"machine: expected sections \[parts\.NAME\], got 3"):
        made(Thing, {"parts": 3}, base=base)
    with pytest.raises(ConfigurationError, match=r"machine, \[parts\.a\]: unknown key hole"):
        made(Thing, {"parts": {"a": {"hole": 3}}}, base=base)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"whole": 0}, "part.whole: expected an integer from 1 to 9, got 0"),
        ({"whole": 10}, "expected an integer from 1 to 9, got 10"),
        ({"whole": 2.0}, r"got 2\.0"),
        ({"whole": True}, "got True"),
        ({"rate": -0.1}, r"part.rate: expected a number of at least 0, got -0\.1"),
        ({"rate": "fast"}, "expected a number, got 'fast'"),
        ({"rate": True}, "expected a number, got True"),
        ({"rate": float("nan")}, "expected a number, got nan"),
        ({"rate": float("inf")}, "expected a number, got inf"),
        ({"on": 1}, "part.on: expected true or false, got 1"),
        ({"word": " "}, "part.word: expected a text, got ' '"),
        ({"curve": ((1, 2.0),)}, "part.curve: expected at least two entries"),
        ({"curve": ((1, 2.0), (1, 3.0))}, "expected pairs in ascending order"),
        ({"curve": ((1, 2.0), (2, 0.0))}, "expected numbers above 0"),
        ({"curve": ((1, 2.0), (2,))}, "expected pairs of numbers"),
        ({"curve": (1, 2)}, "expected pairs of numbers"),
        ({"curve": 5}, "expected at least two entries, got 5"),
    ],
)
def test_types_and_ranges(values, told):
    with pytest.raises(ConfigurationError, match=told):
        check(Part(**values), "part", least={"rate": 0}, most={"whole": 9})


def test_what_is_in_range():
    check(Part(whole=9, rate=0), least={"rate": 0}, most={"whole": 9})
    check(Part(rate=float("inf")), endless=True)
    with pytest.raises(ConfigurationError, match=r"^rate: expected a positive number, got 0\.$"):
        check(Part(rate=0))
