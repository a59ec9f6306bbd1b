"""A message and its reduction, block by block, forward and, recomputed, backward."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from onehop.compiler.arguments import PAIRS, Argument, Kind
from onehop.compiler.blocks import Block, EdgeBlocks, whole_block
from onehop.compiler.rows import BlockRows
from onehop.graph import Graph
from onehop.kernels.cpu.rows import add_rows, take_rows
from onehop.ops.contexts import materialized
from onehop.ops.recomputed import Needs, recomputed


class Code(Protocol):
    """A message and its reduction, as code that runs again in the backward pass."""

    def message(self, **arguments: Any) -> Tensor:
        """The messages of edges: [edges, ...], from the rows of their arguments."""
        ...

    def reduce(self, rows: BlockRows) -> Tensor:
        """The messages, reduced over rows: [rows, ...]."""
        ...

    def renamed(self, others: dict[int, Tensor]) -> tuple[Self, set[int]]:
        """A copy of the code with tensors replaced, by their ids, and the ids of the replaced ones."""
        ...


@dataclass(slots=True)
class BlockRun:
    """One propagation in blocks.

    Attributes:
        code: What to run.
        arguments: What the message gets.
        graph: Over which edges.
        blocks: Of the graph.
        linear: "sum" or "mean" if the reduction is no more than that; None for any other.
        autocast: The dtype of autocast, backward too; None without.
        operands: How many operands there are; parameters come behind them, and what is saved at last.
        parameters: How many parameters there are.
    """

    code: Code
    arguments: list[Argument]
    graph: Graph
    blocks: EdgeBlocks
    linear: str | None
    autocast: torch.dtype | None
    operands: int = field(default=0, init=False)
    parameters: int = field(default=0, init=False)

    def __call__(self, operands: list[Tensor], parameters: list[Tensor], saved: list[Tensor]) -> Tensor:
        """The reduced messages: [num_dst, ...].

        Args:
            operands: The tensors behind the arguments.
            parameters: Other tensors that may need a gradient.
            saved: Other tensors whose writes before the backward pass autograd is to report.
        """
        self.operands, self.parameters = len(operands), len(parameters)
        out: Tensor = recomputed(self, *operands, *parameters, *saved)
        return out

    def _parts(self, tensors: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """The operands, and the parameters."""
        last = self.operands + self.parameters
        return list(tensors[: self.operands]), list(tensors[self.operands : last])

    def forward(self, tensors: Sequence[Tensor]) -> tuple[Tensor, tuple[()]]:
        """The reduced messages, unrecorded; nothing is kept."""
        operands, _ = self._parts(tensors)
        out: Tensor | None = None
        with torch.no_grad():
            for block in self.blocks:
                rows, _ = self.block(block, operands, None)
                if out is None:
                    out = rows.new_zeros((self.graph.num_dst, *rows.shape[1:]))
                if block.whole:
                    out[slice(*block.rows)] = rows
                else:
                    out[block.rows[0]] += rows[0] * (block.share if self.linear == "mean" else 1.0)
        assert out is not None
        return out, ()

    def block(
        self, block: Block, operands: list[Tensor], needs: tuple[bool, ...] | None
    ) -> tuple[Tensor, list[tuple[Argument, Tensor]]]:
        """The reduced messages of one block, and the rows of operands that need a gradient."""
        messages, leaves = self.messages(block, operands, needs)
        with under_autocast(self.autocast):
            return self.code.reduce(BlockRows(block.graph, messages)), leaves

    def messages(
        self, block: Block, operands: list[Tensor], needs: tuple[bool, ...] | None
    ) -> tuple[Tensor, list[tuple[Argument, Tensor]]]:
        """The messages of one block, and the rows of operands that need a gradient, as leaves."""
        chosen = Choice(self.graph, block)
        arguments: dict[str, Any] = {}
        leaves = []
        for argument in self.arguments:
            with torch.no_grad():
                value = chosen.rows(argument, operands)
            if needs is not None and argument.at is not None and needs[argument.at]:
                value = value.detach().requires_grad_()
                leaves.append((argument, value))
            arguments[argument.name] = value
        with under_autocast(self.autocast):
            return self.code.message(**arguments), leaves

    def gradients(
        self, needs: Needs, tensors: Sequence[Tensor], saved: Sequence[Any], *grads: Tensor | None
    ) -> tuple[Tensor, ...]:
        """The gradients that are needed, block by block."""
        (grad,) = grads
        assert grad is not None
        operands, parameters = self._parts(tensors)
        gradients = [
            torch.zeros(t.shape, dtype=_accumulator(t.dtype), device=t.device) if needed else None
            for t, needed in zip(tensors, needs, strict=True)
        ]
        pairs = zip(parameters, needs[self.operands :], strict=False)
        with _learned([each for each, needed in pairs if needed and not each.requires_grad]):
            for block in self.blocks:
                self._add_gradients(block, operands, parameters, needs, grad, gradients)
        return tuple(g.to(t.dtype) for g, t in zip(gradients, tensors, strict=True) if g is not None)

    def differentiable(
        self, needs: Needs, tensors: Sequence[Tensor], *grads: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        """The gradients as functions that can be differentiated again, as PyG's: edges times width.

        Not as :class:`.Whole` does, because the message's code holds the parameters: they get new names in
        there, and one that cannot keeps its own.
        """
        operands, parameters = self._parts(tensors)
        # New names for them all, so that an operand that was made from another, or from a parameter, does not
        # count for that too.
        inputs = [t.view_as(t) if needed else t for t, needed in zip(operands, needs, strict=False)]
        others = {id(p): p.view_as(p) for p in parameters if p.requires_grad}
        code, replaced = self.code.renamed(others)
        renamed = [others[id(p)] if id(p) in replaced else p for p in parameters]
        block = whole_block(self.graph)
        chosen = Choice(self.graph, block)
        arguments = {argument.name: chosen.rows(argument, inputs) for argument in self.arguments}
        with under_autocast(self.autocast):
            out = code.reduce(BlockRows(block.graph, code.message(**arguments)))
        variables = [t for t, needed in zip([*inputs, *renamed], needs, strict=False) if needed]
        return torch.autograd.grad(out, variables, grads, create_graph=True, allow_unused=True)

    def _add_gradients(
        self,
        block: Block,
        operands: list[Tensor],
        parameters: list[Tensor],
        needs: tuple[bool, ...],
        grad: Tensor,
        gradients: list[Tensor | None],
    ) -> None:
        """Adds what a block contributes to the gradients; all that it makes dies with the call."""
        with torch.enable_grad():
            out, leaves, pulled = self._recompute(block, operands, needs, grad)
        if not out.requires_grad:
            return
        totals = gradients[len(operands) : len(operands) + len(parameters)]
        learnable = [p for p, total in zip(parameters, totals, strict=True) if total is not None]
        # Some are zeros without memory, such as the gradient of a sign.
        block_gradients = materialized(
            torch.autograd.grad(out, [*(leaf for _, leaf in leaves), *learnable], pulled, allow_unused=True)
        )
        chosen = Choice(self.graph, block)
        for (argument, _), rows in zip(leaves, block_gradients, strict=False):
            if rows is not None:
                chosen.add_gradient(argument, rows, gradients)
        learned = (total for total in totals if total is not None)
        for total, part in zip(learned, block_gradients[len(leaves) :], strict=True):
            if part is not None:
                total += part

    def _recompute(
        self, block: Block, operands: list[Tensor], needs: tuple[bool, ...], grad: Tensor
    ) -> tuple[Tensor, list[tuple[Argument, Tensor]], Tensor]:
        """Outputs and inputs of a block's differentiation, and the gradient to begin with."""
        here = grad[slice(*block.rows)]
        if self.linear is None:
            out, leaves = self.block(block, operands, needs)
            return out, leaves, here
        messages, leaves = self.messages(block, operands, needs)
        # The gradient of a sum is known: every message gets its row's gradient.
        with torch.no_grad():
            return messages, leaves, Choice(self.graph, block).spread(here, self.linear == "mean")


