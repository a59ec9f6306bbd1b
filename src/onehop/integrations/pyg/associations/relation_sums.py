"""Sums over relations of aggregated rows times the relation's matrix, a block of destinations at a time.

A pair of a relation and a destination has an aggregated row. There can be as many pairs as edges, so that
where there are more than nodes, only those of some destinations are made at once, and made again in the
backward pass.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onehop.graph.relations import RelationBlock, Relations
from onehop.integrations.pyg.associations import order
from onehop.integrations.pyg.grouped import gradient_of_matrices, grouped_product
from onehop.kernels.cpu.rows import take_rows
from onehop.ops.aggregate import reduce_rows
from onehop.ops.recomputed import Needs, differentiated, recomputed


class NotFinite(Exception):
    """An aggregated row is infinite or no number."""


@dataclass(frozen=True, slots=True)
class RelationSums:
    """The sums, ready to run.

    Attributes:
        relations: The edges.
        reduce: "sum" or "mean": how the rows of each relation are aggregated.
        finite: Whether aggregated rows have to be finite.
    """

    relations: Relations
    reduce: str
    finite: bool

    def __call__(self, x: Tensor, matrices: Tensor) -> Tensor:
        """[num_dst, M]: the sums.

        Args:
            x: [num_src, K], the sources' rows.
            matrices: [R, K, M].

        Raises:
            NotFinite: There is a row that is not.
        """
        if len(self.relations.blocks) == 1:
            return self.recorded(x, matrices)
        out: Tensor = recomputed(self, x, matrices)
        return out

    def recorded(self, x: Tensor, matrices: Tensor) -> Tensor:
        """The sums, with the aggregated rows of all blocks kept if a gradient is recorded."""
        outs = [self._of_block(block, x, matrices) for block in self.relations.blocks]
        return torch.cat(outs) if len(outs) > 1 else outs[0]

    def _of_block(self, block: RelationBlock, x: Tensor, matrices: Tensor) -> Tensor:
        aggregated = reduce_rows(block.pairs, x, reduce=self.reduce)
        if self.finite and not order.is_finite(aggregated):
            raise NotFinite
        return reduce_rows(block.ends, grouped_product(aggregated, matrices, block.counts), reduce="sum")

    def forward(self, operands: Sequence[Tensor]) -> tuple[Tensor, tuple[()]]:
        """The sums, of which nothing is kept."""
        x, matrices = operands
        out = x.new_empty(self.relations.blocks[-1].last, matrices.size(2))
        for block in self.relations.blocks:
            out[block.first : block.last] = self._of_block(block, x, matrices)
        return out, ()

    def gradients(
        self, needs: Needs, operands: Sequence[Tensor], kept: Sequence[Any], *grads: Tensor | None
    ) -> tuple[Tensor, ...]:
        """The gradients of the rows and of the matrices, of those that are needed."""
        (x, matrices), (grad,) = operands, grads
        assert grad is not None
        of_x = torch.zeros_like(x, memory_format=torch.contiguous_format) if needs[0] else None
        of_matrices = torch.zeros_like(matrices, memory_format=torch.contiguous_format) if needs[1] else None
        turned = matrices.transpose(1, 2)
        for block in self.relations.blocks:
            pulled = take_rows(grad[block.first : block.last], block.targets)
            if of_matrices is not None:
                aggregated = reduce_rows(block.pairs, x, reduce=self.reduce)
                of_matrices += gradient_of_matrices(aggregated, pulled, block.counts)
                del aggregated  # as large as what is about to be made, like those below
            if of_x is not None:
                of_rows = grouped_product(pulled, turned, block.counts)
                del pulled
                shares = block.pairs.inverse_in_degrees(x.dtype) if self.reduce == "mean" else None
                of_x += reduce_rows(block.pairs.transpose(), of_rows, src_scale=shares)
                del of_rows
        return tuple(each for each in (of_x, of_matrices) if each is not None)

    def differentiable(
        self, needs: Needs, operands: Sequence[Tensor], *grads: Tensor | None
    ) -> tuple[Tensor, ...]:
        """The gradients as functions that can be differentiated again, with all aggregated rows."""
        return differentiated(self.recorded, needs, operands, grads)
