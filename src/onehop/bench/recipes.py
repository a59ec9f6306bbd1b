"""Recipes of the benchmarks' models: width, optimiser, graph. Light to import: no PyG."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from onehop import extras
from onehop.errors import check_choice

# The usual rate for these models on these graphs.
LEARNING_RATE = 0.01


@dataclass(frozen=True)
class Recipe:
    """The training of a model.

    Attributes:
        graph: The graph that its authors train it on, a name of :data:`onehop.bench.sources.OWN`; None for
            models that belong to no graph.
        hidden: The width between the layers that its authors chose; None for models without one.
        layers: How many.
        weighted: Whether its layers weigh edges by the degrees of their ends.
        attention: Whether its layers weigh edges by scores.
        kept_rows: For attention: rows an edge that a layer of PyG keeps for its backward pass.
        log_probabilities: Whether the model returns logarithms of probabilities, not scores.
        rate: Adam's.
        decay: Weight decay.
        decays_first_only: Whether only the first layer's weights decay.
        fan_out: Neighbours that a mini-batch draws, a figure a layer; empty for the whole graph at once.
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

    def optimizer(self, model: torch.nn.Module) -> torch.optim.Optimizer:
        """Adam, as the model's authors set it."""
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
        """Most bytes of messages that PyG has at a time, in float32.

        GCN keeps gathered, weighted and gradient rows of the widest layer's outputs; attention keeps rows of
        every layer and has three more of the widest at its peak; the others gather their inputs.
        """
        widest = max(hidden, classes)
        if self.attention:
            columns = self.kept_rows * ((self.layers - 1) * hidden + classes) + 3 * widest
        else:
            columns = 3 * widest if self.weighted else max(features, 2 * hidden)
        return 4 * edges * columns


_OGB = Recipe("arxiv", hidden=256, layers=3, log_probabilities=True)
_PRODUCTS = replace(_OGB, graph="products")

PUBLISHED: dict[str, Recipe] = {
    "ogb-gcn": replace(_OGB, weighted=True),
    "ogb-sage": _OGB,
    # Of GAT, PyG keeps one gathered row an edge and layer: the messages' gradient is that row times weights.
    "ogb-gat": replace(_OGB, attention=True, kept_rows=1),
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
"""Models that answer requests: PyG's own models of three layers, which are not trained."""

RECIPES: dict[str, Recipe] = {**PUBLISHED, **TWO_LAYER}


def recipe(model: str) -> Recipe:
    """The recipe of the model of this name.

    Raises:
        ArgumentError: There is none.
    """
    check_choice("model", model, RECIPES)
    return RECIPES[model]


def network(model: str, features: int, hidden: int, classes: int) -> torch.nn.Module:
    """A new model, its parameters drawn from torch's generator."""
    recipe(model)
    from onehop.bench import plain_models

    makers: dict[str, Callable[..., torch.nn.Module]] = {**plain_models.MODELS, **plain_models.PUBLISHED}
    return makers[model](features, hidden, classes)


def served(model: str, width: int) -> torch.nn.Module:
    """A new model of three layers that answers requests; all its layers have this width.

    Raises:
        ConfigurationError: PyG is not installed.
    """
    with extras.needed("onehop bench serve", "pyg"):
        from onehop.bench import plain_models
    return plain_models.SERVED[model](width)