def under_autocast(dtype: torch.dtype | None) -> AbstractContextManager[Any]:
    """The block in which autocast makes products of this dtype; None means that it is off.

    It keeps no copies of parameters: those made in the forward pass of a block pass no gradient on.
    """
    if dtype is None and not torch.is_autocast_enabled("cpu"):
        return nullcontext()
    return torch.autocast("cpu", dtype=dtype, enabled=dtype is not None, cache_enabled=False)


class Choice:
    """The rows of a block's edges."""

    def __init__(self, graph: Graph, block: Block) -> None:
        self._graph = graph
        self._block = block
        self._targets: Tensor | None = None

    @property
    def sources(self) -> Tensor:
        """[edges], int32: the sending nodes."""
        return self._graph.col[slice(*self._block.edges)]

    @property
    def targets(self) -> Tensor:
        """[edges], int32: the receiving nodes, counted from the block's first."""
        if self._targets is None:
            first, last = self._block.edges
            rows = torch.arange(self._block.graph.num_dst, dtype=torch.int32, device="cpu")
            self._targets = rows.repeat_interleave(self._block.graph.in_degrees, output_size=last - first)
        return self._targets

    @property
    def numbers(self) -> Tensor | None:
        """[edges], int32 or int64: the edges' numbers; None where they are consecutive."""
        perm = self._graph.perm
        return None if perm is None else perm[slice(*self._block.edges)]

    def rows(self, argument: Argument, operands: list[Tensor]) -> Any:
        """An argument's rows; differentiable where a gradient is recorded."""
        kind = argument.kind
        if kind is Kind.VALUE:
            return argument.value
        if kind is Kind.SOURCE_NUMBER:
            return self.sources.long()
        if kind is Kind.TARGET_NUMBER:
            return self.targets.long() + self._block.rows[0]
        if kind in PAIRS:
            numbers = [self.sources.long(), self.targets.long() + self._block.rows[0]]
            return torch.stack(numbers if PAIRS[kind] else numbers[::-1])
        assert argument.at is not None
        operand = operands[argument.at]
        if kind is Kind.WHOLE:
            return operand
        if kind is Kind.SOURCE:
            return _taken(operand, self.sources)
        if kind is Kind.TARGET:
            return _taken(operand[slice(*self._block.rows)], self.targets)
        if self.numbers is None:
            return operand[slice(*self._block.edges)]
        return _taken(operand, self.numbers)

    def spread(self, rows: Tensor, mean: bool) -> Tensor:
        """For every edge, the row that it goes to; its even share of that if ``mean``."""
        if mean:
            wide = _accumulator(rows.dtype)
            shares = self._block.graph.inverse_in_degrees(wide).view(-1, *[1] * (rows.dim() - 1))
            rows = (rows.to(wide) * (shares * self._block.share)).to(rows.dtype)
        return take_rows(rows, self.targets)

    def add_gradient(self, argument: Argument, rows: Tensor, gradients: list[Tensor | None]) -> None:
        """Adds the gradient of an argument's rows to its operand's gradient."""
        assert argument.at is not None
        gradient = gradients[argument.at]
        assert gradient is not None
        rows = rows.to(gradient.dtype)
        if argument.kind is Kind.SOURCE:
            add_rows(gradient, self.sources, rows)
        elif argument.kind is Kind.TARGET:
            add_rows(gradient[slice(*self._block.rows)], self.targets, rows)
        elif argument.kind is Kind.WHOLE:
            gradient += rows
        elif self.numbers is None:
            gradient[slice(*self._block.edges)] += rows
        else:
            add_rows(gradient, self.numbers, rows)


def _taken(operand: Tensor, index: Tensor) -> Tensor:
    if torch.is_grad_enabled() and operand.requires_grad:
        return operand.index_select(0, index)
    return take_rows(operand, index)


@contextmanager
def _learned(frozen: list[Tensor]) -> Iterator[None]:
    """Gives gradients to parameters that were frozen after the forward pass, as PyG's graph does."""
    for each in frozen:
        each.requires_grad_()
    try:
        yield
    finally:
        for each in frozen:
            each.requires_grad_(False)


def _accumulator(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype
