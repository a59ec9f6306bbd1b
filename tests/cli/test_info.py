import json

import pytest
import torch

from tests.cli.running import onehop


def test_info_shows_and_writes_what_there_is(tmp_path):
    path = tmp_path / "info.json"
    result = onehop("info", "--json", path)
    assert result.exit_code == 0
    for part in ("instruction set", "threads", torch.__version__, "graph cache", "cpu", "ONEHOP_KEEP_MEMORY"):
        assert part in result.stdout
    document = json.loads(path.read_text())
    assert document["command"] == "info"
    assert {"isas", "backends", "dropout_agrees", "pool", "cache", "settings", "packages"} <= set(document)


def test_info_names_the_remedy_for_what_is_missing(monkeypatch):
    monkeypatch.setattr("onehop.cli.info.importlib.util.find_spec", lambda name: None)
    assert "not installed; pip install 'onehop[pyg]'" in onehop("info").stdout


def test_info_shows_a_wrong_setting_instead_of_failing(monkeypatch):
    monkeypatch.setenv("ONEHOP_CACHE_BYTES", "plenty")
    result = onehop("info")
    assert result.exit_code == 0
    assert "ONEHOP_CACHE_BYTES must be a number" in result.stdout


def test_info_tells_where_freed_memory_cannot_be_kept(monkeypatch):
    monkeypatch.setattr("onehop.cli.info.platform.libc_ver", lambda: ("", ""))
    assert "only with glibc can it be kept" in onehop("info").stdout


@pytest.mark.parametrize(("agrees", "told"), [(True, "draw torch's numbers"), (False, "torch's own: ")])
def test_info_tells_whose_dropout_runs(monkeypatch, agrees, told):
    monkeypatch.setattr("onehop.cli.info.torch_stream.agrees", lambda: agrees)
    assert told in onehop("info").stdout
