"""Stand-ins for data sets of one graph, or a few large ones, whose nodes have classes."""

from dataclasses import dataclass
from typing import Any

import torch
from torch_geometric.data import Data
from torch_geometric.utils import coalesce

from benchmarks.examples import graphs
from benchmarks.examples.stand_in import Function, StandIn


@dataclass(frozen=True)
class Shape:
    """The shape of a graph.

    Attributes:
        nodes: How many.
        edges: How many, both directions counted.
        features: The width of its nodes' features.
        classes: How many.
    """

    nodes: int
    edges: int
    features: int
    classes: int


# As PyG's documentation of each data set has them.
PLANETOID = {
    "cora": Shape(2_708, 10_556, 1_433, 7),
    "citeseer": Shape(3_327, 9_104, 3_703, 6),
    "pubmed": Shape(19_717, 88_648, 500, 3),
}
WIKIPEDIA = {"chameleon": Shape(2_277, 36_101, 2_325, 5), "squirrel": Shape(5_201, 217_073, 2_089, 5)}
# A tenth of the nodes: Penn94, Flickr and Reddit. Of its mean degree Reddit has a tenth, the others all.
PENN94 = Shape(4_155, 272_446, 4_814, 2)
FLICKR = Shape(8_925, 89_976, 500, 7)
REDDIT = Shape(23_297, 1_146_158, 602, 41)
# The mean graph of PPI. PPI has 20 graphs for training, 2 for validation and 2 for testing; here are 2, 1, 1.
PPI_GRAPH = Shape(2_245, 61_318, 50, 121)
PPI_GRAPHS = {"train": 2, "val": 1, "test": 1}
WORDS_A_NODE = 18
TRAINING_A_CLASS, VALIDATION, TESTING = 20, 500, 1_000
SPLITS = 10


class Planetoid(StandIn):
    """Cora, CiteSeer or PubMed, with the public split."""

    def __init__(self, root: str, name: str, split: str = "public", **transforms: Function) -> None:
        if split != "public":
            raise NotImplementedError(f"split: expected 'public', got {split!r}.")
        shape, generator = PLANETOID[name.lower()], graphs.seeded("Planetoid", name.lower())
        edge_index, y = graphs.labelled(shape.nodes, shape.edges, shape.classes, generator)
        # Examples count the nodes of edges: the last node changes places with one that has an edge.
        last, other = shape.nodes - 1, int(edge_index.max())
        swapped = torch.arange(shape.nodes)
        swapped[[last, other]] = torch.tensor([other, last])
        edge_index, y = coalesce(swapped[edge_index]), y[swapped]
        x = graphs.words(y, shape.features, WORDS_A_NODE, generator)
        order = torch.randperm(shape.nodes, generator=generator)
        training = torch.cat([order[y[order] == label][:TRAINING_A_CLASS] for label in range(shape.classes)])
        rest = order[~graphs.mask(shape.nodes, training)[order]]
        data = Data(
            x=x,
            edge_index=edge_index,
            y=y,
            train_mask=graphs.mask(shape.nodes, training),
            val_mask=graphs.mask(shape.nodes, rest[:VALIDATION]),
            test_mask=graphs.mask(shape.nodes, rest[VALIDATION : VALIDATION + TESTING]),
        )
        super().__init__([data], **transforms)


class WikipediaNetwork(StandIn):
    """Chameleon or Squirrel: directed, with ten splits."""

    def __init__(self, root: str, name: str, **transforms: Function) -> None:
        shape, generator = WIKIPEDIA[name.lower()], graphs.seeded("WikipediaNetwork", name.lower())
        data = labelled(shape, generator, WORDS_A_NODE, directed=True)
        super().__init__([data.update(_ten_splits(shape.nodes, generator))], **transforms)


class LINKXDataset(StandIn):
    """Penn94, at a tenth of its nodes."""

    def __init__(self, root: str, name: str, **transforms: Function) -> None:
        generator = graphs.seeded("LINKXDataset", name)
        data = labelled(PENN94, generator, 5)
        super().__init__([data.update(_ten_splits(PENN94.nodes, generator))], **transforms)


class Flickr(StandIn):
    """Flickr, at a tenth of its nodes."""

    def __init__(self, root: str, **transforms: Function) -> None:
        shares = FLICKR.nodes // 2, FLICKR.nodes // 4, FLICKR.nodes // 4
        super().__init__([_dense("Flickr", FLICKR, shares)], **transforms)


class Reddit(StandIn):
    """Reddit, at a tenth of its nodes, each of which has a tenth of the edges."""

    def __init__(self, root: str, **transforms: Function) -> None:
        shares = 2 * REDDIT.nodes // 3, REDDIT.nodes // 10, REDDIT.nodes // 5
        super().__init__([_dense("Reddit", REDDIT, shares)], **transforms)


class PPI(StandIn):
    """Protein interactions: fewer graphs, each of its mean size, with 121 labels a node."""

    def __init__(self, root: str, split: str = "train", **transforms: Function) -> None:
        made = [_protein(graphs.seeded("PPI", split, number)) for number in range(PPI_GRAPHS[split])]
        super().__init__(made, **transforms)


def labelled(
    shape: Shape, generator: torch.Generator, words: int | None = None, directed: bool = False
) -> Data:
    """A graph with classes, and features around a centre of each class, or bags of so many words."""
    edge_index, y = graphs.labelled(shape.nodes, shape.edges, shape.classes, generator, directed)
    if words is None:
        x = graphs.dense(y, shape.features, generator)
    else:
        x = graphs.words(y, shape.features, words, generator)
    return Data(x=x, edge_index=edge_index, y=y)


def _dense(name: str, shape: Shape, shares: tuple[int, int, int]) -> Data:
    generator = graphs.seeded(name)
    return labelled(shape, generator).update(graphs.masks(shape.nodes, shares, generator))


def _protein(generator: torch.Generator) -> Data:
    shape = PPI_GRAPH
    edge_index, group = graphs.labelled(shape.nodes, shape.edges, 10, generator)
    likely = torch.rand(10, shape.classes, generator=graphs.seeded("labels of PPI"))
    y = (torch.rand(shape.nodes, shape.classes, generator=generator) < 0.6 * likely[group]).float()
    return Data(x=graphs.dense(group, shape.features, generator), edge_index=edge_index, y=y)


def _ten_splits(nodes: int, generator: torch.Generator) -> dict[str, Any]:
    shares = 48 * nodes // 100, 32 * nodes // 100, 20 * nodes // 100
    splits = [graphs.masks(nodes, shares, generator) for _ in range(SPLITS)]
    return {name: torch.stack([split[name] for split in splits], dim=1) for name in splits[0]}
