import json

import torch

from onehop.bench import stamp
from onehop.cli.info import OPTIONAL, facts


def test_the_stamp_is_json_and_names_machine_threads_and_versions():
    made = stamp.stamp()
    assert json.loads(json.dumps(made)) == made
    assert made["threads"] == torch.get_num_threads()
    assert made["versions"]["torch"] == torch.__version__
    assert made["machine"]["memory_bytes"] > 0


def test_the_machine_in_one_line():
    assert torch.__version__ in stamp.machine_line()
    assert "thread" in stamp.machine_line()


def test_cache_sizes_are_read_in_bytes(tmp_path, monkeypatch):
    for number, (kind, level, size) in enumerate(
        [("Data", "1", "32K"), ("Instruction", "1", "32K"), ("Unified", "3", "24M")]
    ):
        folder = tmp_path / f"index{number}"
        folder.mkdir()
        for name, value in (("type", kind), ("level", level), ("size", size)):
            (folder / name).write_text(value + "\n")
    monkeypatch.setattr(stamp, "CACHE_FOLDER", tmp_path)
    assert stamp.caches() == {"L1 data": 32 << 10, "L3": 24 << 20}
    assert stamp.last_level_cache_bytes() == 24 << 20


def test_facts_are_json_and_say_what_is_missing():
    found = facts()
    json.dumps(found)
    assert found["isa"] in found["isas"]
    assert found["backends"]["cpu"]["refuses_cpu_float32"] is None
    assert set(found["packages"]) == set(OPTIONAL)
    for package in found["packages"].values():
        assert (package["remedy"] is None) == package["present"]


def test_facts_tell_what_a_variable_amounts_to(monkeypatch):
    monkeypatch.setenv("ONEHOP_POOL_BYTES", "1000")
    monkeypatch.setenv("ONEHOP_CHECK", "sometimes")
    settings = facts()["settings"]
    assert settings["ONEHOP_POOL_BYTES"] == {"set_to": "1000", "effective": 1000}
    assert "must be 'version' or 'full'" in settings["ONEHOP_CHECK"]["error"]
