"""Layers and models of packages that are built on PyG, in the sizes of their fields.

Each package is imported when one of its cases is made, because none is needed for the others.
"""

import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn import Linear, Module
from torch_geometric import nn
from torch_geometric.data import Batch, Data

from onehop.datasets import chung_lu

HEADS = 4
# The road sensors of METR-LA and the edges of their graph, a batch of windows, and the steps of a window.
SENSORS, ROADS, BATCH, STEPS, SIGNAL_WIDTH = 207, 1_650, 16, 12, 32
# A mesh of the weather, and one of a flow around a cylinder.
NODES, MESH_EDGES, MESH_WIDTH = 20_000, 120_000, 128
FLOW_NODES, FLOW_EDGES, FLOW_BLOCKS = 2_000, 12_000, 15
# Molecules of a batch, their atoms, and the neighbours of an atom.
MOLECULES, ATOMS, NEIGHBOURS, ATOM_WIDTH, ATOM_LAYERS = 64, 20, 12, 128, 6
IRREPS = "64x0e + 64x1o"
# Names of timm that PhysicsNeMo's vision models import.
VISION = {
    "timm": (),
    "timm.layers": ("to_2tuple", "RmsNorm"),
    "timm.layers.attention": ("Attention",),
    "timm.models": (),
    "timm.models.swin_transformer": ("SwinTransformerStage",),
}


@dataclass(frozen=True, slots=True)
class Case:
    """A layer or a model with its operands.

    Attributes:
        module: The layer or model.
        operands: Positional operands of its ``forward``; floating-point ones need gradients.
    """

    module: Module
    operands: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Maker:
    """How a case is made.

    Attributes:
        package: The package's name in the Python Package Index.
        size: What is drawn, for people.
        make: Makes the case.
    """

    package: str
    size: str
    make: Callable[[], Case]


def _signals() -> tuple[Tensor, Tensor, Tensor]:
    """Signals [16, 12, 207, 32] on one graph, its edges, and a weight for each."""
    edges = torch.randint(SENSORS, (2, ROADS))
    return torch.randn(BATCH, STEPS, SENSORS, SIGNAL_WIDTH), edges, torch.rand(ROADS)


def _on_signals(make: Callable[[], Module], attributes: int = 0) -> Maker:
    """A layer of PyG's own, with ``node_dim=-2``, without weights of edges."""

    def made() -> Case:
        x, edges, _ = _signals()
        given = (torch.randn(ROADS, attributes),) if attributes else ()
        return Case(make(), (x, edges, *given))

    return Maker("torch-geometric", f"[{BATCH}, {STEPS}, {SENSORS}, {SIGNAL_WIDTH}]", made)


def _spatiotemporal(name: str, *arguments: Any, weighted: bool = True, **options: Any) -> Maker:
    """A layer of torch-spatiotemporal."""

    def make() -> Case:
        from tsl.nn.layers import graph_convs

        x, edges, weight = _signals()
        operands = (x, edges, weight) if weighted else (x, edges)
        return Case(getattr(graph_convs, name)(*arguments, **options), operands)

    return Maker("torch-spatiotemporal", f"[{BATCH}, {STEPS}, {SENSORS}, {SIGNAL_WIDTH}]", make)


def _graph_attention() -> Case:
    from tsl.nn.layers.graph_convs import MultiHeadGraphAttention

    x, edges, _ = _signals()
    return Case(MultiHeadGraphAttention(SIGNAL_WIDTH, HEADS), (x, x.clone(), x.clone(), edges))


def _forecaster(name: str, **options: Any) -> Maker:
    """A model of torch-spatiotemporal: twelve steps from twelve, one number a sensor."""

    def make() -> Case:
        from tsl.nn import models

        _, edges, weight = _signals()
        model = getattr(models, name)(input_size=1, output_size=1, horizon=STEPS, **options)
        return Case(model, (torch.randn(BATCH, STEPS, SENSORS, 1), edges, weight))

    return Maker("torch-spatiotemporal", f"[{BATCH}, {STEPS}, {SENSORS}, 1]", make)


