import re
from dataclasses import fields, replace
from importlib import resources
from itertools import cycle

import pytest

from onehop.errors import ArgumentError, FileFormatError
from onehop.machines.dram import PRESETS, Energy, Timing, from_toml, preset, to_toml

TIMINGS = [entry.name for entry in fields(Timing)]


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("DDR5_3200AN", 12.8),
        ("DDR5_4800AN", 19.23),
        ("DDR5_5600AN", 22.41),
        ("DDR5_6400AN", 25.64),
        ("DDR4_2400", 19.2),
        ("DDR3_1600K", 12.8),
        ("HBM1_1000", 16.0),
    ],
)
def test_a_preset_has_the_bandwidth_of_its_grade(name, peak):
    assert preset(name).peak_gbps == pytest.approx(peak, rel=5e-4)


def test_a_ddr5_rank_is_of_8_gib_with_rows_of_4_kib():
    shape = preset("DDR5_4800AN").organisation
    assert (shape.rank_bytes, shape.row_bytes, shape.banks) == (8 << 30, 4096, 32)


def test_a_channel_of_hbm1_is_of_2_gbit_and_a_ddr3_rank_of_4_gib_without_bank_groups():
    channel, rank = preset("HBM1_1000").organisation, preset("DDR3_1600K").organisation
    assert (8 * channel.rank_bytes, channel.row_bytes, channel.banks) == (2 << 30, 2048, 8)
    assert (rank.rank_bytes, rank.row_bytes, rank.banks, rank.bank_groups) == (4 << 30, 8192, 8, 1)


def test_presets_are_frozen():
    with pytest.raises(AttributeError):
        preset("DDR5_4800AN").name = "other"


def test_an_unknown_preset_is_refused_with_the_names_there_are():
    with pytest.raises(ArgumentError, match=r"DDR5_4800AN.*got 'DDR6'"):
        preset("DDR6")


@pytest.mark.parametrize("name", PRESETS)
def test_a_device_survives_toml(name):
    assert from_toml(to_toml(preset(name))) == preset(name)


def test_a_timing_that_a_file_omits_is_named():
    with pytest.raises(FileFormatError, match=r"\[timing\]: no faw"):
        from_toml(to_toml(preset("DDR5_4800AN")).replace("faw = 48\n", ""))


# One loop checks all timings: each is tested with one value, and each value with several of them.
@pytest.mark.parametrize(("name", "value"), [*zip(TIMINGS, cycle([-1, 2.5, "8", True, 1 << 21]))])
def test_a_timing_that_cannot_be_is_refused(name, value):
    with pytest.raises(ArgumentError, match=rf"timing\.{name}: expected"):
        preset("DDR5_4800AN").with_timing(**{name: value})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"refi": 744}, "nothing but refresh"),
        ({"rc": 70}, "at least ras"),
        ({"command_clocks": 3}, "an integer from 1 to 2"),
        ({"bl": 4}, "moves 32 bytes"),
        ({"fow": 4}, "timing: unknown key fow"),
    ],
)
def test_timings_that_do_not_fit_together_are_refused(change, message):
    with pytest.raises(ArgumentError, match=message):
        preset("DDR5_4800AN").with_timing(**change)


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("organisation", {"bank_groups": 3}, "power of two"),
        ("organisation", {"rows": 0}, "at least 1"),
        ("organisation", {"bus_bits": 12}, "multiple of 8"),
        ("organisation", {"bank_groups": 64}, "at most 64 banks"),
        ("energy", {"read_nj": -1.0}, "read_nj"),
        ("energy", {"standby_mw": float("nan")}, "standby_mw"),
        ("energy", {"source": ""}, "source"),
        ("energy", {"closed_mw": 700.0}, r"energy\.closed_mw: expected at most standby_mw \(625\.0\)"),
    ],
)
def test_parts_that_cannot_be_are_refused(part, change, message):
    with pytest.raises(ArgumentError, match=message):
        replace(getattr(preset("DDR5_4800AN"), part), **change)


def test_every_preset_says_where_its_energies_come_from():
    assert all(isinstance(device.energy, Energy) and device.energy.source for device in PRESETS.values())


@pytest.mark.parametrize("name", PRESETS)
def test_what_is_assumed_is_marked_in_the_file(name):
    text = (resources.files("onehop.machines.dram") / "devices" / f"{name.lower()}.toml").read_text()
    if name.startswith("DDR5"):
        lines = re.findall(r"^(?:rfc_sb|refi_sb|refsb_act|refsb_refsb) = .*$", text, re.MULTILINE)
        assert len(lines) == 4
        assert all("; an assumption: " in line for line in lines)
    if name.startswith("HBM"):
        assert preset(name).energy.source.startswith("assumptions")
    if name.startswith("LPDDR5"):
        assert "the sheet itself was not seen" in preset(name).energy.source
