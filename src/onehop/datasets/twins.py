"""Twins: generated graphs with the size and kind of well-known graphs, and with learnable labels."""

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
    """A twin with skewed degrees; :mod:`onehop.datasets.planted` explains the parameters."""

    num_nodes: int  # nodes at scale 1
    num_pairs: int  # undirected edges at scale 1
    num_classes: int
    width: int  # columns of the features
    signal: float  # length of the classes' centres; with ``mean_words``, probability of a word on topic
    same_class: float  # probability that an edge is drawn inside a class
    mislabelled: float  # share of labels that neither edges nor features reveal
    exponent: float  # exponent of the nodes' weights
    class_skew: float  # exponent of the classes' sizes
    train: float | int  # share of training nodes; an int is their number per class
    val: float  # share of validation nodes
    test: float  # share of test nodes
    mean_words: float | None = None  # mean number of words of a node; None for dense features

    def make(self, name: str, seed: int, scale: float, progress: Progress) -> Dataset:
        """Generate the twin from its parameters and the seed."""
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
    """A square grid of streets, cut into regions around random centres; a class has several regions."""

    side: int  # number of crossings along one side at scale 1
    regions: int
    num_classes: int  # number of classes and of features; each class has its own direction
    signal: float  # distance of a class's centre from 0
    mislabelled: float  # share of labels that neither edges nor features reveal

    def make(self, name: str, seed: int, scale: float, progress: Progress) -> Dataset:
        """Generate the twin from its parameters and the seed."""
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


# Numbers of nodes, edges and classes and the splits come from the named graphs: ogbn-arxiv, symmetrised, with
# its split by year (W. Hu et al., "Open Graph Benchmark", 2020); Reddit's classes and split (W. Hamilton et
# al., 2017) on a quarter of its nodes; Cora, PubMed and their public splits (Z. Yang et al., 2016). The other
# numbers are chosen so that a two-layer GCN reaches about the same accuracy as on the named graph, and a
# linear model on the features reaches much less.
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
    """Return the names of all twins.

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
    """Return the number of a twin's features, without generating the twin.

    Args:
        name: One of :func:`names`.

    Raises:
        ArgumentError: There is no twin of this name.

    Examples:
        >>> from onehop import datasets
        >>> datasets.num_features("cora")
        1433
    """
    _check(name)
    figures = _TWINS[name]
    # Roads have one feature per class.
    return figures.num_classes if isinstance(figures, _Road) else figures.width


def too_large(name: str, scale: float = 1.0) -> bool:
    """Return whether a twin is too large to be generated as a whole; then use its rows (:func:`implicit`).

    Args:
        name: One of :func:`names`.
        scale: Multiplies the numbers of nodes and edges.

    Raises:
        ArgumentError: There is no twin of this name.
    """
    _check(name)
    return name in COMMUNITY_TWINS and COMMUNITY_TWINS[name].model.too_large(scale)


def implicit(name: str, seed: int = 0, *, self_loops: bool = False) -> ImplicitGraph:
    """Return a twin with communities at full size whose rows are computed on demand and not stored.

    It follows the same parameters as :func:`twin` (degrees, communities, shares), but is another graph. Use
    it for windows of graphs that do not fit into memory, such as papers.

    Args:
        name: One of the twins with communities.
        seed: The same seed gives the same graph.
        self_loops: Whether every node has an edge to itself.

    Raises:
        ArgumentError: There is no twin with communities of this name, or the seed is negative.

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
    """Return a generated graph with the size and kind of a well-known graph; edges may come from the cache.

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

    Edges go in both directions, without self loops and repeated edges. Add loops where they are needed, for
    example for GCN's normalisation and the near-rank machines. amazon, amazonproducts, arxiv-communities,
    mag, papers, products, proteins, reddit and reddit2 have many small communities
    (:mod:`onehop.datasets.block_model`); their edges are ordered by destination, then by source, which is the
    order that a graph keeps. The edges of the other twins are ordered by source, then by destination.

    There are two twins of arxiv: ``arxiv`` has the skew and the labels, for training; ``arxiv-communities``
    also has hubs and triangles, for counting which nodes share neighbours.

    papers does not fit into ordinary memory: use a part of it, for example ``scale=0.02``, or rows of
    :func:`implicit`. A scale does not change degrees and communities; only the hubs' share of all nodes
    grows.

    Args:
        name: One of :func:`names`.
        seed: The same seed gives the same data set, bit for bit, with the same version of numpy.
        scale: Multiplies the numbers of nodes and edges.
        progress: Called with the current step and its finished share, 0 to 1.
        features: False omits ``x``, which saves memory and, for the large twins, a few seconds.

    Raises:
        ArgumentError: There is no twin of this name, the seed is negative, the scale is not positive, or at
            this scale there are too few nodes for the edges.

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
