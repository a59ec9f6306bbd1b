"""Runs a message and its reduction block by block, and recomputes them in the backward pass."""

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
        """Return the messages of edges, [edges, ...], from the rows of the arguments."""
        ...

    def reduce(self, rows: BlockRows) -> Tensor:
        """Return the messages, reduced over rows, [rows, ...]."""
        ...

    def renamed(self, others: dict[int, Tensor]) -> tuple[Self, set[int]]:
        """Return a copy of the code with tensors replaced, by their ids, and the ids of the replaced ones."""
        ...


@dataclass(slots=True)
class BlockRun:
    """One propagation in blocks.

    Attributes:
        code: The message and its reduction.
        arguments: The arguments of the message.
        graph: The graph.
        blocks: The blocks of the graph.
        linear: "sum" or "mean" if the reduction is exactly that; None for any other reduction.
        autocast: The dtype of autocast, also in the backward pass; None without autocast.
        operands: Number of operands; parameters follow them, and saved tensors come last.
        parameters: Number of parameters.
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
        """Return the reduced messages, [num_dst, ...].

        Args:
            operands: The tensors from which the arguments are made.
            parameters: Other tensors that may need a gradient.
            saved: Other tensors; autograd reports writes to them before the backward pass.
        """
        self.operands, self.parameters = len(operands), len(parameters)
        out: Tensor = recomputed(self, *operands, *parameters, *saved)
        return out

    def _parts(self, tensors: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Return the operands and the parameters."""
        last = self.operands + self.parameters
        return list(tensors[: self.operands]), list(tensors[self.operands : last])

    def forward(self, tensors: Sequence[Tensor]) -> tuple[Tensor, tuple[()]]:
        """Return the reduced messages, without recording; nothing is saved."""
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
        """Return the reduced messages of one block, and the rows of operands that need a gradient."""
        messages, leaves = self.messages(block, operands, needs)
        with under_autocast(self.autocast):
            return self.code.reduce(BlockRows(block.graph, messages)), leaves

    def messages(
        self, block: Block, operands: list[Tensor], needs: tuple[bool, ...] | None
    ) -> tuple[Tensor, list[tuple[Argument, Tensor]]]:
        """Return the messages of one block, and the rows of operands that need a gradient, as leaves."""
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
        """Return the needed gradients, computed block by block."""
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
        """Return gradients that can be differentiated again; as in PyG, memory is edges times width.

        :class:`.Whole` cannot be used, because the message's code holds the parameters. Here they are
        replaced by views in the code; a parameter that cannot be replaced stays.
        """
        operands, parameters = self._parts(tensors)
        # All inputs are replaced by views, so that an operand that was made from another operand or from a
        # parameter does not also contribute to that one's gradient.
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
        """Adds a block's contribution to the gradients; all intermediate tensors are freed with the call."""
        with torch.enable_grad():
            out, leaves, pulled = self._recompute(block, operands, needs, grad)
        if not out.requires_grad:
            return
        totals = gradients[len(operands) : len(operands) + len(parameters)]
        learnable = [p for p, total in zip(parameters, totals, strict=True) if total is not None]
        # Some gradients are zeros without memory, such as the gradient of sign().
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
        """Return the outputs and inputs of a block's differentiation, and the outputs' gradient."""
        here = grad[slice(*block.rows)]
        if self.linear is None:
            out, leaves = self.block(block, operands, needs)
            return out, leaves, here
        messages, leaves = self.messages(block, operands, needs)
        # For a sum, the reduction need not run: every message gets its row's gradient.
        with torch.no_grad():
            return messages, leaves, Choice(self.graph, block).spread(here, self.linear == "mean")


def under_autocast(dtype: torch.dtype | None) -> AbstractContextManager[Any]:
    """Return a context in which autocast uses this dtype; None means that autocast is off.

    Autocast's cache of converted parameters is off, because copies made in a block's forward pass pass on no
    gradient.
    """
    if dtype is None and not torch.is_autocast_enabled("cpu"):
        return nullcontext()
    return torch.autocast("cpu", dtype=dtype, enabled=dtype is not None, cache_enabled=False)


class Choice:
    """Selects the rows of a block's edges."""

    def __init__(self, graph: Graph, block: Block) -> None:
        self._graph = graph
        self._block = block
        self._targets: Tensor | None = None

    @property
    def sources(self) -> Tensor:
        """The sending nodes, [edges], int32."""
        return self._graph.col[slice(*self._block.edges)]

    @property
    def targets(self) -> Tensor:
        """The receiving nodes, [edges], int32, counted from the block's first row."""
        if self._targets is None:
            first, last = self._block.edges
            rows = torch.arange(self._block.graph.num_dst, dtype=torch.int32, device="cpu")
            self._targets = rows.repeat_interleave(self._block.graph.in_degrees, output_size=last - first)
        return self._targets

    @property
    def numbers(self) -> Tensor | None:
        """The edges' numbers, [edges], int32 or int64; None if they are consecutive."""
        perm = self._graph.perm
        return None if perm is None else perm[slice(*self._block.edges)]

    def rows(self, argument: Argument, operands: list[Tensor]) -> Any:
        """Return an argument's rows; they are differentiable if gradients are recorded."""
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
        """Return, for every edge, its destination's row; divided by the number of edges if ``mean``."""
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
    """Lets parameters that were frozen after the forward pass get gradients inside the block, as in PyG."""
    for each in frozen:
        each.requires_grad_()
    try:
        yield
    finally:
        for each in frozen:
            each.requires_grad_(False)


def _accumulator(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype
