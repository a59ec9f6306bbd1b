"""Stand-ins for data sets of many small graphs."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch_geometric.data import Data

from benchmarks.examples import graphs
from benchmarks.examples.stand_in import Function, StandIn


@dataclass(frozen=True)
class Shape:
    """The shape of a set of graphs.

    Attributes:
        graphs: How many.
        nodes: Of a mean graph.
        edges: Of a mean graph, both directions counted.
        kinds: The width of the nodes' labels, which have a single one each; 0 where nodes have none.
        attributes: The width of the nodes' attributes, which come first where they are used.
        classes: How many.
    """

    graphs: int
    nodes: int
    edges: int
    kinds: int
    attributes: int
    classes: int


# As PyG's documentation has them, but COLORS-3, which has 10,500 graphs: here are enough for its splits.
TU = {
    "MUTAG": Shape(188, 18, 40, 7, 0, 2),
    "PROTEINS": Shape(1_113, 39, 146, 3, 1, 2),
    "PROTEINS_full": Shape(1_113, 39, 146, 3, 29, 2),
    "IMDB-BINARY": Shape(1_000, 20, 193, 0, 0, 2),
    "COLORS-3": Shape(3_100, 61, 182, 0, 5, 11),
}
# A tenth of the subset that examples use.
ZINC_GRAPHS = {"train": 1_000, "val": 100, "test": 100}
ATOMS, BONDS = 21, 3
UPFD_GRAPHS = {"train": 62, "val": 31, "test": 221}
UPFD_NODES = 131
UPFD_FEATURES = {"profile": 10, "spacy": 300, "bert": 768, "content": 310}


class TUDataset(StandIn):
    """Graphs with a class each, which their nodes' labels and attributes tell."""

    def __init__(self, root: str, name: str, use_node_attr: bool = False, **transforms: Function) -> None:
        shape, generator = TU[name], graphs.seeded("TUDataset", name)
        made = [_graph(shape, use_node_attr, generator) for _ in range(shape.graphs)]
        super().__init__(made, **transforms)


class ZINC(StandIn):
    """Molecules with a number each: atoms and bonds have kinds, int64."""

    def __init__(self, root: str, subset: bool = False, split: str = "train", **transforms: Function) -> None:
        generator = graphs.seeded("ZINC", split)
        made = [_molecule(generator) for _ in range(ZINC_GRAPHS[split])]
        super().__init__(made, **transforms)


class UPFD(StandIn):
    """Trees of messages that pass on a piece of news, true or not."""

    def __init__(
        self,
        root: str,
        name: str,
        feature: str,
        split: str = "train",
        transform: Function = None,
        **transforms: Function,
    ) -> None:
        generator = graphs.seeded("UPFD", name, feature, split)
        made = [_tree(UPFD_FEATURES[feature], generator) for _ in range(UPFD_GRAPHS[split])]
        super().__init__(made, transform, **transforms)


def _size(mean: int, generator: torch.Generator) -> int:
    """Half to one and a half times the mean."""
    return max(3, int(mean * (0.5 + torch.rand(1, generator=generator).item())))


def _graph(shape: Shape, attributes: bool, generator: torch.Generator) -> Data:
    label = graphs.choices(shape.classes, 1, generator)
    nodes = _size(shape.nodes, generator)
    data = Data(edge_index=graphs.small(nodes, shape.edges * nodes // shape.nodes, generator), y=label)
    parts = []
    if attributes and shape.attributes:
        parts.append(torch.rand(nodes, shape.attributes, generator=generator) + label / shape.classes)
    if shape.kinds:
        often = (label + graphs.choices(2, nodes, generator)) % shape.kinds
        other = graphs.choices(shape.kinds, nodes, generator)
        kinds = torch.where(torch.rand(nodes, generator=generator) < 0.5, often, other)
        parts.append(F.one_hot(kinds, shape.kinds).float())
    if parts:
        data.x = torch.cat(parts, dim=1)
    else:
        data.num_nodes = nodes
    return data


def _molecule(generator: torch.Generator) -> Data:
    nodes = 10 + int(graphs.choices(28, 1, generator))
    edge_index = graphs.molecule(nodes, generator)
    atoms = graphs.uneven(ATOMS, nodes, generator)
    # Bonds are alike in both directions.
    bonds = 1 + (edge_index.sum(dim=0) + atoms[edge_index].sum(dim=0)) % BONDS
    y = torch.tensor([atoms.float().mean().item() / 4 - nodes / 24])
    return Data(x=atoms.unsqueeze(1), edge_index=edge_index, edge_attr=bonds, y=y)


def _tree(width: int, generator: torch.Generator) -> Data:
    label = graphs.choices(2, 1, generator)
    nodes = _size(UPFD_NODES, generator)
    parent = (torch.rand(nodes - 1, generator=generator).square() * torch.arange(1, nodes)).long()
    x = torch.randn(nodes, width, generator=generator) + label * 0.2
    return Data(x=x, edge_index=torch.stack([parent, torch.arange(1, nodes)]), y=label)
