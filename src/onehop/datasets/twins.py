"""Twins: generated graphs of the size and kind of well-known ones, with labels that can be learnt."""

import math
from dataclasses import dataclass, replace

import numpy as np

from onehop.datasets import planted, splits, store
from onehop.datasets.community_twins import COMMUNITY_TWINS, CommunityTwin
from onehop.datasets.dataset import Dataset, Progress
from onehop.datasets.implicit_graph import ImplicitGraph
from onehop.datasets.random_graphs import grid
from onehop.errors import ArgumentError, integer


@dataclass(frozen=True, slots=True)
class _Social:
    """A twin with skewed degrees; :mod:`onehop.datasets.planted` says what the figures do."""

    num_nodes: int  # nodes at scale 1
    num_pairs: int  # undirected edges at scale 1
    num_classes: int
    width: int  # columns of the features
    signal: float  # length of the classes' centres; with ``mean_words``, the chance of a word on topic
    same_class: float  # chance that an edge is drawn inside a class
    mislabelled: float  # share of labels that neither edges nor features tell
    exponent: float  # exponent of the nodes' weights
    class_skew: float  # exponent of the classes' sizes
    train: float | int  # share of training nodes, or, as an int, their number in each class
    val: float  # share of validation nodes
    test: float  # share of test nodes
    mean_words: float | None = None  # mean number of words of a node; None for dense features

    def make(self, name: str, seed: int, scale: float, progress: Progress) -> Dataset:
        """The twin, from nothing but its figures and the seed."""
        rng = np.random.default_rng([seed, 1])
        num_nodes = max(self.num_classes, round(self.num_nodes * scale))
        labels = planted.classes(rng, num_nodes, self.num_classes, self.class_skew)
        edge_index = planted.edges(
            rng,
            labels,
            round(self.num_pairs * scale),
            exponent=self.exponent,
            same_class=self.same_class,
            progress=lambda what, done: progress(what, 0.7 * done),
        )
        progress("drawing features", 0.7)
        if self.mean_words is None:
            x = planted.vectors(rng, labels, self.width, self.signal)
        else:
            x = planted.words(rng, labels, self.width, self.mean_words, self.signal)
        y = planted.mislabel(rng, labels, self.mislabelled)
        if isinstance(self.train, int):
            split = splits.by_class(y, self.train, self.val, self.test, rng)
        else:
            split = splits.by_share(y, self.train, self.val, rng)
        return planted.dataset(name, edge_index, x, y, self.num_classes, split)


@dataclass(frozen=True, slots=True)
class _Road:
    """A square grid of streets, cut into regions around random centres; a class holds several regions."""

    side: int  # crossings along one side at scale 1
    regions: int
    num_classes: int  # classes, and features: each has a direction of its own
    signal: float  # distance of a class's centre from 0
    mislabelled: float  # share of labels that neither edges nor features tell

    def make(self, name: str, seed: int, scale: float, progress: Progress) -> Dataset:
        """The twin, from nothing but its figures and the seed."""
        rng = np.random.default_rng([seed, 1])
        side = max(2, round(self.side * math.sqrt(scale)))
        edge_index = grid(side, side)
        progress("drawing regions", 0.3)
        centres = rng.random((self.regions, 2)) * side
        class_of_region = rng.permutation(np.arange(self.regions) % self.num_classes)
        across = (np.arange(side) - centres[:, :1]) ** 2
        down = (np.arange(side) - centres[:, 1:]) ** 2
        nearest = np.stack([(row[:, None] + across).argmin(axis=0) for row in down.T])
        labels = class_of_region[nearest.ravel()]
        progress("drawing features", 0.7)
        x = planted.vectors(rng, labels, self.num_classes, self.signal)
        y = planted.mislabel(rng, labels, self.mislabelled)
        return planted.dataset(name, edge_index, x, y, self.num_classes, splits.by_share(y, 0.5, 0.2, rng))


