"""Machines with other DRAM: device files, bursts of other sizes, same-bank refresh, closed rows."""

import pytest

from onehop.errors import ConfigurationError
from onehop.machines.dram import preset, to_toml
from onehop.machines.ndp import Machine, load
from onehop.machines.ndp.counts import RankWorkload, TargetGroups
from onehop.plans import NdpPlan
from tests.machines.ndp.graphs import random_graph

MACHINE = """name = "mine"
[topology]
channels = 2
dimms_per_channel = 1
ranks_per_dimm = 2
[dram]
preset = "mine.toml"
"""


def test_a_device_file_lies_beside_the_machines(tmp_path):
    (tmp_path / "mine.toml").write_text(to_toml(preset("HBM2_2000").with_timing(cl=15)))
    (tmp_path / "machine.toml").write_text(MACHINE)
    device = load(tmp_path / "machine.toml").dram.device()
    assert device == preset("HBM2_2000").with_timing(cl=15)
    assert load(tmp_path / "machine.toml").burst_bytes == 32


def test_a_device_file_that_names_unknown_keys_is_refused(tmp_path):
    (tmp_path / "mine.toml").write_text(to_toml(preset("HBM2_2000")).replace("cl = 14", "cas = 14"))
    (tmp_path / "machine.toml").write_text(MACHINE)
    with pytest.raises(ConfigurationError, match=r"unknown key cas; expected clock_ps, bl, cl"):
        load(tmp_path / "machine.toml")


def test_a_device_file_that_is_not_there_is_refused(tmp_path):
    (tmp_path / "machine.toml").write_text(MACHINE)
    with pytest.raises(ConfigurationError, match=r"cannot read the device file .*mine\.toml"):
        load(tmp_path / "machine.toml")


def test_same_bank_refresh_needs_a_device_that_has_it():
    with pytest.raises(ConfigurationError, match="DDR4_2400 has no same-bank refresh"):
        load("grande_16").change(dram={"preset": "DDR4_2400", "refresh_mode": "same_bank"})


@pytest.mark.parametrize("name", ["LPDDR5_6400", "HBM2_2000", "HBM3_6400"])
def test_bursts_of_32_bytes_are_what_is_read_and_written(name):
    graph, plan = random_graph(300, 2000), NdpPlan(mapping="system", retile="index")
    config = load("grande_16").change(dram={"preset": name})
    # A slice of two columns takes one burst, whatever its size.
    small, large = (Machine(machine).layers(graph, [32], plan)[0] for machine in (config, "grande_16"))
    for kind in ("feature_read", "write_back"):
        assert 2 * small.run.bytes()[kind] == large.run.bytes()[kind] > 0
    for kind in ("feature_useful", "outputs_read", "finals_write"):
        assert small.run.bytes()[kind] == large.run.bytes()[kind] > 0
    bursts = small.run.commands()
    assert bursts.reads + bursts.writes > 0
    assert 32 * bursts.writes == small.run.bytes()["write_back"]
    assert small.baseline.bytes["results_write"] == 300 * 32 * 4


@pytest.mark.parametrize("burst", [32, 64, 128])
def test_a_rows_part_is_read_in_whole_bursts(burst):
    graph, topology = random_graph(60, 900), load("grande_16").topology
    workload = RankWorkload(graph, topology, 8, burst, retile="rows")
    counts = workload.counts(TargetGroups(4, 8, 8))
    expected = 0
    for row in range(graph.num_dst):
        begin, end = graph.rowptr[row : row + 2].tolist()
        owners = workload.owner[graph.col[begin:end].numpy()].tolist()
        expected += sum(-(-owners.count(rank) * 8 // burst) for rank in set(owners))
    assert counts.row_bursts.sum() == expected
