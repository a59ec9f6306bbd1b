"""Exported models: their programs run in a process that has torch and onehop, and no PyG."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric import nn as gnn
from torch_geometric.nn import models

import onehop
from tests.integrations.pyg.test_compile import has_ours
from tests.processes import run_anew

WIDTH = 8
# Numbers of nodes and edges.
SIZES = ((12, 40), (31, 77), (60, 400), (5, 0), (1, 0), (1, 3), (2, 3))
MODELS: dict[str, Callable[[], torch.nn.Module]] = {
    "GCN": lambda: models.GCN(WIDTH, WIDTH, num_layers=3),
    "GraphSAGE": lambda: models.GraphSAGE(WIDTH, WIDTH, num_layers=3),
    "GATv2": lambda: models.GAT(WIDTH, WIDTH, num_layers=3, heads=2, v2=True),
    "GIN": lambda: models.GIN(WIDTH, WIDTH, num_layers=3),
}
# Runs where PyG cannot be imported. It prints what the programs say of a node number out of range.
WITHOUT_PYG = """
import sys
sys.modules["torch_geometric"] = None
import torch
import onehop

folder, kind = sys.argv[1:]
for name in torch.load(f"{folder}/names"):
    file = f"{folder}/{name}.pt2"
    if kind == "program":
        run = torch.export.load(file).module()
    else:
        run = torch._inductor.aoti_load_package(file)
    for x, edges, expected in torch.load(f"{folder}/{name}.answers"):
        for mode in (torch.no_grad, torch.inference_mode):
            with mode():
                torch.testing.assert_close(run(x, edges.clone()), expected, rtol=1e-4, atol=1e-5)
    for wrong in (x.size(0), -1):
        try:
            run(x, torch.tensor([[wrong], [0]]))
        except Exception as error:
            print(name, type(error).__name__, error)
"""

TORCH = tuple(map(int, torch.__version__.split(".")[:2]))
needs_torch_2_9 = pytest.mark.skipif(TORCH < (2, 9), reason="torch 2.6 does not load programs that it saved")

pytestmark = pytest.mark.filterwarnings("ignore:.*treespec.*is deprecated:FutureWarning")


class Mixed(torch.nn.Module):
    """Layers of every kind of operator, and one module in two places."""

    def __init__(self) -> None:
        super().__init__()
        self.gcn, self.sage = gnn.GCNConv(WIDTH, WIDTH), gnn.SAGEConv(WIDTH, WIDTH)
        self.gat, self.gin = gnn.GATv2Conv(WIDTH, WIDTH), gnn.GINConv(torch.nn.Linear(WIDTH, WIDTH))
        self.first = self.second = torch.nn.ReLU()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.second(self.sage(self.first(self.gcn(x, edge_index)), edge_index))
        return self.gin(self.gat(x, edge_index), edge_index)


def made(build: Callable[[], torch.nn.Module]) -> torch.nn.Module:
    torch.manual_seed(0)
    return build().eval()


def requests() -> list[tuple[Tensor, Tensor]]:
    torch.manual_seed(1)
    return [(torch.randn(nodes, WIDTH), torch.randint(nodes, (2, edges))) for nodes, edges in SIZES]


@torch.no_grad()
def exported(model: torch.nn.Module) -> torch.export.ExportedProgram:
    sizes = {0: torch.export.Dim("nodes")}, {1: torch.export.Dim("edges")}
    with onehop.patch():
        return torch.export.export(model, requests()[0], dynamic_shapes=sizes, strict=False)


def operators(program: torch.export.ExportedProgram) -> list[str]:
    return [str(node.target) for node in program.graph.nodes if node.op == "call_function"]


@torch.no_grad()
def answered_without_pyg(
    folder: Path, chosen: dict[str, torch.nn.Module], save: Callable[[Any, str], object], kind: str
) -> str:
    """What a process without PyG prints that answers requests with saved programs, and compares answers."""
    for name, model in chosen.items():
        save(exported(model), str(folder / f"{name}.pt2"))
        torch.save([(*each, model(*each)) for each in requests()], folder / f"{name}.answers")
    torch.save(list(chosen), folder / "names")
    done = run_anew("-c", WITHOUT_PYG, folder, kind)
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_torch_2_9
def test_programs_run_without_pyg(tmp_path):
    chosen = {name: made(build) for name, build in {**MODELS, "Mixed": Mixed}.items()}
    lines = answered_without_pyg(tmp_path, chosen, torch.export.save, "program").splitlines()
    assert [line.split()[:3] for line in lines] == [
        [name, "IndexRangeError", "edge_index:"] for name in chosen for _ in range(2)
    ]


@needs_torch_2_9
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch compiles C++ with g++")
def test_a_package_of_aotinductor_runs_without_pyg(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    compile_ahead = torch._inductor.aoti_compile_and_package
    printed = answered_without_pyg(
        tmp_path,
        {"Mixed": made(Mixed)},
        lambda program, file: compile_ahead(program, package_path=file),
        "package",
    )
    # A package of torch 2.9 raises without the text.
    words = "IndexRangeError: edge_index: " if TORCH >= (2, 13) else "RuntimeError"
    assert printed.count(words) == 2


@pytest.mark.parametrize("name", MODELS)
def test_every_layer_of_a_model_is_exported_with_onehops_operators(name):
    found = operators(exported(made(MODELS[name])))
    assert sum(has_ours([each]) for each in found) == 3


class Twice(torch.nn.Module):
    """A layer between two places of one module, which torch.export then shows as objects of other classes."""

    def __init__(self, layer: torch.nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.before = self.after = torch.nn.ReLU()

    def forward(self, *operands: Tensor) -> Tensor:
        x, *others = operands
        return self.after(self.layer(self.before(x), *others))


LAYERS = {
    "GCN": lambda: gnn.GCNConv(WIDTH, 4),
    "SAGE": lambda: gnn.SAGEConv(WIDTH, 4),
    "GIN": lambda: gnn.GINConv(torch.nn.Linear(WIDTH, 4)),
    "GATv2, edge features": lambda: gnn.GATv2Conv(WIDTH, 4, heads=2, edge_dim=3),
}


@torch.no_grad()
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_a_model_in_which_a_module_has_two_places(name, strict):
    model, (x, edges) = made(lambda: Twice(LAYERS[name]())), requests()[1]
    operands = (x, edges, torch.randn(edges.size(1), 3)) if "edge features" in name else (x, edges)
    with onehop.patch():
        program = torch.export.export(model, operands, strict=strict)
    assert has_ours(operators(program))
    torch.testing.assert_close(program.module()(*operands), model(*operands))


@pytest.mark.parametrize("loops", [False, True])
def test_a_normalised_graph_of_32_bit_numbers(loops):
    edges = requests()[1][1]
    find = torch.ops.onehop.find_normalised_graph
    (_, found), (_, expected) = (find(each, 31, loops, True, "bfloat16") for each in (edges.int(), edges))
    torch.testing.assert_close(found, expected)


def test_no_operator_takes_a_dtype() -> None:
    """Packages of torch 2.9 pass another one on, in silence; those of 2.6 none."""
    ours = [each for each in torch._C._jit_get_all_schemas() if each.name.startswith("onehop::")]
    assert len(ours) > 20
    assert not [str(each) for each in ours if "ScalarType" in str(each)]
