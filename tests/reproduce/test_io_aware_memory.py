"""Memory of the IO-aware kernels' paper, tensor by tensor, and its times from a GPU's results."""

import json
from pathlib import Path
from typing import Any

import pytest

from onehop import ArgumentError
from onehop.bench.stamp import stamp
from onehop.reproduce import on_a_gpu
from onehop.reproduce.io_aware import memory, on_gpu
from tests.cli.running import onehop, written

SIZE = memory.Size(10, 100)


def test_bytes_of_gatv2_tensor_by_tensor() -> None:
    node_rows, graph = 10 * 2 * (4 * 64 * 4 + 4), 100 * 16
    assert memory.fused_bytes(SIZE) == node_rows + graph
    assert memory.dgl_bytes(SIZE) - memory.fused_bytes(SIZE) == 100 * (3 * 512 + 4 * 8)
    assert memory.dgl_bytes(SIZE) - memory.dgl_bytes(SIZE, edge_rows=2) == 100 * 512
    # Backward has the gradients of the four rows of each node as well.
    assert memory.fused_bytes(SIZE, node_rows=8) - memory.fused_bytes(SIZE) == 10 * 2 * 4 * 64 * 4
    wide = memory.fused_bytes(SIZE, heads=8, width=256)
    assert wide == 10 * 8 * (4 * 256 * 4 + 4) + graph


def test_bytes_of_transformers_and_minima() -> None:
    fused = 10 * 4 * 256 * 4 + 100 * 16
    assert memory.transformer_ratio(SIZE, 8, 256) == pytest.approx((fused + 100 * 8 * 16) / fused)
    assert memory.transformer_ratio(SIZE, 8, 256, 5) == pytest.approx((fused + 100 * 8 * 20) / fused)
    fused = 10 * 3 * 64 * 4 + 100 * 4
    # A masked output, and a byte for each of its numbers.
    assert memory.min_ratio(SIZE, 64) == pytest.approx((fused + 10 * (256 + 64)) / fused)
    assert memory.min_ratio(SIZE, 64, True) == pytest.approx((fused + 10 * (512 + 64)) / fused)