# Nodes, edges, classes and splits of the named graphs: ogbn-arxiv after symmetrising and its split by year
# (W. Hu et al., "Open Graph Benchmark", 2020); Reddit's classes and split (W. Hamilton et al., 2017) on a
# quarter of its nodes; Cora, PubMed and their public splits (Z. Yang et al., 2016). The other figures are
# chosen so that a two-layer GCN reaches about the accuracy that it reaches on the named graph, and a linear
# model on the features much less.
_TWINS: dict[str, _Social | _Road | CommunityTwin] = {
    "arxiv": _Social(
        num_nodes=169_343, num_pairs=1_157_799, num_classes=40, width=128,
        signal=3.5, same_class=0.6, mislabelled=0.24, exponent=0.6, class_skew=0.8,
        train=90_941 / 169_343, val=29_799 / 169_343, test=48_603 / 169_343,
    ),
    "cora": _Social(
        num_nodes=2_708, num_pairs=5_278, num_classes=7, width=1_433,
        signal=0.3, same_class=0.7, mislabelled=0.07, exponent=0.4, class_skew=0.4,
        train=20, val=500 / 2_708, test=1_000 / 2_708, mean_words=19.0,
    ),
    "reddit-mini": _Social(
        num_nodes=58_000, num_pairs=5_500_000, num_classes=41, width=128,
        signal=2.5, same_class=0.4, mislabelled=0.06, exponent=0.6, class_skew=0.6,
        train=0.66, val=0.1, test=0.24,
    ),
    "pubmed": _Social(
        num_nodes=19_717, num_pairs=44_324, num_classes=3, width=500,
        signal=0.3, same_class=0.7, mislabelled=0.15, exponent=0.5, class_skew=0.3,
        train=20, val=500 / 19_717, test=1_000 / 19_717, mean_words=50.0,
    ),
    "road": _Road(side=500, regions=96, num_classes=16, signal=1.5, mislabelled=0.05),
    **COMMUNITY_TWINS,
}  # fmt: skip


def names() -> list[str]:
    """The names of all twins.

    Examples:
        >>> from onehop import datasets
        >>> datasets.names()[:3]
        ['amazon', 'amazonproducts', 'arxiv']
    """
    return sorted(_TWINS)


def _check(name: str) -> None:
    if name not in _TWINS:
        raise ArgumentError(f"name: no twin is called {name!r}; there are {', '.join(names())}.")


def num_features(name: str) -> int:
    """The number of a twin's features, without making the twin.

    Args:
        name: One of :func:`names`.

    Raises:
        ArgumentError: No twin of that name.

    Examples:
        >>> from onehop import datasets
        >>> datasets.num_features("cora")
        1433
    """
    _check(name)
    figures = _TWINS[name]
    # Roads have a feature for each class.
    return figures.num_classes if isinstance(figures, _Road) else figures.width


def too_large(name: str, scale: float = 1.0) -> bool:
    """Return whether a twin is too large to be made whole, and has to be taken by rows (:func:`implicit`).

    Args:
        name: One of :func:`names`.
        scale: Multiplies the numbers of nodes and edges.

    Raises:
        ArgumentError: No twin of that name.
    """
    _check(name)
    return name in COMMUNITY_TWINS and COMMUNITY_TWINS[name].model.too_large(scale)


def implicit(name: str, seed: int = 0, *, self_loops: bool = False) -> ImplicitGraph:
    """A twin with communities at full size, of which any row can be computed and none is kept.

    It follows the same figures as :func:`twin` (degrees, communities, shares), but is another graph. Use it
    for windows of graphs that fit no memory, such as papers.

    Args:
        name: One of the twins with communities.
        seed: The same seed gives the same graph.
        self_loops: Whether every node has an edge to itself.

    Raises:
        ArgumentError: No twin with communities has that name, or a negative seed.

    Examples:
        >>> from onehop.datasets import implicit
        >>> rowptr, col = implicit("amazon").rows([5, 7])
        >>> rowptr.tolist()  # 5 has no neighbour, 7 has eight
        [0, 0, 8]
    """
    if name not in COMMUNITY_TWINS:
        raise ArgumentError(
            f"name: no twin with communities is called {name!r}; there are {', '.join(COMMUNITY_TWINS)}."
        )
    return ImplicitGraph(COMMUNITY_TWINS[name].model, seed, self_loops=self_loops)


