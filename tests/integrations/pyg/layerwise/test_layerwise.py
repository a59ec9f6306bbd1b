"""Layer-by-layer inference from disk to disk, against the model itself in memory."""

import gc
import os
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from inference_inputs import NODES, SMALL, WIDTH
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.nn import GCN, GCNConv, GraphConv, GraphSAGE, SAGEConv, TransformerConv

import onehop
from onehop import ArgumentError, FileFormatError, Graph
from onehop.errors import StorageError
from onehop.ops.streaming.lock import alone
from onehop.streaming import layerwise
from onehop.streaming.layerwise import row_blocks
from tests.processes import Stop, run_python


@pytest.fixture
def edge_index(generator: torch.Generator) -> Tensor:
    edges = torch.randint(0, NODES - 5, (2, 1500), generator=generator)
    edges[1, :300] = 11
    edges[:, :4] = torch.tensor([[3, 3, 4, 11], [3, 3, 4, 11]])
    return edges


class OneOfOnesOwn(nn.Module):
    """As users write it: layers of three kinds, one used by two, a skip connection, parameters of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = GCNConv(WIDTH, 16), SAGEConv(16, 16, aggr="max", normalize=True)
        self.third, self.norm = GraphConv(16, 16), nn.LayerNorm(16)
        self.scale = nn.Parameter(torch.randn(16))
        self.matrix = nn.Parameter(torch.randn(32, 5))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = F.dropout(F.elu(self.first(x, edge_index)), p=0.5, training=self.training)
        side = self.third(h, edge_index)
        h = self.norm(self.second(h, edge_index).relu() + h) * self.scale
        return F.log_softmax(torch.cat([h, side], dim=-1) @ self.matrix, dim=1)


class Plain(nn.Module):
    """Layers one after the other, with a function between them."""

    def __init__(self, *layers: nn.Module, between: Callable[[Tensor], Tensor] = torch.relu) -> None:
        super().__init__()
        self.layers, self.between = nn.ModuleList(layers), between

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for layer in self.layers:
            x = self.between(layer(x, edge_index))
        return x


class Shared(nn.Module):
    """Two layers that aggregate the same rows, which nothing needs afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.first = SAGEConv(WIDTH, 9, root_weight=False)
        self.left, self.right = (SAGEConv(9, 8, root_weight=False, aggr=aggr) for aggr in ("mean", "max"))
        self.last = GraphConv(8, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.first(x, edge_index).relu()
        h = (self.left(h, edge_index) + self.right(h, edge_index)).relu()
        return self.last(h, edge_index)


def _the_same(x: Tensor) -> Tensor:
    return x


MODELS: dict[str, Callable[[], nn.Module]] = {
    "gcn": lambda: GCN(WIDTH, 32, 3, 7),
    "gcn-norms": lambda: GCN(WIDTH, 16, 2, 7, norm="batch_norm", act="elu", dropout=0.5),
    "sage": lambda: GraphSAGE(WIDTH, 32, 3, 7),
    "sage-jk": lambda: GraphSAGE(WIDTH, 16, 3, 7, jk="cat", norm="layer_norm", norm_kwargs={"mode": "node"}),
    "sage-max": lambda: GraphSAGE(WIDTH, 16, 2, aggr="max", root_weight=False),
    "own": OneOfOnesOwn,
    "shared": Shared,
    "no-loops": lambda: Plain(GCNConv(WIDTH, 9, add_self_loops=False, bias=False), GCNConv(9, 4)),
    "no-norm": lambda: Plain(GCNConv(WIDTH, 9, normalize=False), GraphConv(9, 4, aggr="mean")),
    "no-function-between": lambda: Plain(
        *(
            SAGEConv(WIDTH, 9),
            GraphConv(9, 8),
            SAGEConv(8, 7, root_weight=False),
            GCNConv(7, 6),
            SAGEConv(6, 5),
        ),
        between=_the_same,
    ),
    "one-layer": lambda: SAGEConv(WIDTH, 4),
}


def in_memory(model: nn.Module, x: Tensor, edge_index: Tensor) -> np.ndarray:
    with torch.no_grad():
        result: np.ndarray = model(x, edge_index).numpy()
    return result


@pytest.mark.parametrize("memory", [SMALL, None], ids=["tiles", "at-once"])
@pytest.mark.parametrize("name", MODELS)
def test_the_same_as_in_memory(name, memory, compared, left):
    torch.manual_seed(0)
    model = Plain(MODELS[name]()) if name == "one-layer" else MODELS[name]()
    model.eval()
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm1d):
                module.running_mean.normal_()
                module.running_var.uniform_(0.5, 2)
    compared(model, memory=memory)
    assert left() == ["graph", "out.npy", "x.npy"]