def test_headlines_are_over_the_papers_sweep() -> None:
    best, middle = memory.savings()
    cells = {
        (graph, heads, width)
        for graph, size in memory.GRAPHS.items()
        for heads in (2, 4, 8)
        for width in (32, 64, 128, 256)
        if memory.dgl_bytes(size, 3, heads, width) < 80e9
    }
    assert len(memory.GRAPHS) == 15
    assert 100 < len(cells) < 15 * 12
    ratios = [
        memory.dgl_bytes(memory.GRAPHS[graph], 3, heads, width)
        / memory.fused_bytes(memory.GRAPHS[graph], heads, width)
        for graph, heads, width in cells
    ]
    assert best.ours == best.high == max(ratios)
    assert middle.ours == middle.high == sorted(ratios)[len(ratios) // 2]
    assert (round(best.ours), round(middle.ours, 2)) == (129, 5.99)
    assert (best.verdict, middle.verdict) == ("differs", "agrees")
    assert best.low_by == "two rows for each edge"
    assert f"{len(cells)} cells" in best.note


def test_forward_backward_transformers_and_minima_have_rows() -> None:
    rows = memory.memory()
    assert [row.paper for row in rows] == [32.6, 28.6, 44.0, 32.0, 4.7, 3.5, 1.8, 1.5, 6.7, 1.4, 2.0]
    assert not any(row.headline for row in rows)
    size = memory.GRAPHS["tolokers-2"]
    backward = rows[1]
    fused = memory.fused_bytes(size, node_rows=8)
    assert backward.ours == memory.dgl_bytes(size, 3, node_rows=8) / fused
    assert backward.high == memory.dgl_bytes(size, 4, node_rows=8) / fused
    least, most = rows[-2:]
    assert least.ours < most.ours
    (chart,) = memory.charts()
    assert len(chart.groups) == 4


def peer(name: str, forward: float | None, both: float | None, absent: str | None = None) -> dict[str, Any]:
    medians = {"forward": forward, "forward_and_backward": both}
    times = {passes: seconds and {"median_s": seconds} for passes, seconds in medians.items()}
    return {"peer": name, **times, "absent": absent, "failed": None}


def case(operator: str, *peers: dict[str, Any], dtype: str = "float32", wrong: Any = ()) -> dict[str, Any]:
    return {"graph": "g", "operator": operator, "dtype": dtype, "wrong": list(wrong), "peers": list(peers)}


MEASURED = {
    "gpu": "A GPU",
    "stamp": {"date": "2026-01-02T03", "commit": "abc", "versions": {"onehop": "1", "dgl": "2"}},
    "cases": [
        case("gatv2", peer("onehop", 1.0, 2.0), peer("dgl", 3.0, 8.0)),
        case("gatv2", peer("onehop", 1.0, 2.0), peer("dgl", 2.0, 5.0)),
        case("gatv2", peer("onehop", 1.0, 1.0), peer("dgl", 1.9, 3.0)),
        # Not counted: another dtype, a wrong result, a peer without times.
        case("gatv2", peer("onehop", 1.0, 1.0), peer("dgl", 99.0, 99.0), dtype="bfloat16"),
        case("gatv2", peer("onehop", 1.0, 1.0), peer("dgl", 99.0, 99.0), wrong=["all"]),
        case("gatv2", peer("onehop", 1.0, 1.0), peer("dgl", None, None, "not here")),
        case("max", peer("onehop", 1.0, 2.0), peer("dgl", 3.0, 4.4)),
        case("sum", peer("onehop", 9.0, 9.0), peer("torch-csr-kept", 1.0, 1.0), peer("dgl", 1.5, 2.0)),
        case("attention", peer("onehop", 1.0, 1.0), peer("dgl", None, None, "no module dgl")),
    ],
}


def test_results_of_a_gpu_become_best_and_median() -> None:
    rows = {row.figure: row for row in on_gpu.headlines(MEASURED)}
    assert [row.paper for row in rows.values()] == [8.5, 2.0, 3.9, 1.6, 7.3, 10.0, 2.6, 8.0]
    assert all(row.headline for row in rows.values())
    best, middle = rows["GATv2 over DGL, best"], rows["GATv2 over DGL, median"]
    assert (best.ours, best.low, best.high) == (4.0, 3.0, 4.0)
    assert (middle.ours, middle.low, middle.high) == (3.0, 2.0, 3.0)
    assert best.low_by == "the forward pass alone"
    assert (best.verdict, middle.verdict) == ("differs", "agrees")
    for text in (
        "3 cases of gatv2 in float32",
        "on A GPU; the paper's GPU is an A100",
        "The run of 2026-01-02, of another commit and another version and another host than here",
        "(commit abc, onehop 1, DGL 2)",
    ):
        assert text in best.note
    # Kernels of max stand for min, and say so; cached products are torch's, kept.
    assert (rows["min over DGL, best"].ours, rows["min over DGL, best"].high) == (2.2, 3.0)
    assert "cases of max" in rows["min over DGL, median"].note
    assert rows["cached sparse products over DGL, best"].ours == 2.0
    fused = rows["Graph Transformer, fused over DGL, best"]
    assert (fused.ours, fused.verdict) == (None, "open")
    assert "no case of attention with DGL: no module dgl." in fused.note
    assert "no kernel for tensor cores" in rows["Graph Transformer, tensor cores over DGL, best"].note


def test_a_run_on_this_host_is_of_no_other() -> None:
    best = on_gpu.headlines({**MEASURED, "stamp": stamp()})[0]
    assert "another" not in best.note


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"cases": [{}]}', '{"cases": [{"operator": "sum"}]}'])
def test_files_that_are_no_results_are_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "gpu.json"
    file.write_text(text)
    with pytest.raises(ArgumentError, match=r"gpu\.json: expected results of make gpu"):
        on_a_gpu(file)


def test_the_command_shows_and_writes_them(tmp_path: Path) -> None:
    file = tmp_path / "gpu.json"
    file.write_text(json.dumps(MEASURED))
    found, output = written(tmp_path / "rows.json", "reproduce io-aware --gpu", file)
    assert len(found["rows"]) == 8
    assert "GATv2 over DGL" in output
    file.write_bytes(b"\xff\xfe\x00")
    assert onehop("reproduce io-aware --gpu", file).exit_code == 2