def twin(
    name: str, seed: int = 0, scale: float = 1.0, progress: Progress | None = None, *, features: bool = True
) -> Dataset:
    """A generated graph of the size and kind of a well-known one, read from the cache folder if it is there.

    =================  ===========  ===============  ========  =======
    name               nodes        directed edges   features  classes
    =================  ===========  ===============  ========  =======
    amazon             410,236      4,878,874        96        22
    amazonproducts     1,569,960    264,339,468      200       107
    arxiv              169,343      2,315,598        128       40
    arxiv-communities  169,343      2,315,598        128       40
    cora               2,708        10,556           1,433     7
    mag                736,389      10,792,672       128       349
    papers             111,059,956  3,228,124,712    128       172
    products           2,449,029    123,718,152      100       47
    proteins           132,534      79,122,504       8         112
    pubmed             19,717       88,648           500       3
    reddit             232,965      114,615,892      602       41
    reddit-mini        58,000       11,000,000       128       41
    reddit2            232,965      23,213,838       602       41
    road               250,000      998,000          16        16
    =================  ===========  ===============  ========  =======

    Edges go both ways, without self loops and repeated edges: add loops where they are needed, as by GCN's
    normalisation and the near-rank machines. amazon, amazonproducts, arxiv-communities, mag, papers,
    products, proteins, reddit and reddit2 have many small communities (:mod:`onehop.datasets.block_model`);
    their edges are ordered by destination, then by source, which is the order that a graph keeps. Those of
    the others are ordered by source, then by destination.

    There are two of arxiv: ``arxiv`` has the skew and the labels, for training; ``arxiv-communities`` also
    has hubs and triangles, for counting which nodes share neighbours.

    papers fits no ordinary memory: take a part of it, such as ``scale=0.02``, or rows of :func:`implicit`.
    A scale keeps degrees and communities as they are; only the hubs' share of all nodes grows.

    Args:
        name: One of :func:`names`.
        seed: The same seed gives the same data set, bit for bit, with the same version of numpy.
        scale: Multiplies the numbers of nodes and edges.
        progress: Called with the current step and its finished share, 0 to 1.
        features: False omits ``x``, which saves memory and, for the large twins, a few seconds.

    Raises:
        ArgumentError: No twin of that name, a negative seed, a scale that is not positive, or one at which
            there are too few nodes for the edges.

    Examples:
        >>> from onehop import datasets
        >>> data = datasets.twin("cora", seed=0, scale=0.1)
        >>> data
        Dataset('twin:cora x 0.1', num_nodes=271, num_edges=1056, num_features=1433, num_classes=7)
        >>> data.x.shape, data.y.max().item()
        (torch.Size([271, 1433]), 6)
    """
    _check(name)
    seed = integer("seed", seed, None)
    if seed < 0:
        raise ArgumentError(f"seed: expected zero or more, got {seed}.")
    if not (math.isfinite(scale) and scale > 0):
        raise ArgumentError(f"scale: expected a positive number, got {scale!r}.")
    full = f"twin:{name}" if scale == 1 else f"twin:{name} x {scale:g}"
    report: Progress = progress or (lambda _what, _done: None)
    key = f"twin-{name}-seed{seed}-scale{float(scale)!r}"
    figures = _TWINS[name]
    if isinstance(figures, CommunityTwin):
        dataset = figures.load(key, full, seed, scale, report, features)
    else:
        dataset = store.kept(key, lambda: figures.make(full, seed, scale, report))
        if not features:
            dataset = replace(dataset, x=None)
    report("ready", 1.0)
    return dataset
