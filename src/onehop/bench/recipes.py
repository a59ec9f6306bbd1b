"""Recipes of the benchmarks' models: width, optimiser, graph. Importing this module does not import PyG."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from onehop import extras
from onehop.errors import check_choice

# The usual learning rate for these models on these graphs.
LEARNING_RATE = 0.01


@dataclass(frozen=True)
class Recipe:
    """The settings with which a model is trained.

    Attributes:
        graph: The graph on which the model's authors train it, a name in :data:`onehop.bench.sources.OWN`;
            None for models without their own graph.
        hidden: The width between the layers that the authors chose; None if they chose none.
        layers: Number of layers.
        weighted: Whether its layers weigh edges by the degrees of their ends.
        attention: Whether its layers weigh edges by scores.
        kept_rows: For attention: rows per edge that a PyG layer keeps for its backward pass.
        log_probabilities: Whether the model returns logarithms of probabilities instead of scores.
        rate: Adam's learning rate.
        decay: Weight decay.
        decays_first_only: Whether only the first layer's weights decay.
        fan_out: Neighbours that a mini-batch draws, one number per layer; empty if the whole graph is used at
            once.
        adj_t: Whether the authors give the layers a sparse matrix, of PyG's ``ToSparseTensor``, instead of
            ``edge_index``.
    """

    graph: str | None = None
    hidden: int | None = None
    layers: int = 2
    weighted: bool = False
    attention: bool = False
    kept_rows: int = 3
    log_probabilities: bool = False
    rate: float = LEARNING_RATE
    decay: float = 0.0
    decays_first_only: bool = False
    fan_out: tuple[int, ...] = ()
    adj_t: bool = False

    def optimizer(self, model: torch.nn.Module) -> torch.optim.Optimizer:
        """Return Adam with the settings of the model's authors."""
        if not self.decays_first_only:
            return torch.optim.Adam(model.parameters(), lr=self.rate, weight_decay=self.decay)
        first, *rest = model.convs  # type: ignore[misc]
        others = [parameter for layer in rest for parameter in layer.parameters()]
        groups = [
            {"params": list(first.parameters()), "weight_decay": self.decay},
            {"params": others, "weight_decay": 0.0},
        ]
        return torch.optim.Adam(groups, lr=self.rate)

    def message_bytes(self, edges: int, features: int, hidden: int, classes: int) -> int:
        """Return the maximum bytes of messages that PyG has at a time, in float32.

        GCN keeps gathered, weighted and gradient rows of the widest layer's outputs. Attention keeps rows of
        every layer, and has three more of the widest at its peak. The others gather their inputs.
        """
        widest = max(hidden, classes)
        if self.attention:
            columns = self.kept_rows * ((self.layers - 1) * hidden + classes) + 3 * widest
        else:
            columns = 3 * widest if self.weighted else max(features, 2 * hidden)
        return 4 * edges * columns


# Source: https://github.com/snap-stanford/ogb, examples/nodeproppred/{arxiv,products}/gnn.py.
_OGB = Recipe("arxiv", hidden=256, layers=3, log_probabilities=True, adj_t=True)
_PRODUCTS = replace(_OGB, graph="products")

PUBLISHED: dict[str, Recipe] = {
    "ogb-gcn": replace(_OGB, weighted=True),
    "ogb-sage": _OGB,
    # For GAT, PyG keeps one gathered row per edge and layer: the messages' gradient is this row times
    # weights.
    "ogb-gat": replace(_OGB, attention=True, kept_rows=1, adj_t=False),
    "products-gcn": replace(_PRODUCTS, weighted=True),
    "products-sage": _PRODUCTS,
    "cora-gcn": Recipe("cora", hidden=16, weighted=True, decay=5e-4, decays_first_only=True),
    "cora-gat": Recipe("cora", hidden=64, attention=True, kept_rows=1, rate=0.005, decay=5e-4),
    "loader-sage": Recipe("arxiv", hidden=256, fan_out=(10, 10)),
}
"""The published models of :mod:`onehop.bench.plain_models`, trained as their authors do."""

TWO_LAYER: dict[str, Recipe] = {
    "gcn": Recipe(weighted=True),
    **dict.fromkeys(("sage", "sage-sum", "gin", "gin-norm"), Recipe()),
    **dict.fromkeys(("gat", "gatv2", "transformer"), Recipe(attention=True)),
}
"""Models of :mod:`onehop.bench.plain_models` with two layers of any width, without dropout."""

SERVED = ("gcn", "sage", "gatv2")
"""Models that answer requests: PyG's own models of three layers, without training."""

RECIPES: dict[str, Recipe] = {**PUBLISHED, **TWO_LAYER}


def recipe(model: str) -> Recipe:
    """Return the recipe of the model of this name.

    Raises:
        ArgumentError: There is no such model.
    """
    check_choice("model", model, RECIPES)
    return RECIPES[model]


def network(model: str, features: int, hidden: int, classes: int) -> torch.nn.Module:
    """Return a new model, with parameters drawn from torch's generator."""
    recipe(model)
    from onehop.bench import plain_models

    makers: dict[str, Callable[..., torch.nn.Module]] = {**plain_models.MODELS, **plain_models.PUBLISHED}
    return makers[model](features, hidden, classes)


def served(model: str, width: int) -> torch.nn.Module:
    """Return a new model of three layers that answers requests; all its layers have this width.

    Raises:
        ConfigurationError: PyG is not installed.
    """
    with extras.needed("onehop bench serve", "pyg"):
        from onehop.bench import plain_models
    return plain_models.SERVED[model](width)
