"""A program's things while it runs: models, graphs, features, and what came out so far."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.nn import Sequential

import onehop
from tests.differential.layers import KINDS, width_after
from tests.differential.program import Graph, Layer, Model, Program
from tests.differential.tensors import Edges, Nodes, make_edges, make_nodes

_MOST_OUTPUTS = 6


class Stack(torch.nn.Module):
    """Layers, one after another, on the same edges."""

    def __init__(self, layers: list[torch.nn.Module], takes: list[str], between: str, dropout: float) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(layers)
        self.takes = takes
        self.between = between
        self.dropout = dropout

    def forward(self, x: Any, edges: dict[str, Any], **more: Any) -> Any:
        first = x[0] if isinstance(x, tuple) else x
        for number, (layer, takes) in enumerate(zip(self.layers, self.takes, strict=True)):
            if number:
                x = self._between(x[0] if isinstance(x, tuple) else x)
            x = _apply(layer, takes, x, first, edges, more)
        return x

    def _between(self, x: Tensor) -> Tensor:
        if self.between == "relu":
            x = F.relu(x)
        elif self.between == "relu in place":
            x = F.relu(x, inplace=True)
        elif self.between == "elu":
            x = F.elu(x)
        elif self.between == "plus one":
            x = x + 1
        return F.dropout(x, self.dropout, self.training)


def _apply(
    layer: torch.nn.Module, takes: str, x: Any, first: Any, edges: dict[str, Any], more: dict[str, Any]
) -> Any:
    index = edges["index"]
    if takes == "weight":
        return layer(x, index, edge_weight=edges["weight"], **more)
    if takes == "weight alone":
        return layer(x, index, edges["weight"], **more)
    if takes == "attr":
        return layer(x, index, edge_attr=edges["attr"], **more)
    if takes == "type":
        return layer(x, index, edges["type"], **more)
    if takes == "type and attr":
        return layer(x, index, edges["type"], edge_attr=edges["attr"], **more)
    if takes == "first":
        return layer(x, first, index, edges["weight"], **more)
    return layer(x, index, **more)


@dataclass
class World:
    """What a running program has."""

    program: Program
    handle: "onehop.integrations.patch.Patch | None"  # the patch; None in the run without it
    models: list[torch.nn.Module] = field(default_factory=list)
    graphs: list[Edges] = field(default_factory=list)
    nodes: list[Nodes] = field(default_factory=list)
    # What came out, the newest last; each with its version at that time.
    outputs: list[tuple[Tensor, int]] = field(default_factory=list)
    optimisers: dict[int, torch.optim.Optimizer] = field(default_factory=dict)  # of the models, by number
    hooks: list[Any] = field(default_factory=list)  # handles of hooks that are registered
    # What the current step wants to be compared beside the things above.
    found: dict[str, Any] = field(default_factory=dict)
    checkpointed: bool = False  # whether outputs came out under activation checkpointing

    @property
    def dtype(self) -> torch.dtype:
        return getattr(torch, self.program.dtype)  # type: ignore[no-any-return]

    def model(self, number: int) -> torch.nn.Module:
        return self.models[number % len(self.models)]

    def graph(self, number: int) -> Edges:
        return self.graphs[number % len(self.graphs)]

    def feature(self, number: int) -> Nodes:
        return self.nodes[number % len(self.nodes)]

    def output(self, age: int, recorded: bool = False) -> Tensor | None:
        """What came out some calls ago; of what can be differentiated, if there is any and ``recorded``."""
        outputs = [out for out, _ in self.outputs]
        if recorded:
            outputs = [out for out in outputs if is_recorded(out)] or outputs
        return outputs[-1 - age % len(outputs)] if outputs else None

    def keep(self, out: Any) -> None:
        """Keeps the tensors of an output."""
        for each in tensors_in(out):
            self.outputs.append((each, version_of(each)))
        del self.outputs[:-_MOST_OUTPUTS]

    def count_writes_anew(self) -> None:
        """Lets writes to outputs count from now on, after their version counters were replaced."""
        self.outputs = [(out, version_of(out)) for out, _ in self.outputs]

    def forget_recorded(self) -> None:
        """Forgets the outputs that could be differentiated."""
        self.outputs = [(out, born) for out, born in self.outputs if not is_recorded(out)]

    def edges_of(self, number: int, weighted: bool) -> dict[str, Any]:
        """A graph, as models take it."""
        graph = self.graph(number)
        weight = graph.weights() if weighted else None
        index = graph.adjacency()
        if self.handle is None and index.dtype is torch.int32:
            # torch 2.13 differentiates scatter_add wrongly where the indices are of 32 bits.
            index = index.long()
        return {"index": index, "weight": weight, "attr": graph.attr, "type": graph.type}

    def leaves(self) -> list[tuple[str, Tensor]]:
        """Every tensor that may get a gradient, by name."""
        found = [(f"features {i}", each.leaf) for i, each in enumerate(self.nodes)]
        found += [(f"weights {i}", each.weight_leaf) for i, each in enumerate(self.graphs)]
        for i, model in enumerate(self.models):
            found += [(f"model {i}, {name}", parameter) for name, parameter in model.named_parameters()]
        return [
            (name, leaf)
            for name, leaf in found
            if leaf is not None and not isinstance(leaf, torch.nn.UninitializedParameter)
        ]


def version_of(tensor: Tensor) -> int:
    """The version counter; 0 where there is none."""
    try:
        return tensor._version
    except RuntimeError:  # inference tensors, and tensors whose data are one, have none
        return 0


def is_recorded(tensor: Tensor) -> bool:
    """Whether an operation made a tensor that can be differentiated."""
    try:
        return tensor.grad_fn is not None
    except RuntimeError:  # a view of a custom function, whose base was written to
        return True


def tensors_in(value: Any) -> list[Tensor]:
    """The dense tensors in what a layer gave out."""
    if isinstance(value, EdgeIndex):
        return [value.as_tensor()]
    if isinstance(value, Tensor):
        return [value] if value.layout is torch.strided else []
    if isinstance(value, tuple | list):
        return [tensor for each in value for tensor in tensors_in(each)]
    return []


def build(program: Program, patch: Callable[[], Any] | None) -> World:
    """Makes everything that a program starts with; ``patch`` is called between early and late models."""
    torch.manual_seed(program.seed)
    dtype = getattr(torch, program.dtype)
    models = {i: _model(program, each, dtype) for i, each in enumerate(program.models) if each.early}
    world = World(program, patch() if patch is not None else None)
    models |= {i: _model(program, each, dtype) for i, each in enumerate(program.models) if not each.early}
    world.models = [models[i] for i in range(len(models))]
    world.graphs = [make_edges(graph, program.nodes, dtype) for graph in program.graphs]
    world.nodes = [make_nodes(each, program.nodes, program.width, dtype) for each in program.features]
    return world


def new_edges(world: World, number: int, seed: int) -> Edges:
    """Another graph of the same description, with other edges."""
    spec: Graph = world.program.graphs[number % len(world.program.graphs)]
    changed = Graph(**{**vars(spec), "seed": spec.seed + 1 + seed})
    return make_edges(changed, world.program.nodes, world.dtype)


def new_nodes(world: World, number: int, seed: int) -> Nodes:
    """Other features of the same description."""
    program = world.program
    spec = program.features[number % len(program.features)]
    changed = type(spec)(**{**vars(spec), "seed": spec.seed + 1 + seed})
    return make_nodes(changed, program.nodes, program.width, world.dtype)


def _model(program: Program, model: Model, dtype: torch.dtype) -> torch.nn.Module:
    width, layers, takes = program.width, [], []
    for layer in model.layers:
        made, width = _layer(layer, width)
        layers.append(made)
        takes.append(_takes(layer))
    stack: torch.nn.Module = Stack(layers, takes, model.between, model.dropout)
    if model.form == "sequential" and all(each in ("", "weight") for each in takes):
        stack = Chain(layers, takes)
    return stack.to(dtype).train(model.training)


class Chain(torch.nn.Module):
    """Layers in PyG's own ``Sequential``."""

    def __init__(self, layers: list[torch.nn.Module], takes: list[str]) -> None:
        super().__init__()
        steps: list[Any] = []
        for layer, each in zip(layers, takes, strict=True):
            steps += [
                (layer, "x, index, weight -> x" if each == "weight" else "x, index -> x"),
                torch.nn.ReLU(),
            ]
        self.layers = Sequential("x, index, weight", steps[:-1])

    def forward(self, x: Any, edges: dict[str, Any], **more: Any) -> Any:
        return self.layers(x, edges["index"], edges["weight"], **more)


def _takes(layer: Layer) -> str:
    takes = KINDS[layer.name].takes
    if takes == "attention":
        return "attr" if dict(layer.options).get("edge_dim") is not None else ""
    return "weight alone" if layer.name == "LEConv" else takes


def _layer(layer: Layer, width: int) -> tuple[torch.nn.Module, int]:
    options = dict(layer.options)
    kind = KINDS[layer.name]
    made = kind.make(-1 if layer.lazy and kind.lazy else width, layer.out, **options)
    if layer.lazy:
        for parameter in made.parameters():
            if not isinstance(parameter, torch.nn.UninitializedParameter):
                torch.nn.init.zeros_(parameter)  # PyG leaves them to chance until the first call
    return made, width_after(layer.name, width, layer.out, options)
