"""NequIP as a framework that can be patched."""

from typing import Any

from nequip.nn._tp_scatter_base import TensorProductScatter
from torch import Tensor

from onehop.integrations import reports
from onehop.integrations.equivariant.products import summed
from onehop.integrations.rows import Function, Leave, Row, replacing
from onehop.integrations.session import NEQUIP, Framework, Settings


class NequIP(Framework):
    """NequIP, which has one module for product and sum."""

    name = NEQUIP

    def rows(self, settings: Settings) -> list[Row]:
        """Return the rows of the patch table; no setting changes them."""
        return [replacing(TensorProductScatter, "forward", _of_nequip)]


def _of_nequip(
    theirs: Function, layer: Any, x: Any, edge_attr: Any, edge_weight: Any, edge_dst: Any, edge_src: Any
) -> Tensor:
    """Run product and sum of NequIP's module."""
    try:
        return summed(layer, layer.tp, x, edge_attr, edge_weight, edge_src, edge_dst)
    except Leave as why:
        reports.refuse(layer, why.sentence)
        raise
