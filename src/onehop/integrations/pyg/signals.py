"""Several signals on one graph: operands with leading dimensions before the dimension of the nodes.

PyG calls this a static graph: features [batch, time, N, F] with ``node_dim=-2``. All signals together are
features [batch * time * N, F] in the same memory, over a graph with a copy of the edges for each signal. So
every rule and message runs on them as on any graph.
"""

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from onehop.compiler.arguments import SIZES, Argument, Kind
from onehop.compiler.snapshot import Snapshot
from onehop.graph.identity import remembered
from onehop.integrations import reports, session
from onehop.integrations.pyg.call import Plan
from onehop.integrations.pyg.leave import SIGNALS, is_plain, need
from onehop.ops.contexts import wraps

_PAIR = 2
_DIFFER = "its operands differ in the dimensions in front of that of the nodes"
_OTHERWISE = "its message does something else with the dimensions in front of that of the nodes"
# Numbers of signals, nodes and edges of a trial: all differ, and none is a product of others.
_PRIMES = (3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43)


@dataclass(frozen=True, slots=True)
class Signals:
    """A call of ``propagate`` on several signals, turned into a call on one joint signal.

    Attributes:
        leading: The sizes of the leading dimensions.
        layer: The layer.
        one: The layer as it is for one signal, whose operands have the nodes first.
        edge_index: [2, S * E], the edges of all S signals.
        operands: The operands of the joint call by name.
        leads: The names of operands that had the leading dimensions.
    """

    leading: torch.Size
    layer: Any
    one: Any
    edge_index: Tensor
    operands: dict[str, Any]
    leads: frozenset[str]

    @property
    def count(self) -> int:
        """The number of signals."""
        return math.prod(self.leading)

    def apart(self, out: Tensor) -> Tensor:
        """Return the signals' results, [..., N, ...], from the results of the joint signal, [S * N, ...]."""
        shape = (*self.leading, out.size(0) // self.count, *out.shape[1:])
        if self.one.aggr in ("max", "min") and out.requires_grad:
            return out.view(shape)  # the backward pass reads it, as in PyG, so writes to it are an error
        # Autograd allows writes to this result, because it does not know that it is a view.
        result: Tensor = torch.ops.aten._unsafe_view.default(out, shape)
        return result

    def plan(self, one: Any) -> Plan:
        """Return the plan of the signals, made from the plan of the joint signal."""

        def shown(layer: Any) -> reports.Call:
            call: reports.Call = one.described(layer)
            return replace(call, form=f"{call.form}, {self.count} signals")

        def run() -> Tensor:
            return self.apart(one.run())

        # Without a machine, there is no refusal to report.
        aside = one.aside if session.now.machine else ""
        return Plan(
            one.form, one.reduce, one.graph, one.x, run, backend=one.backend, aside=aside, shown=shown
        )

    def with_leading(self, argument: Argument) -> Argument:
        """Return the argument of a message, with the number of leading dimensions of its operand."""
        name = argument.name
        operand = name[:-2] if argument.kind in (Kind.SOURCE, Kind.TARGET) else name
        return replace(argument, leading=len(self.leading) if operand in self.leads else 0)

    def refusal(
        self, message: Callable[..., Any], arguments: Sequence[Argument], operands: Sequence[Tensor]
    ) -> str | None:
        """Return why the message differs between several signals and the joint signal; None if it does not.

        It differs if it counts dimensions from the front, or reads their number. The message runs both ways
        on a few random rows to find out.

        Args:
            message: The message, which takes a layer.
            arguments: The arguments of the message for one signal.
            operands: The tensors from which the arguments are made.
        """
        leads, sizes = len(self.leading), {size for tensor in operands for size in tensor.shape}
        free = [number for number in _PRIMES if number not in sizes]
        if len(free) < leads + 2:
            return f"{_OTHERWISE}, or may"
        edges, nodes, *leading = free[: leads + 2]
        trial = _Trial(tuple(leading), nodes, edges)
        apart, together = trial.arguments(arguments, operands)
        with torch.no_grad(), torch.random.fork_rng([]):
            try:
                torch.default_generator.manual_seed(0)
                several = message(Snapshot(self.layer).layer, **apart)
                torch.default_generator.manual_seed(0)
                one = message(Snapshot(self.one).layer, **together)
            except Exception as error:  # the user's message failed; PyG's own code reports it
                return f"{_OTHERWISE} ({type(error).__name__}: {error})"
        return None if trial.agree(several, one) else _OTHERWISE


def folded(
    layer: Any, message: Sequence[inspect.Parameter], edge_index: Any, kwargs: dict[str, Any]
) -> Signals:
    """Return a call on several signals as a call on one joint signal.

    Args:
        layer: The layer.
        message: The parameters of its message.
        edge_index: The edges, as ``propagate`` got them.
        kwargs: The operands of ``propagate``, by name.

    Raises:
        Leave: PyG's own code has to run.
    """
    need(is_plain(edge_index) and edge_index.dim() == _PAIR and edge_index.layout is torch.strided, SIGNALS)
    dim, edges = layer.node_dim, edge_index.size(1)
    lifted = {p.name[:-2] for p in message if p.name.endswith(("_i", "_j"))} & kwargs.keys()
    places = {id(t): _place(t, dim) for name in lifted for t in _tensors(kwargs[name])}
    # A tensor without leading dimensions is the same for all signals.
    several = [t for name in lifted for t in _tensors(kwargs[name]) if places[id(t)]]
    # Operands that the message does not read add no dimensions to its result.
    read = _read(layer, message, kwargs)
    need(any(t is operand for t in several for operand in read), SIGNALS)
    shapes = {t.shape[: places[id(t)]] for t in several}
    need(len(shapes) == 1, _DIFFER)
    leading = shapes.pop()
    count = math.prod(leading)
    need(count and edges, SIGNALS)
    joint = dict[int, Tensor]()

    def rows_of(value: Any) -> Any:
        """Return the rows of all signals; they are made once for each tensor."""
        if not isinstance(value, Tensor):
            return value
        if id(value) not in joint:
            joint[id(value)] = _rows_of(value, leading, places[id(value)] > 0)
        return joint[id(value)]

    operands, leads = dict(kwargs), set[str]()
    for name, value in kwargs.items():
        if name in lifted:
            pair = isinstance(value, tuple | list)
            operands[name] = tuple(map(rows_of, value)) if pair else rows_of(value)
            if any(places[id(t)] for t in _tensors(value)):
                leads.add(name)
        elif isinstance(value, Tensor) and name != "size":
            of_signals = value.shape[: len(leading) + 1] == (*leading, edges)
            if of_signals or value.shape[:1] == (edges,):
                operands[name] = _rows_of(value, leading, of_signals)
            if of_signals:
                leads.add(name)
    sizes = _sizes(layer, message, kwargs)
    if kwargs.get("size") is not None:
        operands["size"] = [count * rows for rows in sizes]
    every = remembered(
        edge_index, key=("signals", count, sizes), make=lambda: _edges_of(edge_index, count, sizes)
    )
    one = layer
    if dim > 0:
        one = object.__new__(type(layer))
        vars(one).update(vars(layer), node_dim=0)
    return Signals(leading, layer, one, every, operands, frozenset(leads))


def _tensors(operand: Any) -> list[Tensor]:
    """Return the tensors of an operand that belongs to nodes."""
    pair = operand if isinstance(operand, tuple | list) else (operand,)
    tensors = [tensor for tensor in pair if isinstance(tensor, Tensor)]
    need(all(is_plain(t) and t.layout is torch.strided for t in tensors) and not wraps(*tensors), SIGNALS)
    return tensors


def _read(layer: Any, message: Sequence[inspect.Parameter], kwargs: dict[str, Any]) -> list[Any]:
    """Return the operands of nodes that a message reads, each for its end of the edges."""
    operands, sending = [], 0 if layer.flow == "source_to_target" else 1
    for name in (parameter.name for parameter in message if parameter.name.endswith(("_i", "_j"))):
        value = kwargs.get(name[:-2])
        if isinstance(value, tuple | list):
            need(len(value) == _PAIR)
            value = value[sending if name.endswith("_j") else 1 - sending]
        operands.append(value)
    return operands


def _place(tensor: Tensor, dim: int) -> int:
    """Return the dimension of the nodes, counted from the front."""
    dims = tensor.dim()
    need(-dims <= dim < dims)
    return dim % dims


def _sizes(layer: Any, message: Sequence[inspect.Parameter], kwargs: dict[str, Any]) -> tuple[int, int]:
    """Return the number of nodes for each row of an ``edge_index``, as PyG determines it."""
    sizes = list(kwargs.get("size") or (None, None))
    need(len(sizes) == _PAIR)
    sending = 0 if layer.flow == "source_to_target" else 1
    for parameter in message:
        name, end = parameter.name[:-2], sending if parameter.name.endswith("_j") else 1 - sending
        if not parameter.name.endswith(("_i", "_j")) or name not in kwargs:
            continue
        value = kwargs[name]
        pair = value if isinstance(value, tuple | list) else [value if at == end else None for at in (0, 1)]
        need(len(pair) == _PAIR)
        for at, tensor in enumerate(pair):
            if isinstance(tensor, Tensor):
                rows = tensor.size(layer.node_dim)
                need(sizes[at] in (None, rows))
                sizes[at] = rows
    first, second = (sizes[at] if sizes[at] is not None else sizes[1 - at] for at in (0, 1))
    need(type(first) is int and type(second) is int)
    return first, second


def _edges_of(edge_index: Tensor, count: int, sizes: tuple[int, int]) -> Tensor:
    """Return the edges of all signals, [2, count * E]."""
    # A number that is out of range is also out of range in the first or last signal, so the graph refuses it.
    rows = torch.tensor(sizes, dtype=edge_index.dtype, device=edge_index.device).unsqueeze(1)
    firsts = rows * torch.arange(count, dtype=edge_index.dtype, device=edge_index.device)
    every: Tensor = (firsts.unsqueeze(2) + edge_index.unsqueeze(1)).flatten(1)
    return every


@dataclass(frozen=True, slots=True)
class _Trial:
    """A trial of a message on a few random rows, as several signals and as one joint signal."""

    leading: tuple[int, ...]
    nodes: int
    edges: int

    def arguments(
        self, arguments: Sequence[Argument], operands: Sequence[Tensor]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the arguments of a message for several signals, and for the joint signal."""
        chance, count = torch.Generator("cpu").manual_seed(0), math.prod(self.leading)
        apart, together = dict[str, Any](), dict[str, Any]()
        for argument in arguments:
            name = argument.name
            if argument.kind in (Kind.VALUE, Kind.WHOLE):
                value = argument.value if argument.at is None else operands[argument.at]
                sized = name in SIZES
                apart[name], together[name] = (self.nodes, count * self.nodes) if sized else (value, value)
            elif argument.at is None:
                numbers = torch.randint(self.nodes, (self.edges,), generator=chance, device="cpu")
                firsts = self.nodes * torch.arange(count, device="cpu").unsqueeze(1)
                apart[name], together[name] = numbers, (firsts + numbers).flatten()
            else:
                shape = (*self.leading, self.edges) if argument.leading else (self.edges,)
                rows = apart[name] = _like(operands[argument.at], shape, chance)
                together[name] = _rows_of(rows, self.leading, bool(argument.leading))
        return apart, together

    def agree(self, several: Any, one: Any) -> bool:
        """Return whether messages of several signals equal the messages of the joint signal."""
        leads = len(self.leading)
        if not isinstance(several, Tensor) or several.shape[: leads + 1] != (*self.leading, self.edges):
            return False
        bound = 1e3 * torch.finfo(several.dtype).eps if several.is_floating_point() else 0.0
        several = several.flatten(0, leads)
        return several.shape == one.shape and torch.allclose(several, one, bound, bound, equal_nan=True)


def _rows_of(tensor: Tensor, leading: Sequence[int], has_them: bool) -> Tensor:
    """Return the rows of all signals, [S * N, ...], from a tensor [..., N, ...] or a shared one, [N, ...]."""
    every = tensor if has_them else tensor.expand(*leading, *tensor.shape)
    return every.reshape(-1, *every.shape[len(leading) + 1 :])


def _like(operand: Tensor, shape: tuple[int, ...], chance: torch.Generator) -> Tensor:
    """Return random rows like an operand's: numbers between 1/4 and 3/4, or some of its integers."""
    shape = (*shape, *operand.shape[1:])
    if operand.is_floating_point() or operand.is_complex():
        return (torch.rand(shape, generator=chance, device="cpu") / 2 + 0.25).to(operand.dtype)
    return operand.flatten()[torch.randint(operand.numel(), shape, generator=chance, device="cpu")]