def _on_edges(
    package: str,
    module: str,
    name: str,
    sizes: tuple[int, int, int],
    *arguments: Any,
    sets: int = 1,
    inputs: int = 1,
) -> Maker:
    """A layer over random graphs with hubs.

    Args:
        package: As of the maker.
        module: The module that has the layer.
        name: Its class.
        sizes: Nodes, edges, and columns.
        *arguments: What the layer is made with after its columns.
        sets: Sets of edges; one alone has weights.
        inputs: Features: a real and an imaginary part, which go without weights.
    """
    nodes, edges, width = sizes

    def make() -> Case:
        layer = getattr(importlib.import_module(module), name)(width, width, *arguments)
        xs = [torch.randn(nodes, width) for _ in range(inputs)]
        of_sets = [chung_lu(nodes, edges, seed=seed) for seed in range(sets)]
        weight = (torch.rand(edges),) if sets == inputs == 1 else ()
        return Case(layer, (*xs, *of_sets, *weight))

    return Maker(
        package, f"{nodes:,} nodes, {'' if sets == 1 else f'{sets} x '}{edges:,} edges, {width}", make
    )


def _outliers() -> Case:
    from pygod.nn.conv import GNAConv

    return Case(GNAConv(64, 64), (torch.randn(20_000, 64), chung_lu(20_000, 160_000)))


def _weather_block() -> Case:
    from anemoi.models.layers.conv import GraphConv
    from anemoi.models.layers.utils import load_layer_kernels

    layer = GraphConv(MESH_WIDTH, MESH_WIDTH, layer_kernels=load_layer_kernels({}))
    edges = torch.randint(NODES, (2, MESH_EDGES))
    return Case(layer, (torch.randn(NODES, MESH_WIDTH), torch.randn(MESH_EDGES, MESH_WIDTH), edges))


