"""The benchmark of every layer of PyG: that all are there, and what a line says."""

import json
import subprocess

import torch
from torch_geometric.nn import conv

import onehop
from benchmarks.layers import convs
from tests.processes import run_python

NODES, WIDTH = 40, 8


def test_every_layer_of_pyg_is_measured_or_has_a_reason():
    assert set(convs.CONVS) | set(convs.NOT_MEASURED) == set(conv.__all__)
    assert not set(convs.CONVS) & set(convs.NOT_MEASURED)


def test_every_layer_gives_pygs_results_and_a_gradient():
    edges = torch.randint(NODES, (2, 300), generator=torch.Generator().manual_seed(0))
    wrong = []
    for name, each in {**convs.CONVS, **convs.MORE}.items():
        on = convs.given(NODES, edges, WIDTH)
        layer = each.make(WIDTH, on)
        kinds = {type(module).__name__ for module in layer.modules()}
        assert name in kinds or name in convs.MORE, f"{name}: {kinds}"
        found = []
        for patched in (False, True):
            if patched:
                onehop.patch()
            torch.manual_seed(1)
            out = each.call(layer, on)
            found.append((out.detach(), *torch.autograd.grad(out.square().mean(), [on.x])))
            onehop.unpatch()
        if not all(torch.allclose(a, b, rtol=1e-3, atol=1e-4) for a, b in zip(*found, strict=True)):
            wrong.append(name)
    onehop.clear_cache()
    assert not wrong


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_python(["-m", "benchmarks.layers.bench_convs", *arguments])


def test_a_layer_is_printed_and_written(tmp_path):
    file = tmp_path / "convs.json"
    small = ("--nodes", "50", "--edges", "400", "--rounds", "1", "--threads", "1")
    done = run("--layers", "GINEConv", *small, "--json", str(file))
    assert done.returncode == 0, done.stderr
    written = json.loads(file.read_text())
    assert written["graph"] == {"nodes": 50, "edges": 400}
    (row,) = written["results"]
    assert (row["layer"], row["width"], row["wrong"]) == ("GINEConv", 64, False)
    assert row["ratio"]["median"] > 0
    assert set(row["peak_bytes"]) == {"pyg", "onehop"}
    assert "GINEConv" in done.stdout


def test_a_layer_that_cannot_be_measured_is_named():
    done = run("--layers", "GCNConv,XConv,Nothing")
    assert done.returncode == 1
    assert "XConv needs pyg-lib, or torch_cluster before PyG 2.8; Nothing is no layer of PyG" in done.stderr
