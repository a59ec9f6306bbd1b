"""Configurations: TOML, checks, presets."""

import dataclasses
from pathlib import Path

import pytest

from onehop import ArgumentError, ConfigurationError
from onehop.machines.pim import Machine, PimConfig, preset, presets, upmem_v1a


@pytest.mark.parametrize("name", presets())
def test_toml_round_trip(name: str, tmp_path: Path) -> None:
    config = preset(name)
    config.save(tmp_path / "machine.toml")
    assert PimConfig.load(tmp_path / "machine.toml") == config


def test_upmem_has_1992_cores_in_32_unequal_ranks() -> None:
    config = upmem_v1a()
    assert sum(config.rank_cores) == config.cores == 1992
    assert (len(config.rank_cores), min(config.rank_cores), max(config.rank_cores)) == (32, 62, 63)


def test_estimates_are_marked() -> None:
    assert {name: preset(name).estimate for name in presets()} == {
        "upmem_v1a": False,
        "upmem_v1b": False,
        "hbm_pim_like": True,
        "aim_like": True,
    }


def test_unknown_preset_names_those_there_are() -> None:
    with pytest.raises(ArgumentError, match=r"upmem_v2.*upmem_v1a"):
        preset("upmem_v2")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = 'x'\ncores = 4", "machine: no ranks; expected name, cores, ranks"),
        ("name = 'x'\ncores = 4.5\nranks = 1", "cores: expected an integer"),
        ("name = 'x'\ncores = 4\nranks = 1\narithmetic = 3", r"sections \[arithmetic\.NAME\], got 3"),
        ("name = 'x'\ncores = 4\nranks = 1", "at least one dtype"),
        ("name = 'x'\ncores = 4\nranks = 1\n[arithmetic.int9]\naccumulate = 1", "arithmetic.int9"),
    ],
)
def test_bad_toml_is_an_error_that_names_the_fault(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        PimConfig.from_toml(text)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ranks": 0}, "ranks: expected an integer from 1 to 1048576"),
        ({"cores": 0}, "cores: expected an integer from 1 to 1048576"),
        ({"estimate": 1}, "estimate: expected true or false"),
        ({"copy_ns": ((2, 30.0),)}, "copy_ns: expected at least two"),
        ({"ranks": 5000}, "ranks"),
        ({"clock_mhz": 0}, "clock_mhz: expected a positive number"),
        ({"clock_mhz": float("nan")}, "clock_mhz"),
        ({"mram_bytes": -1}, "mram_bytes"),
        ({"mram_bytes": "64 MB"}, "mram_bytes"),
        ({"dma_read_cycles": ((8, 1.0),)}, "at least two"),
        ({"dma_read_cycles": ((64, 1.0), (8, 2.0))}, "ascending"),
        ({"dma_most_bytes": 2047}, "multiple"),
        ({"kores": 3}, "no such value"),
        ({"name": ""}, "name"),
        ({"core_push_gbps": 7.0}, "links.core_push_gbps: expected at most 3.98, rank_push_gbps"),
        ({"core_pull_gbps": 5.0}, "links.core_pull_gbps: expected at most 1.58, rank_pull_gbps"),
        ({"broadcast_gbps": ((1, 0.2), (32, 40.0))}, "core_push_gbps: expected at most 0.2, broadcast_gbps"),
        ({"product_gflops": 0}, "host.product_gflops: expected a positive number"),
    ],
)
def test_bad_values_are_errors(changes: dict, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        upmem_v1a().with_(**changes)


@pytest.mark.parametrize(
    ("part", "dtype", "change", "message"),
    [
        ("arithmetic", "int32", {"accumulate": -1.0}, r"arithmetic\.int32\.accumulate"),
        ("arithmetic", "float32", {"significant_bits": 2.5}, r"arithmetic\.float32\.significant_bits"),
        ("arithmetic", "complex64", {}, "arithmetic: unknown dtype 'complex64'"),
        ("functions", "float32", {"divide": 0.0}, r"functions\.float32\.divide"),
        ("functions", "int32", {}, "functions: expected floating-point dtypes of arithmetic, .* got 'int32'"),
    ],
)
def test_bad_costs_of_a_dtype_are_errors(part: str, dtype: str, change: dict, message: str) -> None:
    machine = upmem_v1a()
    costs = getattr(machine, part)
    entry = dataclasses.replace(costs.get(dtype, costs["float32"]), **change)
    with pytest.raises(ConfigurationError, match=message):
        dataclasses.replace(machine, **{part: {**costs, dtype: entry}})


def test_no_dtype_at_all_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="arithmetic: expected at least one dtype, got none"):
        dataclasses.replace(upmem_v1a(), arithmetic={}, functions={})


def test_machine_says_what_it_is_and_which_dtypes_it_has() -> None:
    import torch

    machine = Machine(preset("aim_like"))
    assert "estimated" in machine.describe()
    assert machine.refuse(torch.float32) is None
    assert "int64" in machine.refuse(torch.int64)
    assert "bfloat16" in machine.refuse(torch.bfloat16)
    with pytest.raises(ArgumentError, match="dtype must be one"):
        Machine(preset("aim_like"), dtype="float64")
