"""Trials of a message on a few edges, before it runs on all edges."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from onehop.compiler.arguments import PAIRS, SIZES, Argument, Kind
from onehop.compiler.history import Refused
from onehop.compiler.lines import at_line, line_of_error
from onehop.compiler.tracing import Watched, few_edges, trace
from onehop.compiler.watches import Run
from onehop.ops.checks import FLOATS

_COUNTS = ("size_i", "dim_size")

COMPLEX = (torch.complex64, torch.complex128)
"""The complex dtypes of messages."""

FAILS = "its message fails on a few of the edges"
"""The beginning of the refusal of a message that raised an error; its operands may be the cause."""

Traced = tuple[Watched, dict[str, Any]]
"""The findings of a trace, and the arguments of its first run."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A message that is to be traced, with its arguments.

    Attributes:
        message: The message, which :mod:`onehop.compiler.reading` has analysed; called with keyword
            arguments.
        each: The message's arguments.
        operands: The tensors from which the arguments are made.
        sizes: The sizes of other tensors that the message may use.
        some: Returns the numbers, sources and destinations, int64, of the first edges, given their count.
        edges: The number of edges.
        destinations: The number of destinations.
        node_dim: The dimension of messages that becomes the first one.
        in_c: See :func:`.tracing.trace`.
        reduces: Whether the function reduces its messages itself; see :func:`.tracing.trace`.
    """

    message: Callable[..., Any]
    each: list[Argument]
    operands: list[Tensor]
    sizes: frozenset[int]
    some: Callable[[int], tuple[Tensor, Tensor, Tensor]]
    edges: int
    destinations: int
    node_dim: int
    in_c: bool
    reduces: bool = False


def may_stay_inside(each: list[Argument]) -> bool:
    """Return whether a message takes destination numbers, so that it could reduce over destinations."""
    return any(argument.kind is Kind.TARGET_NUMBER or argument.kind in PAIRS for argument in each)


def traced_alone(trial: Trial) -> Traced | str:
    """Trace a message that treats each edge separately; return the reason if it does not."""
    return _tried(trial, lambda few: [(edges, None) for edges in few[:2]])


def traced_inside(trial: Trial) -> Traced | str:
    """Trace a message that may reduce over each destination; return the reason if it mixes destinations.

    The message gets other destination numbers than the real ones. Any use of the numbers or their count
    except for reductions is detected.
    """

    def counts(few: list[int]) -> list[tuple[int, int | None]] | str:
        if len(few) < 4:
            return "no number of destinations can be told apart from its sizes"
        # There are more edges than destinations, because some messages take the number of edges as the number
        # of destinations.
        return [(few[2], few[0]), (few[3], few[1])]

    return _tried(trial, counts)


def _tried(trial: Trial, counts: Callable[[list[int]], list[tuple[int, int | None]] | str]) -> Traced | str:
    """Traces a message with numbers of edges that differ from all sizes in the message."""
    if trial.edges == 0:
        return "there are no edges"
    whole = {a.at for a in trial.each if a.kind is Kind.WHOLE}
    sizes = {size for at, t in enumerate(trial.operands) for size in t.shape[0 if at in whole else 1 :]}
    sizes |= trial.sizes
    while True:
        few = few_edges(sizes)
        if len(few) < 2:
            return "no number of edges can be told apart from its sizes"
        chosen = counts(few)
        traced = chosen if isinstance(chosen, str) else _traced(trial, chosen)
        if isinstance(traced, str):
            return traced
        met = traced[0].sizes - sizes
        if counts(few_edges(sizes | met)) == chosen:
            return traced
        sizes |= met


def _traced(trial: Trial, counts: list[tuple[int, int | None]]) -> Traced | str:
    """Traces with these numbers of edges and, if reducing over destinations is allowed, of destinations."""
    saved = _Saved()
    with (
        torch.inference_mode(False),
        torch.set_grad_enabled(torch.is_grad_enabled()),
        # Activation checkpointing has hooks for saved tensors, which differ between its passes and must not
        # see a trial.
        saved_tensors_hooks(saved.pack, _unchanged),
    ):
        operands = [t.detach().requires_grad_(t.requires_grad) for t in trial.operands]
        runs = [_run(trial, operands, *each) for each in counts]
        try:
            watched = trace(trial.message, runs, trial.reduces, trial.in_c, saved.has)
        except Refused as why:
            return str(why)
        except Exception as error:  # the real run of the user's message raises the error again
            where = at_line(line_of_error(error.__traceback__))
            first, *_ = str(error).splitlines() or [""]  # TorchScript's errors have many lines
            return f"{FAILS} ({type(error).__name__}: {first}){where}"
    out_dims, dim = watched.out.dim(), trial.node_dim
    if not -out_dims <= dim < out_dims or dim % out_dims != 0:
        return "node_dim is not the first dimension of its messages"
    if watched.out.dtype not in (*FLOATS, *COMPLEX):
        return "its messages are not floating-point numbers of 16, 32 or 64 bits"
    return watched, runs[0].arguments


class _Saved:
    """Records the memory that torch saves for the backward pass of a trial."""

    def __init__(self) -> None:
        self._memory: set[int] = set()

    def pack(self, tensor: Tensor) -> tuple[Tensor, int]:
        """Return the detached tensor and its version; with its history, a saved result would hold itself."""
        with torch._C._DisableTorchDispatch():  # this is not an operation of the message
            self._memory.add(tensor.untyped_storage()._cdata)
            return tensor.detach(), tensor._version

    def has(self, tensor: Tensor) -> bool:
        """Return whether a tensor, or a view of it, was saved."""
        return tensor.untyped_storage()._cdata in self._memory


def _unchanged(saved: tuple[Tensor, int]) -> Tensor:
    """Return the saved tensor; raise if it was written to."""
    tensor, version = saved
    if tensor._version != version:
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace operation"
        )
    return tensor


def _run(trial: Trial, operands: list[Tensor], edges: int, destinations: int | None) -> Run:
    """Return the message's arguments for a run on this number of edges."""
    # The first edges are used, repeatedly if there are not enough.
    chosen = torch.arange(edges, device="cpu") % trial.edges
    chosen, sources, targets = (each[chosen] for each in trial.some(min(edges, trial.edges)))
    inside, numbers = destinations is not None, targets
    real = trial.edges, trial.destinations
    run = Run(edges, {}, [], [], [], destinations, draws=inside, real=real, sizes={})
    if destinations is not None:
        numbers = torch.arange(0, 2 * edges, 2, device="cpu") % destinations
    for argument in trial.each:
        kind = argument.kind
        value: Any
        if kind is Kind.VALUE:
            value = argument.value
            if argument.name in SIZES and value is not None:
                few = destinations if argument.name in _COUNTS else None
                run.sizes[argument.name] = value, few
        elif kind is Kind.WHOLE and argument.at is not None:
            value = operands[argument.at]
        elif kind in PAIRS:
            value = torch.stack([sources, numbers] if PAIRS[kind] else [numbers, sources])
            run.pairs.append((value, PAIRS[kind]))
        elif argument.at is None:
            value = (sources if kind is Kind.SOURCE_NUMBER else numbers).clone()
            if kind is Kind.TARGET_NUMBER and inside:
                run.numbers.append(value)
            run.rows.append(value)
        else:
            ends = chosen if kind is Kind.EDGE else sources if kind is Kind.SOURCE else targets
            operand = operands[argument.at]
            if kind is Kind.EDGE and not operand.is_contiguous() and edges <= trial.edges:
                value = operand[:edges]  # keeps the strides, because some views raise for them
            else:
                value = operand.index_select(0, ends)
            value = value.detach().requires_grad_(operand.requires_grad)
            run.rows.append(value)
        run.arguments[argument.name] = value
    return run
