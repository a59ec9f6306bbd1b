"""Stand-ins for what examples import of the package ``ogb``: data sets, and how hits are counted."""

import sys
from functools import partial
from types import ModuleType
from typing import Any

import torch
from scipy.stats import rankdata
from torch import Tensor
from torch_geometric.data import Data

from benchmarks.examples import graphs
from benchmarks.examples.node_sets import Shape, labelled
from benchmarks.examples.stand_in import Function, StandIn

# Nodes, edges, features and classes: a tenth of ogbn-arxiv, a hundredth of ogbn-products' nodes with its mean
# degree, a fiftieth of ogbn-proteins' nodes with a quarter of its mean degree.
ARXIV = Shape(16_934, 116_624, 128, 40)
PRODUCTS = Shape(24_490, 1_237_180, 100, 47)
PROTEINS = Shape(2_651, 395_610, 8, 112)


class PygNodePropPredDataset(StandIn):
    """ogbn-arxiv, ogbn-products or ogbn-proteins, smaller."""

    def __init__(
        self, name: str, root: str = "dataset", transform: Function = None, **transforms: Function
    ) -> None:
        generator = graphs.seeded("ogb", name)
        data = MADE[name](generator)
        self._order = torch.randperm(data.num_nodes, generator=generator)
        super().__init__([data], transform, **transforms)

    def get_idx_split(self) -> dict[str, Tensor]:
        """The nodes for training, validation and testing."""
        nodes = self._order.numel()
        first, second = 54 * nodes // 100, 72 * nodes // 100
        return {
            "train": self._order[:first],
            "valid": self._order[first:second],
            "test": self._order[second:],
        }


class Evaluator:
    """Accuracy, or for proteins the mean area under the ROC curve."""

    def __init__(self, name: str) -> None:
        self._name = name

    def eval(self, values: dict[str, Tensor]) -> dict[str, float]:
        """Counts."""
        truth, predicted = values["y_true"], values["y_pred"]
        if self._name == "ogbn-proteins":
            areas = [_area(t, p) for t, p in zip(truth.t(), predicted.t(), strict=True)]
            return {"rocauc": sum(areas) / len(areas)}
        return {"acc": float((truth == predicted).float().mean())}


def install() -> None:
    """Puts them where ``from ogb.nodeproppred import ...`` finds them."""
    package, module = ModuleType("ogb"), ModuleType("ogb.nodeproppred")
    parts: dict[str, Any] = {"PygNodePropPredDataset": PygNodePropPredDataset, "Evaluator": Evaluator}
    vars(module).update(parts)
    vars(package).update({"nodeproppred": module, "__path__": []})
    sys.modules.update({"ogb": package, "ogb.nodeproppred": module})


def _area(truth: Tensor, predicted: Tensor) -> float:
    """The probability that a positive ranks before a negative one (Mann and Whitney's U)."""
    positive = truth.numpy() == 1
    ones, ranks = int(positive.sum()), rankdata(predicted.numpy())
    zeros = positive.size - ones
    if not ones or not zeros:
        return 0.5
    return float((ranks[positive].sum() - ones * (ones + 1) / 2) / (ones * zeros))


def _classified(shape: Shape, directed: bool, generator: torch.Generator) -> Data:
    data = labelled(shape, generator, directed=directed)
    data.y = data.y.unsqueeze(1)
    return data


def _proteins(generator: torch.Generator) -> Data:
    edge_index, group = graphs.labelled(PROTEINS.nodes, PROTEINS.edges, 8, generator)
    likely = torch.rand(8, PROTEINS.classes, generator=generator)
    return Data(
        edge_index=edge_index,
        edge_attr=torch.rand(edge_index.size(1), PROTEINS.features, generator=generator),
        y=(torch.rand(PROTEINS.nodes, PROTEINS.classes, generator=generator) < likely[group]).long(),
        node_species=group.unsqueeze(1),
        num_nodes=PROTEINS.nodes,
    )


MADE = {
    "ogbn-arxiv": partial(_classified, ARXIV, True),
    "ogbn-products": partial(_classified, PRODUCTS, False),
    "ogbn-proteins": _proteins,
}
