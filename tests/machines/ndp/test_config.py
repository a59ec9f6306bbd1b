from pathlib import Path

import pytest

from onehop.errors import ConfigurationError
from onehop.machines.ndp import Host, Module, NdpConfig, Topology, load, presets
from onehop.machines.ndp.memory_times import MemoryTimes

PAGE = Path(__file__).parents[3] / "docs" / "machines" / "ndp.md"

MINIMAL = """
name = "small"
[topology]
channels = 1
dimms_per_channel = 1
ranks_per_dimm = 2
"""


@pytest.mark.parametrize(("name", "ranks"), [("gnnear", 32), ("grande_16", 16), ("grande_32", 32)])
def test_presets_have_their_ranks_and_survive_toml(name, ranks):
    config = load(name)
    assert name in presets()
    assert config.topology.ranks == ranks
    assert NdpConfig.from_toml(config.to_toml()) == config


def test_a_file_is_read_with_defaults(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(MINIMAL)
    config = load(path)
    assert config.name == "small"
    assert config.topology.ranks == 2
    assert config.module == load("grande_16").module


@pytest.mark.parametrize(("faw", "clocks"), [("preset", 48), ("sheet", 32), (480, 480), (1, 1)])
def test_tfaw_is_the_devices_the_sheets_or_a_number_of_clocks(faw, clocks):
    assert load("grande_16").change(dram={"faw": faw}).dram.device().timing.faw == clocks


def test_the_host_path_pays_what_the_host_alone_pays():
    """Refresh and turnarounds in streams over the bus; between transfers, an access covers a turnaround."""
    config = load("grande_16")
    memory, given = MemoryTimes.of(config), MemoryTimes.of(config.change(host={"channel_gbps": 10.0}))
    timing, peak_ns = memory.device.timing, 1 / memory.device.peak_gbps
    for op in ("read", "write"):
        assert memory.byte_ns(op) * 64 == memory.stream(op, on_bus=True).ns
        # 295 ns of each 3.9 us are a rank's refresh.
        assert memory.byte_ns(op) > peak_ns / (1 - timing.rfc / timing.refi) * 0.999
        assert given.byte_ns(op) == 0.1
    turnaround_ns = (timing.cwl + timing.bl + timing.wtr_l) * timing.clock_ps / 1000
    assert config.control.access_ns > turnaround_ns


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (MINIMAL + "[module]\nbuffer_kib = 0", "module.buffer_kib: expected a positive number"),
        (MINIMAL + "[module]\nlanes = 1.5", "module.lanes"),
        (MINIMAL + "[host]\nllc_mib = -1.0", "host.llc_mib"),
        (MINIMAL + "[dram]\npreset = 'DDR9'", "DDR9"),
        (MINIMAL + "[dram]\nfaw = 'short'", "dram.faw"),
        (MINIMAL + "[dram]\nfaw = 0", "or a number of clocks, got 0"),
        (MINIMAL + "[dram]\npreset = 'DDR4_2400'\nfaw = 'sheet'", "DDR4_2400"),
        (MINIMAL + "[dram]\nlevel = 'guess'", "dram.level"),
        ('name = "none"', "machine: no topology; expected name, topology"),
        (MINIMAL.replace("channels = 1", "channels = 0"), "topology.channels"),
        (MINIMAL.replace("ranks_per_dimm = 2", "ranks_per_dimm = 3"), "power of two"),
    ],
)
def test_wrong_machines_are_refused(text, message):
    with pytest.raises(ConfigurationError, match=message):
        NdpConfig.from_toml(text)


def test_unknown_machines_and_keys_of_a_change_are_refused():
    with pytest.raises(ConfigurationError, match="grande_16"):
        load("grande_17")
    with pytest.raises(ConfigurationError, match="unknown key layers"):
        load("grande_16").change(dram={"layers": 3})


def test_defaults_are_those_of_the_page():
    config = load("grande_16")
    module, host, control, figures = config.module, config.host, config.control, config.energy
    rows = [line.split("|")[1:4] for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    page = {name.strip(): value.strip() for name, value, *_ in (row for row in rows if len(row) == 3)}
    assert page["buffers"] == f"four of {module.buffer_kib:g} KiB"
    assert page["unit"] == f"{module.lanes} lanes at {module.clock_mhz / 1000:g} GHz"
    assert page["adjacency"] == f"{module.adjacency_entry_bytes} bytes an edge"
    assert page["row pointers"] == f"{module.row_pointer_bytes} bytes a target in every rank"
    assert page["host"] == (
        f"channel as in streams over the bus, {host.reduce_gbps:g} GB/s to add up, "
        f"{host.merge_nodes_per_us:g} nodes a microsecond to merge"
    )
    assert host.channel_gbps == host.llc_mib == 0
    assert page["cache of the host alone"] == f"none; {host.llc_ways} ways where `host.llc_mib` gives a size"
    assert page["control"] == (
        f"{control.start_ns / 1000:g} us to start, {control.poll_ns:g} ns a poll, {control.access_ns:g} ns a "
        f"separate access, {control.flush_mib:g} MiB dirty at most"
    )
    assert page["instructions of prior machines"] == (
        f"{host.instruction_bytes} bytes an edge and DIMM (or rank)"
    )
    # RecNMP's figures (ISCA 2020).
    assert (figures.channel_pj_per_bit, figures.add_pj, figures.multiply_pj) == (22.0, 7.9, 25.2)
    assert figures.local_pj_per_bit < figures.channel_pj_per_bit


def test_the_hosts_rate_is_that_of_the_papers_processor():
    # 70 % of 20 cores of 64 operations a clock at 1.9 GHz.
    assert Host().combine_gflops == pytest.approx(0.7 * 20 * 64 * 1.9)


def test_units_keep_up_with_bursts_that_are_used_four_times():
    module, timing = load("grande_16").module, load("grande_16").dram.device().timing
    burst_ns = timing.bl * timing.clock_ps / 1000
    assert module.lanes * 4 == load("grande_16").burst_bytes
    assert module.clock_mhz * burst_ns / 1000 == pytest.approx(4, rel=0.01)


def test_ranks_are_numbered_by_a_byte_and_two_to_four_buffers_hold_outputs():
    assert Topology(255, 1, 1).ranks == 255
    assert [Module(output_buffers=buffers).output_buffers for buffers in (2, 4)] == [2, 4]
    with pytest.raises(ConfigurationError, match="expected at most 255 ranks in all, got 256"):
        Topology(256, 1, 1)
    for buffers in (1, 5):
        with pytest.raises(ConfigurationError, match=r"module.output_buffers: expected"):
            Module(output_buffers=buffers)
