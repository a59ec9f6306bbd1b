"""Twins of large graphs with hubs and communities, generated natively; labels follow the communities."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onehop.datasets import planted, splits, store
from onehop.datasets.block_model import BlockModel, Rows
from onehop.datasets.dataset import Dataset, Progress


@dataclass(frozen=True, slots=True)
class CommunityTwin:
    """A twin whose edges come from a block model; edges are kept on disk, the rest is generated again.

    Attributes:
        model: The block model of the edges.
        num_classes: Number of classes; every community has one class.
        width: Number of features.
        train: Share of training nodes.
        val: Share of validation nodes; the rest is for testing.
        signal: Length of the classes' centre vectors.
        mislabelled: Share of labels about which neither edges nor features carry information.
        class_skew: Exponent of the classes' sizes.
    """

    model: BlockModel
    num_classes: int
    width: int
    train: float
    val: float
    signal: float = 2.5
    mislabelled: float = 0.1
    class_skew: float = 0.6

    def load(
        self, key: str, name: str, seed: int, scale: float, progress: Progress, features: bool
    ) -> Dataset:
        """Return the twin, with its edges from the cache folder if they are there."""
        rows = store.kept_as(
            key,
            lambda: self.model.generate(seed, scale, lambda what, done: progress(what, 0.9 * done)),
            _pack,
            _unpack,
        )
        progress("listing edges", 0.9)
        num_nodes = len(rows.rowptr) - 1
        rng = np.random.default_rng([seed, 3])
        of_community = planted.classes(rng, int(rows.community.max()) + 1, self.num_classes, self.class_skew)
        labels = of_community[rows.community]
        anything = planted.classes(rng, num_nodes, self.num_classes, self.class_skew)
        y = np.where(rng.random(num_nodes) < self.mislabelled, anything, labels)
        split = splits.by_share(y, self.train, self.val, rng)
        x = None
        if features:
            progress("drawing features", 0.95)
            x = planted.vectors(rng, labels, self.width, self.signal)
        return planted.dataset(name, _edge_index(rows), x, y, self.num_classes, split)


def _edge_index(rows: Rows) -> Tensor:
    edge_index = torch.empty((2, len(rows.col)), dtype=torch.int64, device="cpu")
    edge_index[0] = torch.from_numpy(rows.col)
    num_nodes = len(rows.rowptr) - 1
    degrees = torch.from_numpy(np.diff(rows.rowptr))
    edge_index[1] = torch.repeat_interleave(torch.arange(num_nodes, dtype=torch.int32, device="cpu"), degrees)
    return edge_index


def _pack(rows: Rows) -> dict[str, np.ndarray]:
    return {
        "degrees": np.diff(rows.rowptr).astype(np.int32),
        "col": rows.col,
        "community": rows.community,
    }


def _unpack(arrays: dict[str, Any]) -> Rows:
    degrees, col, community = (arrays[key] for key in ("degrees", "col", "community"))
    rowptr = np.concatenate([[0], np.cumsum(degrees, dtype=np.int64)])
    if rowptr[-1] != len(col) or len(community) != len(degrees):
        raise ValueError("its arrays do not fit together")
    return Rows(rowptr, col, community)


# Sources of the numbers of nodes and edges. Reddit: W. Hamilton et al., "Inductive representation learning on
# large graphs" (2017), as in PyG's Reddit. reddit2 and amazonproducts: H. Zeng et al., "GraphSAINT" (2020),
# as in PyG's Reddit2 and AmazonProducts. proteins, products, mag (citations between papers) and papers: W. Hu
# et al., "Open Graph Benchmark" (2020), with every edge in both directions: 126.17 M, 11.53 M and 3.34 G with
# self loops. amazon: amazon0505 of SNAP in both directions, with the features and classes of GNNAdvisor (OSDI
# 2021). Splits are the splits of the named graphs, except for amazon and papers; proteins' 112 tasks are 112
# classes here.
#
# The tails keep the reads of products, mag and amazon that tiles of 128 nodes in index order share below 1 %,
# and bring arxiv-communities to its known 6.66 %.
# Community sizes and shares bring clustering coefficients near the coefficients of the named graphs (products
# 0.41, amazon 0.41, proteins 0.28, arxiv 0.23, mag 0.10, papers 0.09: Hu et al., and SNAP), and bring
# products to the 54.1 % that re-tiling is known to save there with tiles of 128 (GraNDe, IEEE Transactions on
# Computers 2023). The community sizes and shares of reddit, reddit2 and amazonproducts are free choices. The
# resulting numbers are in docs/reference/datasets.md.
COMMUNITY_TWINS = {
    # Number of nodes and pairs, tail, largest degree, mean community, share inside; number of classes and
    # features, shares of training and validation nodes.
    "arxiv-communities": CommunityTwin(
        BlockModel(169_343, 1_157_799, 2.5, 13_161, 60.0, 0.8),
        40, 128, 90_941 / 169_343, 29_799 / 169_343,
    ),
    "reddit": CommunityTwin(
        BlockModel(232_965, 57_307_946, 4.0, 21_657, 400.0, 0.7),
        41, 602, 153_431 / 232_965, 23_831 / 232_965,
    ),
    "reddit2": CommunityTwin(
        BlockModel(232_965, 11_606_919, 4.0, 4_386, 400.0, 0.7),
        41, 602, 0.66, 0.1,
    ),
    "amazonproducts": CommunityTwin(
        BlockModel(1_569_960, 132_169_734, 2.5, 50_000, 400.0, 0.7),
        107, 200, 0.85, 0.05,
    ),
    "proteins": CommunityTwin(
        BlockModel(132_534, 39_561_252, 20.0, 7_750, 600.0, 0.7),
        112, 8, 86_619 / 132_534, 21_236 / 132_534,
    ),
    "amazon": CommunityTwin(
        BlockModel(410_236, 2_439_437, 4.0, 2_760, 25.0, 1.0),
        22, 96, 0.5, 0.2,
    ),
    "mag": CommunityTwin(
        BlockModel(736_389, 5_396_336, 3.5, 4_000, 60.0, 0.5),
        349, 128, 629_571 / 736_389, 64_879 / 736_389,
    ),
    "products": CommunityTwin(
        BlockModel(2_449_029, 61_859_076, 4.5, 17_481, 310.0, 1.0),
        47, 100, 196_615 / 2_449_029, 39_323 / 2_449_029,
    ),
    "papers": CommunityTwin(
        BlockModel(111_059_956, 1_614_062_356, 3.5, 25_000, 100.0, 0.45),
        172, 128, 0.8, 0.1,
    ),
}  # fmt: skip