def _weather_attention() -> Case:
    from anemoi.models.layers.conv import GraphTransformerConv

    shape = (HEADS, MESH_WIDTH // HEADS)
    query, key, value = (torch.randn(NODES, *shape) for _ in range(3))
    edges = torch.randint(NODES, (2, MESH_EDGES))
    layer = GraphTransformerConv(shape[1])
    return Case(layer, (query, key, value, torch.randn(MESH_EDGES, *shape), edges))


def _mesh_model() -> Case:
    """PhysicsNeMo's MeshGraphNet: blocks of an MLP over the edges, a sum, and an MLP over the nodes.

    The package imports timm, whose torchvision the index has for CUDA alone. MeshGraphNet uses neither.
    """
    for name, members in VISION.items():
        sys.modules[name] = ModuleType(name)
        for member in members:
            setattr(sys.modules[name], member, Module)
    from physicsnemo.models.meshgraphnet import MeshGraphNet

    model = MeshGraphNet(6, 3, 3, FLOW_BLOCKS, hidden_dim_processor=MESH_WIDTH)
    graph = Data(edge_index=torch.randint(FLOW_NODES, (2, FLOW_EDGES)), num_nodes=FLOW_NODES)
    return Case(model, (torch.randn(FLOW_NODES, 6), torch.randn(FLOW_EDGES, 3), graph))


def _molecules(count: int) -> Data:
    """Molecules whose atoms have neighbours at random, one graph."""
    atoms, edges = torch.arange(ATOMS).repeat_interleave(NEIGHBOURS), ATOMS * NEIGHBOURS
    return Batch.from_data_list(
        [
            Data(
                x=torch.randn(ATOMS, 5),
                pos=3 * torch.randn(ATOMS, 3),
                edge_index=torch.stack([(atoms + torch.randint(1, ATOMS, (edges,))) % ATOMS, atoms]),
                edge_attr=torch.rand(edges, 1),
            )
            for _ in range(count)
        ]
    )


def _materials(kind: str, **options: Any) -> Maker:
    """A model of HydraGNN: layers of one kind, a mean over each molecule, and one number for it."""

    def make() -> Case:
        from hydragnn.models.create import create_model

        shared = {
            "num_sharedlayers": 2,
            "dim_sharedlayers": 50,
            "num_headlayers": 2,
            "dim_headlayers": [50, 25],
        }
        sizes = {"input_dim": 5, "hidden_dim": ATOM_WIDTH, "output_dim": [1], "output_type": ["graph"]}
        sizes |= {"num_conv_layers": ATOM_LAYERS, "output_heads": {"graph": shared}, "edge_dim": 1}
        learning = {"activation_function": "relu", "loss_function_type": "mse", "task_weights": [1.0]}
        return Case(
            create_model(kind, **sizes, **learning, use_gpu=False, **options), (_molecules(MOLECULES),)
        )

    size = f"{MOLECULES} x {ATOMS} atoms, {NEIGHBOURS} neighbours, {ATOM_WIDTH}"
    return Maker("hydragnn", size, make)


def _potential() -> Case:
    """MACE's energies and forces, as they are learned: gradients of gradients."""
    import numpy as np
    from mace.modules import MACE, RealAgnosticResidualInteractionBlock, gate_dict
    from mace.modules.models import o3

    block = RealAgnosticResidualInteractionBlock
    model = MACE(
        r_max=5.0,
        num_bessel=8,
        num_polynomial_cutoff=5,
        max_ell=3,
        interaction_cls=block,
        interaction_cls_first=block,
        num_interactions=2,
        num_elements=5,
        hidden_irreps=o3.Irreps(IRREPS),
        MLP_irreps=o3.Irreps("16x0e"),
        atomic_energies=np.zeros(5),
        avg_num_neighbors=NEIGHBOURS,
        atomic_numbers=[1, 6, 7, 8, 9],
        correlation=3,
        gate=gate_dict["silu"],
    )
    batch = _molecules(MOLECULES // 4)
    elements = torch.nn.functional.one_hot(torch.randint(5, (batch.num_nodes,)), 5).float()
    nowhere = torch.zeros(batch.num_edges, 3)
    data = {"positions": batch.pos, "edge_index": batch.edge_index, "node_attrs": elements, "shifts": nowhere}
    data |= {"unit_shifts": nowhere, "cell": torch.zeros(3 * batch.num_graphs, 3), "batch": batch.batch}
    return Case(model, ({**data, "ptr": batch.ptr, "head": torch.zeros(batch.num_graphs).long()}, True))


_temporal = partial(_on_edges, "torch-geometric-temporal", "torch_geometric_temporal.nn.recurrent")
_signed, _directed = (
    partial(_on_edges, "torch-geometric-signed-directed", f"torch_geometric_signed_directed.nn.{kind}")
    for kind in ("signed", "directed")
)
_MESH = f"{NODES:,} nodes, {MESH_EDGES:,} edges, {MESH_WIDTH}"

CASES: Mapping[str, Maker] = {
    "GCNConv on signals": _on_signals(lambda: nn.GCNConv(SIGNAL_WIDTH, SIGNAL_WIDTH, node_dim=-2)),
    "SAGEConv by max on signals": _on_signals(
        lambda: nn.SAGEConv(SIGNAL_WIDTH, SIGNAL_WIDTH, aggr="max", node_dim=-2)
    ),
    "GINEConv on signals": _on_signals(
        lambda: nn.GINEConv(Linear(SIGNAL_WIDTH, SIGNAL_WIDTH), node_dim=-2), SIGNAL_WIDTH
    ),
    "DiffConv": _spatiotemporal("DiffConv", SIGNAL_WIDTH, SIGNAL_WIDTH, 2),
    "GraphConv": _spatiotemporal("GraphConv", SIGNAL_WIDTH, SIGNAL_WIDTH),
    "GATConv": _spatiotemporal("GATConv", SIGNAL_WIDTH, SIGNAL_WIDTH // HEADS, heads=HEADS, weighted=False),
    "MultiHeadGraphAttention": Maker(
        "torch-spatiotemporal", f"[{BATCH}, {STEPS}, {SENSORS}, {SIGNAL_WIDTH}]", _graph_attention
    ),
    "GraphWaveNetModel": _forecaster("GraphWaveNetModel", n_nodes=SENSORS, dropout=0.0),
    "DCRNNModel": _forecaster("DCRNNModel"),
    "GConvGRU": _temporal("GConvGRU", (NODES, 200_000, 32), 2),
    "GConvLSTM": _temporal("GConvLSTM", (NODES, 200_000, 32), 2),
    "TGCN": _temporal("TGCN", (NODES, 200_000, 32)),
    # It makes a dense matrix of the graph.
    "DCRNN": _temporal("DCRNN", (NODES // 4, 50_000, 32), 2),
    "SGCNConv": _signed("SGCNConv", (10_000, 80_000, 32), True, sets=2),
    "SNEAConv": _signed("SNEAConv", (10_000, 80_000, 32), True, sets=2),
    "DiGCNConv": _directed("DiGCNConv", (NODES, 160_000, 64)),
    "MagNetConv": _directed("MagNetConv", (NODES, 160_000, 32), 2, 0.25, False, inputs=2),
    "GNAConv": Maker("pygod", "20,000 nodes, 160,000 edges, 64", _outliers),
    "Anemoi's GraphConv": Maker("anemoi-models", _MESH, _weather_block),
    "Anemoi's GraphTransformerConv": Maker("anemoi-models", _MESH, _weather_attention),
    "MeshGraphNet": Maker(
        "nvidia-physicsnemo",
        f"{FLOW_NODES:,} nodes, {FLOW_EDGES:,} edges, {MESH_WIDTH}, {FLOW_BLOCKS} blocks",
        _mesh_model,
    ),
    "PNA of HydraGNN": _materials("PNA", pna_deg=[0] * NEIGHBOURS + [MOLECULES * ATOMS]),
    "EGNN of HydraGNN": _materials("EGNN"),
    "MACE": Maker(
        "mace-torch",
        f"{MOLECULES // 4} x {ATOMS} atoms, {NEIGHBOURS} neighbours, {IRREPS}",
        _potential,
    ),
}
"""By name, as the page shows them."""


def made(name: str) -> Case:
    """A case with drawn operands, of which those that can have gradients have them.

    Raises:
        ImportError: Its package is not installed.
    """
    torch.manual_seed(0)
    case = CASES[name].make()
    for each in case.operands:
        # Weights of edges stay constants, as most programs have them.
        if isinstance(each, Tensor) and each.is_floating_point() and each.dim() > 1:
            each.requires_grad_()
    return case


def results(out: Any) -> list[Tensor]:
    """The floating-point tensors of a result, complex ones as real ones."""
    found = out.values() if isinstance(out, Mapping) else out if isinstance(out, tuple | list) else (out,)
    tensors = [each for each in found if isinstance(each, Tensor)]
    return [torch.view_as_real(each) if each.is_complex() else each for each in tensors]


def one_pass(case: Case) -> Callable[[], list[Tensor]]:
    """A forward and backward pass; it returns results, gradients of operands, and those of parameters.

    Gradients of parameters are one vector, because some are 0 but for rounding.
    """
    operands = [each for each in case.operands if isinstance(each, Tensor) and each.requires_grad]
    learned = [*operands, *(each for each in case.module.parameters() if each.requires_grad)]

    def once() -> list[Tensor]:
        torch.manual_seed(1)  # of dropout
        outs = results(case.module(*case.operands))
        loss = sum((each.square().mean() for each in outs), torch.zeros(()))
        found = torch.autograd.grad(loss, learned, allow_unused=True)
        of_operands, of_parameters = found[: len(operands)], found[len(operands) :]
        given = [each for each in of_operands if each is not None]
        vector = [each.flatten() for each in of_parameters if each is not None]
        return [*(each.detach() for each in outs), *given, *([torch.cat(vector)] if vector else [])]

    return once