def test_doubles_and_features_of_16_bits(compared, x, tmp_path):
    torch.manual_seed(0)
    model = GCN(WIDTH, 8, 2, 3).eval()
    np.save(tmp_path / "h.npy", x.half().numpy())
    compared(model, x.half().float(), given="h.npy", out="h.out")
    np.save(tmp_path / "d.npy", x.double().numpy())
    compared(model.double(), x.double(), 1e-10, given="d.npy", out="d.out", memory=90_000)


@pytest.mark.parametrize("name", ["gcn", "own"])
def test_the_same_under_the_patch(name, compared, x, edge_index):
    torch.manual_seed(0)
    model = MODELS[name]().eval()
    with onehop.patch():
        in_memory(model, x, edge_index)  # what the patch keeps with a layer
        compared(model)


@pytest.mark.parametrize("name", ["gcn", "sage", "own", "shared", "no-function-between"])
def test_an_interrupted_run_goes_on_with_the_step_it_was_at(name, infer, compared, tmp_path, monkeypatch):
    torch.manual_seed(0)
    model, done = MODELS[name]().eval(), []
    once = layerwise._Inference._once

    def noted(self: Any, path: Path, make: Any) -> None:
        def counted(path: Path) -> None:
            make(path)
            done.append(path.name)
            if len(done) % 2:
                raise Stop

        once(self, path, counted)

    monkeypatch.setattr(layerwise._Inference, "_once", noted)
    calls = 0
    while not (tmp_path / "out.npy").exists():
        calls += 1
        try:
            infer(model)
        except Stop:
            assert not (tmp_path / "out.npy").exists()
        # Of each layer at most what is aggregated and what it is aggregated to, and those of one before.
        assert len(list((tmp_path / "out.npy.layers").glob("*.npy"))) <= 5
    # What was stopped before it was noted is done once more, and nothing else.
    assert calls > 2
    assert all(done.count(each) <= 2 for each in done)
    assert len(done) - len(set(done)) == calls - 1
    monkeypatch.undo()
    interrupted = np.load(tmp_path / "out.npy")
    compared(model, out="again.npy")
    np.testing.assert_array_equal(interrupted, np.load(tmp_path / "again.npy"))


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.convs[0].bias.data.add_(1),
        lambda model: setattr(model.convs[0], "add_self_loops", False),
    ],
    ids=["parameter", "setting"],
)
def test_another_model_is_begun_anew(change, stopped, compared):
    torch.manual_seed(0)
    model = GCN(WIDTH, 8, 2, 3).eval()
    stopped(model)
    change(model)
    compared(model)


def test_a_run_that_ended_before_it_had_cleaned_up(stopped, compared, tmp_path):
    torch.manual_seed(0)
    model = GCN(WIDTH, 8, 2, 3).eval()
    stopped(model, "onehop.streaming.work_folder.shutil.rmtree")
    written = np.load(tmp_path / "out.npy")
    compared(model)
    np.testing.assert_array_equal(written, np.load(tmp_path / "out.npy"))
    assert not (tmp_path / "out.npy.layers").exists()


MEASURED = """
import ctypes, threading, torch, onehop
from pathlib import Path
from torch_geometric.nn import GCN, GraphSAGE

def kept(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name + ":"))

assert ctypes.CDLL(None).mallopt(-8, 1)  # M_ARENA_MAX: one heap for all threads
torch.set_num_threads(1)
torch.manual_seed(0)
model = {model}.eval()
# Threads and libraries that come with the first call.
onehop.infer({model}.eval(), onehop.Graph.open("small"), "small.npy", "first.npy", memory=1 << 20)
onehop.native.let_go()
Path("/proc/self/clear_refs").write_text("5")  # the peak is what there is now: proc(5)
before = kept("VmRSS")
onehop.infer(model, onehop.Graph.open("graph"), "x.npy", "out.npy", memory={memory})
print(kept("VmHWM") - before)
"""


