"""PyG as a framework that can be patched."""

import importlib
from collections.abc import Callable
from typing import Any

import torch_geometric
from torch_geometric.nn import HeteroLinear, HGTConv, HypergraphConv, MessagePassing, PNAConv
from torch_geometric.nn.conv import gcn_conv

from onehop.errors import ConfigurationError
from onehop.integrations.pyg import (
    associations,
    derived_tensors,
    functions,
    gcn_norm,
    hgt,
    hook,
    hyperedges,
    loaders,
    pending,
    pna,
    self_loops,
    typed_edges,
    typed_products,
)
from onehop.integrations.pyg.programs import linear_layers, traced
from onehop.integrations.pyg.recognise import (
    GCN_NORM_MODULES,
    JOINED_EDGES,
    SELF_LOOP_NAMES,
    classes_returning_weights,
    edge_updates,
    known_layers,
    message_forms,
)
from onehop.integrations.reports import LOGGER
from onehop.integrations.rows import Row, replaced, replacing
from onehop.integrations.settings import Settings
from onehop.loading import is_loaded, when_loaded

_OLDEST, _NEWEST = (2, 6), (2, 8)


class Pyg:
    """PyTorch Geometric: what is replaced in it, and how it is put back."""

    name = "pyg"

    def __init__(self) -> None:
        version = tuple(int(part) for part in torch_geometric.__version__.split(".")[:2])
        if version < _OLDEST:
            raise ConfigurationError(
                f"torch_geometric {torch_geometric.__version__} is too old for onehop.patch(), which "
                f"needs 2.6 to 2.8. Upgrade with: pip install -U torch_geometric"
            )
        if version > _NEWEST:
            LOGGER.warning(
                "onehop.patch() was tested with torch_geometric 2.6 to 2.8, and this is %s: compare results.",
                torch_geometric.__version__,
            )
        self._rows: list[Row] = []
        when_loaded("distributed", self._install_divided)

    def layers(self) -> tuple[str, ...]:
        """The names that ``patch(only=...)`` takes."""
        return known_layers()

    def install(self, settings: Settings) -> None:
        """Puts ours in place, whatever the settings; again does nothing."""
        if self._rows:
            return
        # Both read PyG's functions, and nobody has replaced them by ours.
        message_forms()
        edge_updates()
        self._rows = _rows()
        for row in self._rows:
            row.install()
        hook.wrap_existing()
        self._install_divided()

    def _install_divided(self) -> None:
        """Puts in place what divided graphs need, while patched, once somebody has imported them."""
        if not self._rows or not is_loaded("distributed"):
            return
        from onehop.integrations.pyg import divided

        rows = divided.rows()
        for row in rows:
            row.install()
        self._rows += rows

    def remove(self) -> None:
        """Puts theirs back."""
        for row in reversed(self._rows):
            row.restore()
        self._rows = []
        hook.unwrap_all()

    def replaced(self) -> list[str]:
        """The dotted names of everything that is ours now."""
        return [row.name for row in self._rows] + (hook.wrapped_classes() if self._rows else [])

    def silence(self, module: Any) -> str | None:
        """Return why a layer never reached the wrapped ``propagate``; None if the module is no layer."""
        if not isinstance(module, MessagePassing):
            return None
        if "propagate" in vars(module):
            return "its propagate is set on the instance, as PyG does for explainers and decomposed_layers"
        if replaced(type(module).propagate) is None:
            if type(module).propagate is MessagePassing.propagate:
                return "MessagePassing.propagate was replaced by another function"
            return "its class has a propagate of its own"
        return "it propagated nothing"


def _rows() -> list[Row]:
    rows = [hook.template_row()]
    makers = {
        "gcn_norm": gcn_norm.remembering,
        "construct_bipartite_edge_index": typed_edges.remembering_join,
        **self_loops.REMEMBERING,
    }
    made: dict[Callable[..., Any], Callable[..., Any]] = {}
    for name, attribute in (
        *((name, "gcn_norm") for name in GCN_NORM_MODULES),
        *SELF_LOOP_NAMES,
        JOINED_EDGES,
    ):
        module = importlib.import_module(name)
        theirs = getattr(module, attribute)
        # One for all modules, as theirs is: TorchScript knows functions by their names.
        if theirs not in made:
            made[theirs] = makers[attribute](theirs)
        rows.append(Row(module, attribute, made[theirs], theirs))
    rows.extend(associations.rows(made[gcn_conv.gcn_norm], linear_layers.gcn, linear_layers.rooted))
    rows.extend(
        Row(kind, "forward", pending.noting(kind.forward, traced.attention_forward), kind.forward)
        for kind in classes_returning_weights()
    )
    rows.append(
        Row(HypergraphConv, "forward", hyperedges.attending(HypergraphConv.forward), HypergraphConv.forward)
    )
    rows.append(Row(HGTConv, "forward", hgt.over_all_types(HGTConv.forward), HGTConv.forward))
    rows.append(replacing(PNAConv, "forward", pna.forward))
    rows.extend(functions.rows())
    rows.extend(loaders.rows())
    rows.extend(derived_tensors.rows())
    rows.append(replacing(HeteroLinear, "forward_naive", typed_products.products))
    return rows
