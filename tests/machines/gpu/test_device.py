"""GPUs as files, parts of them, and graphs in another order."""

import pytest
import torch

from onehop import ArgumentError, ConfigurationError, Graph
from onehop.machines import gpu


def test_the_papers_gpu():
    found = gpu.load("a100_80gb")
    assert (found.l2_bytes, found.sector_bytes, found.warps) == (40 * 2**20, 32, 108 * 64)
    assert found.floor_us(10**6) == pytest.approx(32e6 / 2039e3)


@pytest.mark.parametrize("name", gpu.presets())
def test_every_figure_of_a_file_has_a_source(name):
    from importlib import resources

    text = (resources.files("onehop.machines.gpu") / "devices" / f"{name}.toml").read_text()
    figures = [line for line in text.splitlines() if "=" in line and not line.startswith(("#", "name"))]
    assert len(figures) == 7
    assert all(";" in line or "NVIDIA" in line or "assumption" in line for line in figures)


def test_a_part_keeps_the_ratios():
    whole = gpu.load("h200")
    part = whole.part(0.125)
    assert (part.warps * 8, part.l2_bytes * 8, part.dram_gbps * 8) == (whole.warps, whole.l2_bytes, 4800.0)
    assert part.fp32_gflops * 8 == whole.fp32_gflops == 67000.0
    assert part.name == "H200 x 0.125"
    assert whole.part(1.0) is whole
    assert whole.part(1e-9).warps == 1


@pytest.mark.parametrize("share", [0.0, -1.0, 1.5, float("nan")])
def test_wrong_parts(share):
    with pytest.raises(ArgumentError, match="share: expected a number above 0, at most 1, got"):
        gpu.load("h200").part(share)


def test_wrong_files(tmp_path):
    with pytest.raises(
        ConfigurationError, match=r"gpu: expected one of a100_80gb, gtx_1080_ti, .*, or a TOML"
    ):
        gpu.load("a1000")
    path = tmp_path / "mine.toml"
    figures = (
        "sms = 4",
        "sm_warps = 8",
        "l2_bytes = 0",
        "l2_ways = 2",
        "sector_bytes = 32",
        "dram_gbps = 9.5",
    )
    good = "\n".join(('name = "mine"', *figures))
    path.write_text(good)
    assert gpu.load(path) == gpu.Gpu("mine", 4, 8, 0, 2, 32, 9.5)
    for old, new, sentence in (
        ("sms = 4", "sms = 0", "sms: expected an integer of at least 1, got 0"),
        ("sms = 4", "", "no sms; expected name, sms"),
        ("l2_ways", "ways", "unknown key ways"),
        (
            "_bytes = 32",
            "_bytes = 96",
            "sector_bytes: expected a divisor of 128, which a warp loads at least, got 96",
        ),
        ("sms = 4", "sms = ", "not TOML"),
    ):
        path.write_text(good.replace(old, new))
        with pytest.raises(ConfigurationError, match=sentence):
            gpu.load(path)


@pytest.mark.parametrize("order", gpu.ORDERS)
def test_orders_renumber_nodes_and_sort_columns(order):
    # A path 0-3-1-4-2 with a triangle at its end, both ways, edges in no order.
    pairs = torch.tensor([[0, 3, 1, 4, 3], [3, 1, 4, 2, 2]])
    edge_index = torch.cat([pairs, pairs.flip(0)], 1)[:, torch.tensor([3, 9, 0, 7, 5, 1, 8, 2, 6, 4])]
    found = gpu.in_order(Graph.from_edge_index(edge_index, num_nodes=6), order)
    rows = [found.col[found.rowptr[row] : found.rowptr[row + 1]].tolist() for row in range(6)]
    assert all(row == sorted(row) for row in rows)
    degrees = [len(row) for row in rows]
    assert sorted(degrees) == [0, 1, 2, 2, 2, 3]
    assert all(source in rows[target] for source in range(6) for target in rows[source])
    if order == "own":
        assert rows == [[3], [3, 4], [3, 4], [0, 1, 2], [1, 2], []]
    if order == "degree":
        assert degrees == [3, 2, 2, 2, 1, 0]


def test_orders_that_cannot_be():
    square = Graph.from_edge_index(torch.tensor([[0], [1]]), num_nodes=2)
    with pytest.raises(ArgumentError, match=r"order: expected one of own, random, .*, got 'metis'"):
        gpu.in_order(square, "metis")
    wide = Graph.from_edge_index(torch.tensor([[2], [1]]), size=(3, 2))
    with pytest.raises(ArgumentError, match="got 2 destinations and 3 sources"):
        gpu.in_order(wide, "own")
