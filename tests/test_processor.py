"""What the system says of the processor, and what is made of silence."""

import pytest

from onehop import processor


@pytest.fixture(autouse=True)
def _asked_anew(monkeypatch):
    asked = (processor.name, processor.caches, processor.last_level_cache_bytes)
    for function in asked:
        function.cache_clear()
    yield
    monkeypatch.undo()
    for function in asked:
        function.cache_clear()


def write(folder, number, **figures):
    index = folder / f"index{number}"
    index.mkdir()
    for name, value in figures.items():
        (index / name).write_text(f"{value}\n")


def test_caches_are_listed_by_level_and_instructions_left_out(tmp_path, monkeypatch):
    write(tmp_path, 0, type="Data", level=1, size="48K")
    write(tmp_path, 1, type="Instruction", level=1, size="32K")
    write(tmp_path, 3, type="Unified", level=3, size="24M")
    write(tmp_path, 2, type="Unified", level=2, size="2048K")
    monkeypatch.setattr(processor, "_CACHES", tmp_path)
    assert list(processor.caches().items()) == [(1, 48 << 10), (2, 2 << 20), (3, 24 << 20)]
    assert processor.last_level_cache_bytes() == 24 << 20


def test_a_system_that_tells_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(processor, "_CACHES", tmp_path / "none")
    monkeypatch.setattr(processor, "_DESCRIPTION", tmp_path / "none")
    assert processor.caches() == {}
    assert processor.last_level_cache_bytes() == 0
    assert processor.name()


def test_the_name_is_that_of_the_first_core(tmp_path, monkeypatch):
    description = tmp_path / "cpuinfo"
    description.write_text("processor\t: 0\nmodel name\t: An Engine: 9000\nprocessor\t: 1\nmodel name\t: B\n")
    monkeypatch.setattr(processor, "_DESCRIPTION", description)
    assert processor.name() == "An Engine: 9000"