@pytest.mark.parametrize(("model", "order"), [("GCN(96, 64, 2, 7)", "F"), ("GraphSAGE(96, 64, 2, 7)", "C")])
def test_no_more_memory_than_it_is_given(model, order, generator, tmp_path):
    """Pages in memory, at their most: every tensor between two layers has three times as many bytes."""
    nodes, memory = 300_000, 24 << 20
    assert 64 * 4 * nodes > 3 * memory
    edge_index = torch.randint(0, nodes, (2, 2 * nodes), generator=generator)
    values = torch.randn(nodes, 96, generator=generator).numpy()
    Graph.from_edge_index(edge_index, nodes).save(tmp_path / "graph")
    np.save(tmp_path / "x.npy", np.asarray(values, order=order))
    Graph.from_edge_index(edge_index[:, :0], 5).save(tmp_path / "small")
    np.save(tmp_path / "small.npy", np.asarray(values[:5], order=order))
    done = run_python(["-c", MEASURED.format(model=model, memory=memory)], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    taken = int(done.stdout)
    # It makes use of what it is given. What the C library keeps of tensors below 1 MiB, which the pool leaves
    # to it, comes on top: 3 to 13 MiB as measured, more on a busy machine, with stacks and pages of libraries
    # that are used for the first time. Blocks of twice as many rows take 25 MiB more.
    assert memory // 2 < taken < memory + (20 << 20)
    torch.manual_seed(0)
    theirs: nn.Module = eval(model, {"GCN": GCN, "GraphSAGE": GraphSAGE})
    exact = in_memory(theirs.eval(), torch.from_numpy(values), edge_index)
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), exact, rtol=1e-4, atol=1e-5)


def test_rows_of_a_block_go_when_the_next_one_comes(infer, monkeypatch):
    """Not only when the collector of circles comes by."""
    seen: list[weakref.ref[Tensor]] = []
    run = layerwise.run

    def noted(node: Any, model: nn.Module, value: Any) -> Tensor:
        # Of the trial of one row, and of this block.
        assert sum(each() is not None for each in seen) < 30
        found = run(node, model, value)
        if node.op != "get_attr":  # parameters stay
            seen.append(weakref.ref(found))
        return found

    monkeypatch.setattr(layerwise, "run", noted)
    monkeypatch.setattr(layerwise, "_MOST_ROWS", 4)
    gc.disable()
    try:
        infer(OneOfOnesOwn().eval())
    finally:
        gc.enable()
    assert len(seen) > 100


def test_too_little_memory_is_told_before_anything_is_made(infer, left):
    model = GCN(WIDTH, 8, 2, 3).eval()
    with pytest.raises(ArgumentError, match=r"do not hold one column of 150 sources; \d+ are needed") as told:
        infer(model, memory=1000)
    assert left() == ["graph", "x.npy"]
    needed = int(str(told.value).split("; ")[1].split()[0])
    infer(model, memory=needed)
    with pytest.raises(ArgumentError, match=f"{needed} are needed"):
        infer(model, out="other.npy", memory=needed - 1)


