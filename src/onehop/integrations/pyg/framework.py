"""PyG as a framework that can be patched."""

from functools import partial
from typing import Any

from torch_geometric.nn import GATConv, HeteroLinear, HGTConv, HypergraphConv, MessagePassing, PNAConv
from torch_geometric.nn.conv import gcn_conv, hgt_conv

from onehop.integrations import session
from onehop.integrations.pyg import (
    decoders,
    edge_functions,
    functions,
    hgt,
    hook,
    hyperedges,
    loaders,
    negatives,
    pending,
    pna,
    products,
    programs,
    skip_gram,
    stand_in,
    triplets,
)
from onehop.integrations.pyg.associations import layers as associated, scores
from onehop.integrations.pyg.edges import rewrites
from onehop.integrations.pyg.known import classes_returning_weights, edge_updates
from onehop.integrations.pyg.operators import register
from onehop.integrations.pyg.rules import known_layers, rules
from onehop.integrations.rows import (
    Function,
    Row,
    building,
    everywhere,
    host_function,
    is_own,
    replaced,
    replacing,
)
from onehop.integrations.session import PYG, Framework, Settings
from onehop.loading import DISTRIBUTED


class Pyg(Framework):
    """PyTorch Geometric: installs and restores the rows of its patch table."""

    name = PYG

    def __init__(self) -> None:
        super().__init__()
        DISTRIBUTED.when_provided(self._add_divided)

    def layers(self) -> tuple[str, ...]:
        """The class names that ``patch(only=...)`` takes."""
        return known_layers()

    def rows(self, settings: Settings) -> list[Row]:
        """Return the rows of the patch table; no setting changes them."""
        register(products.OPERATORS)
        # Both calls read PyG's functions, so they come before the functions are replaced.
        rules()
        edge_updates()
        rewriting = rewrites.rows()
        noting = partial(pending.noting, traced=programs.attention_forward)
        of_gcn = next(row for row in rewriting if row.owner is gcn_conv and row.attribute == "gcn_norm")
        return [
            hook.template_row(),
            *rewriting,
            *associated.rows(of_gcn.ours if of_gcn.applies else None),
            *(
                _row(kind, "forward", partial(noting, scores=scores.of_target if kind is GATConv else None))
                for kind in classes_returning_weights()
            ),
            replacing(HypergraphConv, "forward", hyperedges.forward),
            replacing(HGTConv, "forward", hgt.forward),
            replacing(hgt_conv, "construct_bipartite_edge_index", hgt.joined),
            replacing(PNAConv, "forward", pna.forward),
            replacing(HeteroLinear, "forward_naive", hgt.products),
            *everywhere([*functions.rows(), *negatives.rows(), *edge_functions.rows(), *triplets.rows()]),
            *decoders.rows(),
            *skip_gram.rows(),
            *loaders.rows(),
            *stand_in.rows(),
        ]

    def install(self, settings: Settings) -> None:
        """Installs the rows, and wraps existing classes; has no effect if the rows are installed already."""
        if not self._rows:
            super().install(settings)
            hook.wrap_existing()
            self._add_divided()

    def _add_divided(self) -> None:
        """Installs the rows for divided graphs if the patch is on and ``onehop.distributed`` is imported."""
        with session.lock:
            if self._rows and DISTRIBUTED.provided is not None:
                from onehop.integrations.pyg import divided

                with building.set(self.part):
                    self.add(divided.rows())

    def remove(self) -> None:
        """Restores the replaced attributes, and the functions of all classes."""
        super().remove()
        hook.unwrap_all()

    def replaced(self) -> list[str]:
        """The dotted names of everything that is replaced now."""
        return super().replaced() + (hook.wrapped_classes() if self._rows else [])

    def silence(self, module: Any) -> str | None:
        """Return why a layer never reached the wrapped ``propagate``; None if the module is not a layer."""
        if not isinstance(module, MessagePassing):
            return None
        if "propagate" in vars(module):
            return "its propagate is set on the instance, as PyG does for explainers and decomposed_layers"
        if replaced(type(module).propagate) is None:
            if type(module).propagate is MessagePassing.propagate:
                return "MessagePassing.propagate was replaced by another function"
            return "its class has a propagate of its own"
        return "it propagated nothing"


def _row(owner: Any, attribute: str, maker: Function) -> Row:
    """Return the row that replaces a function by the function that ``maker`` makes from it."""
    theirs = host_function(owner, attribute)
    if not is_own(theirs):
        return Row(owner, attribute, theirs, theirs)
    return Row(owner, attribute, maker(theirs), theirs)
