"""Layer-by-layer inference where something is unusual: the model's names, its writes, the files around it."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from inference_inputs import NODES, SMALL, WIDTH
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.nn import GCN, GCNConv, GraphConv, SAGEConv

import onehop
from onehop import ArgumentError, FileFormatError, Graph
from onehop.errors import StorageError
from onehop.graph.stored import StoredGraph
from onehop.ops.streaming.matrix_file import MatrixFile
from onehop.streaming import layerwise, work_folder
from tests.processes import run_python


@pytest.fixture
def edge_index(generator: torch.Generator) -> Tensor:
    return torch.randint(0, NODES, (2, 1500), generator=generator)


class Own(nn.Module):
    """A forward, and what it refers to."""

    def __init__(self, forward: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.function = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.function(self, x, edge_index)


@pytest.mark.parametrize("name", ["result", "graph", "request", "out", "output", "x", "input"])
def test_layers_of_any_name(name, compared):
    """What is on the way lies in files that are named after the layers."""

    def forward(self: Any, x: Tensor, edge_index: Tensor) -> Tensor:
        return torch.relu(getattr(self, name)(x, edge_index))

    compared(Own(forward, **{name: GCNConv(WIDTH, 4)}).eval())


def _method(self: Any, x: Tensor, edge_index: Tensor) -> Any:
    h = self.conv(x, edge_index)
    h.relu_()
    return self.lin(h)


def _function(self: Any, x: Tensor, edge_index: Tensor) -> Any:
    h = self.conv(x, edge_index)
    F.relu(h, inplace=True)
    return self.lin(h)


def _module(self: Any, x: Tensor, edge_index: Tensor) -> Any:
    h = self.conv(x, edge_index)
    self.act(h)
    return self.lin(h)


def _by_another_name(self: Any, x: Tensor, edge_index: Tensor) -> Any:
    h = self.conv(x, edge_index)
    twice = h * 2
    dropped = self.same(F.dropout(h, training=self.training))
    return self.lin(F.relu(dropped, inplace=True)) + twice


@pytest.mark.parametrize("forward", [_method, _function, _module, _by_another_name])
def test_writes_to_what_others_read_are_refused(forward, infer):
    """As statements, whose results nobody takes, and of tensors that have two names."""
    parts = {"conv": SAGEConv(WIDTH, 8), "lin": nn.Linear(8, 8), "act": nn.ReLU(inplace=True)}
    model = Own(forward, **parts, same=nn.Identity()).eval()
    with pytest.raises(ArgumentError, match="changes its input in place, which others read"):
        infer(model)


def test_a_part_in_training_mode_is_refused(infer):
    model = GCN(WIDTH, 8, 2, 3, norm="batch_norm").eval()
    model.norms[0].module.train()
    with pytest.raises(ArgumentError, match=r"norms\.0\.module is in training mode; call model\.eval"):
        infer(model)


@pytest.mark.parametrize("reduce", ["mean", "sum"])
def test_sums_of_halves_are_as_wide_as_the_model(reduce, edge_index, infer, generator, tmp_path):
    """They would be rounded to halves on disk; those of "sum" have none."""
    halves = (9000 * torch.randn(NODES, WIDTH, generator=generator)).half()
    np.save(tmp_path / "x.npy", halves.numpy())
    conv = SAGEConv if reduce == "mean" else GraphConv
    model = Own(lambda self, x, e: self.conv(x, e), conv=conv(WIDTH, 5, aggr=reduce)).eval()
    found = np.load(infer(model))
    with torch.no_grad():
        exact = model(halves.float(), edge_index).numpy()
    assert np.abs(exact).max() > 1000
    np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-6 * np.abs(exact).max())


def _shifted(self: Any, x: Tensor, edge_index: Tensor) -> Any:
    h = self.first(x, edge_index) + self.shift + self.buffer
    return self.second(h.relu(), edge_index)


def _scaled(self: Any, x: Tensor, edge_index: Tensor) -> Any:
    return _shifted(self, x * torch.tensor(0.5), edge_index)


def _shifting(forward: Callable[..., Any] = _shifted) -> Own:
    torch.manual_seed(0)
    model = Own(forward, first=GCNConv(WIDTH, 8), second=GCNConv(8, 3), shift=torch.randn(8))
    model.register_buffer("buffer", torch.randn(8), persistent=False)
    return model.eval()


@pytest.mark.parametrize("name", ["shift", "buffer"])
def test_other_tensors_that_are_no_parameters_begin_anew(name, stopped, compared):
    model = _shifting()
    stopped(model)
    getattr(model, name).add_(1)
    compared(model)


def test_the_model_stays_as_it_was_and_its_run_goes_on(stopped, infer, monkeypatch):
    """torch.fx keeps tensors that a forward makes with the model, by a new name each time."""
    model = _shifting(_scaled)
    parts = set(vars(model))
    made: list[str] = []
    write = layerwise._write

    def noted(file: MatrixFile, *given: Any) -> None:
        made.append(file.path.name)
        write(file, *given)

    monkeypatch.setattr(layerwise, "_write", noted)
    stopped(model)
    assert set(vars(model)) == parts
    infer(model)
    assert len(made) == len(set(made))


def test_a_folder_in_the_place_of_the_result_is_told_first(infer, left, tmp_path):
    model = GCN(WIDTH, 8, 2, 3).eval()
    (tmp_path / "out").mkdir()
    with pytest.raises(ArgumentError, match=r"out: .* is a folder; give the name of a file"):
        infer(model, out="out")
    assert left() == ["graph", "out", "x.npy"]


def _infer(graph: StoredGraph, folder: Path) -> Path:
    return onehop.infer(GCN(WIDTH, 8, 2, 3).eval(), graph, folder / "x.npy", folder / "out", memory=SMALL)


def _hops(graph: StoredGraph, folder: Path) -> Path:
    return onehop.hops(graph, folder / "x.npy", 2, folder / "out", memory=SMALL)


WAYS = [pytest.param(_infer, "out.layers", id="infer"), pytest.param(_hops, "out.hops", id="hops")]


@pytest.mark.parametrize(("call", "work"), WAYS)
def test_files_of_others_are_left_alone(call, work, stored, x, tmp_path):
    (tmp_path / work).mkdir()
    (tmp_path / work / "thesis.txt").write_text("three years")
    with pytest.raises(ArgumentError, match=rf"out: .*{work} .* holds other files\. Move them"):
        call(stored, tmp_path)
    assert (tmp_path / work / "thesis.txt").read_text() == "three years"
    (tmp_path / work / "thesis.txt").unlink()
    call(stored, tmp_path)  # into what is empty, as a run leaves it that was killed at its very beginning
    assert not (tmp_path / work).exists()


@pytest.mark.parametrize(("call", "work"), WAYS)
def test_a_folder_that_is_half_removed_is_still_that_of_a_run(
    call, work, stored, x, left, tmp_path, stopping
):
    with stopping("onehop.streaming.work_folder.shutil.rmtree"):
        call(stored, tmp_path)
    assert (tmp_path / "out").exists()
    assert (tmp_path / work / work_folder.NOTE).exists()
    (tmp_path / "out").unlink()
    call(stored, tmp_path)
    assert left() == ["graph", "out", "x.npy"]


@pytest.mark.parametrize(("call", "work"), WAYS)
def test_a_graph_that_was_stored_again_is_told(call, work, stored, x, tmp_path):
    """Its numbers of edges are those of the one that was opened."""
    (tmp_path / "graph").rename(tmp_path / "earlier")
    Graph.from_edge_index(torch.zeros(2, 9, dtype=torch.int64), NODES).save(tmp_path / "graph")
    with pytest.raises(FileFormatError, match=r"was written to since it was opened\. Open it again"):
        call(stored, tmp_path)
    assert not (tmp_path / work).exists()


def test_a_block_that_cannot_be_written_leaves_nothing_and_ends_the_reading(
    stored, x, left, tmp_path, monkeypatch
):
    put, count = MatrixFile.put, 0

    def full(self: MatrixFile, *given: Any) -> None:
        nonlocal count
        count += 1
        if count == 3:
            raise StorageError("out: cannot write: No space left on device")
        put(self, *given)

    monkeypatch.setattr(MatrixFile, "put", full)
    monkeypatch.setattr(layerwise, "_MOST_ROWS", 4)
    with pytest.raises(StorageError, match="No space left") as told:
        _infer(stored, tmp_path)
    # While the error is held, with the frames that it came through.
    assert told.value.__traceback__ is not None
    assert not [each.name for each in threading.enumerate() if each.name.startswith("onehop-")]
    assert not list((tmp_path / "out.layers").glob("*.tmp"))
    monkeypatch.undo()
    _infer(stored, tmp_path)
    assert left() == ["graph", "out", "x.npy"]


PATCHED_FIRST = """
import onehop, torch
with onehop.patch():
    import test_layerwise_faults as faults
    from torch_geometric.nn import SAGEConv
    def forward(self, x, edge_index):
        return torch.nn.functional.linear(self.conv(x, edge_index), self.weight)
    weight = torch.nn.Parameter(torch.ones(3, 8))
    model = faults.Own(forward, conv=SAGEConv(faults.WIDTH, 8), weight=weight).eval()
    onehop.infer(model, onehop.Graph.open("graph"), "x.npy", "patched.npy")
onehop.infer(model, onehop.Graph.open("graph"), "x.npy", "plain.npy")
"""


def test_a_process_that_patches_first(stored, x, tmp_path):
    """What is listed as a function of rows is that of torch, not what the patch has put there."""
    here = Path(__file__)
    folders = os.pathsep.join([str(here.parent), str(here.parents[4]), os.environ.get("PYTHONPATH", "")])
    done = run_python(["-c", PATCHED_FIRST], cwd=tmp_path, env={**os.environ, "PYTHONPATH": folders})
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(tmp_path / "patched.npy"), np.load(tmp_path / "plain.npy"), rtol=1e-5)