def test_files_written_to_during_a_run_are_told(infer, left, tmp_path, monkeypatch):
    result = layerwise._Inference.result

    def changed(*given: Any) -> Path:
        made = result(*given)
        os.utime(tmp_path / "x.npy", ns=(1, 1))
        return made

    monkeypatch.setattr(layerwise._Inference, "result", changed)
    with pytest.raises(FileFormatError, match="was written to while it was read"):
        infer(GCN(WIDTH, 8, 2, 3).eval(), memory=None)
    assert left() == ["graph", "x.npy"]


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_file_that_is_cut_off_while_it_is_read(order, infer, x, tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", np.asarray(x.numpy(), order=order))

    def cut(*given: Any) -> Any:
        os.truncate(tmp_path / "x.npy", 1000)
        return row_blocks(*given)

    monkeypatch.setattr(layerwise, "row_blocks", cut)
    with pytest.raises(FileFormatError, match=r"x\.npy: truncated at byte"):
        infer(GCN(WIDTH, 8, 2, 3).eval(), memory=None)
    assert not (tmp_path / "out.npy").exists()


class Mixing(nn.Module):
    """A layer, and a function after it."""

    def __init__(self, function: Callable[..., Tensor], takes_edges: bool = False) -> None:
        super().__init__()
        self.conv, self.function, self.takes_edges = SAGEConv(WIDTH, 8), function, takes_edges
        self.each_node = nn.Parameter(torch.randn(NODES, 8))
        self.mixed = nn.Parameter(torch.randn(NODES, NODES))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.conv(x, edge_index)
        return self.function(self, h, edge_index)


REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "layer": (
        lambda: Plain(TransformerConv(WIDTH, 4)),
        "layers.0: TransformerConv is not known here; GCNConv, SAGE",
    ),
    "mean": (lambda: Mixing(lambda _, h, e: h - h.mean(0)), "mean.* is no function of each row on its own"),
    "softmax": (lambda: Mixing(lambda _, h, e: h.softmax(0)), "softmax.* is no function of each row"),
    "cat": (lambda: Mixing(lambda _, h, e: torch.cat([h, h])), "cat.* is no function of each row"),
    "node": (lambda: Mixing(lambda m, h, e: h + m.each_node), "add.* is no function of each row"),
    "matrix": (lambda: Mixing(lambda m, h, e: m.mixed @ h), "matmul.* is no function of each row"),
    "gram": (lambda: Mixing(lambda m, h, e: h @ h), "matmul.* is no function of each row"),
    "edges": (lambda: Mixing(lambda m, h, e: h * e), "mul.* is no function of each row"),
    "weight": (lambda: Mixing(lambda m, h, e: m.conv(h, e, (NODES, NODES))), "conv takes more than features"),
    "branch": (lambda: Mixing(lambda m, h, e: h if h.sum() > 0 else -h), "torch.fx cannot trace it"),
    "batch": (
        lambda: Plain(SAGEConv(WIDTH, 4), between=nn.BatchNorm1d(4, track_running_stats=False)),
        "between.* is no function of each row",
    ),
    "two": (lambda: Mixing(lambda m, h, e: (h, h)), "does not return one tensor"),
    "improved": (lambda: Plain(GCNConv(WIDTH, 4, improved=True)), "normalisation is the improved one"),
    "project": (lambda: Plain(SAGEConv(WIDTH, 4, project=True)), "it projects its input"),
    "lstm": (lambda: Plain(SAGEConv(WIDTH, 4, aggr="lstm")), "it aggregates by 'lstm', and here are sum"),
    "flow": (lambda: Plain(SAGEConv(WIDTH, 4, flow="target_to_source")), "flow from target to source"),
    "in-place": (
        lambda: Mixing(lambda _, h, e: F.relu(h, inplace=True) + h),
        "relu changes its input in place, which others read",
    ),
    "arguments": (lambda: nn.Linear(WIDTH, 4), "its forward takes other arguments"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_models_that_cannot_be_divided(name, infer, left):
    make, message = REFUSED[name]
    with pytest.raises(ArgumentError, match=r"model: it cannot be divided into layers: .*" + message):
        infer(make().eval(), memory=None)
    assert left() == ["graph", "x.npy"]


def test_a_layer_with_hooks_is_refused(infer):
    model = Plain(SAGEConv(WIDTH, 4)).eval()
    model.layers[0].register_forward_hook(lambda *_: None)
    with pytest.raises(ArgumentError, match="it has hooks"):
        infer(model)


def test_bad_arguments(stored, x, tmp_path):
    model = GCN(WIDTH, 8, 2, 3)
    out = tmp_path / "out.npy"
    with pytest.raises(ArgumentError, match=r"call model\.eval\(\) first"):
        onehop.infer(model, stored, tmp_path / "x.npy", out)
    model.eval()
    with pytest.raises(ArgumentError, match=r"graph: expected a graph on disk .* got Graph"):
        onehop.infer(model, stored.load(), tmp_path / "x.npy", out)
    np.save(tmp_path / "long.npy", np.ones((NODES + 1, WIDTH), np.float32))
    with pytest.raises(ArgumentError, match=r"a row for each of the 150 nodes, and .* has 151"):
        onehop.infer(model, stored, tmp_path / "long.npy", out)
    np.save(tmp_path / "d.npy", np.ones((NODES, WIDTH)))
    with pytest.raises(ArgumentError, match=r"x: the model has parameters of torch.float32, and .* float64"):
        onehop.infer(model, stored, tmp_path / "d.npy", out)
    with alone(out), pytest.raises(StorageError, match="is being written by another run"):
        onehop.infer(model, stored, tmp_path / "x.npy", out)
