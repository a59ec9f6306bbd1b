"""Watches a message that runs on a few edges: its operations, and where the edges are.

A watch refuses what a trial must not do, such as writing to tensors that the message has not made. It records
everything else, and :mod:`onehop.compiler.tracing` compares the records of two runs.
"""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from onehop.compiler.aten import Mixes, Place, name_of, named
from onehop.compiler.counts import Counts, tried
from onehop.compiler.destinations import Destinations
from onehop.compiler.edge_dims import place_of_made, rule_of
from onehop.compiler.history import Refused
from onehop.compiler.lines import Line, line_below

_OURS = f"{Path(__file__).parents[1]}/"

# Functions that read or change a tensor without an operation that torch dispatches.
_BEHIND_THE_BACK = frozenset({
    "numpy", "tolist", "__array__", "data_ptr", "untyped_storage", "register_hook", "retain_grad",
    "requires_grad_", "register_post_accumulate_grad_hook", "backward",
})  # fmt: skip

_READS_VALUES = frozenset({"_local_scalar_dense", "equal", "is_nonzero", "nonzero", "masked_select", "item"})
# Tags of operations whose result, or its shape, depends on the contents of tensors.
_LOOKING = frozenset({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape})


@dataclass(frozen=True, slots=True)
class Run:
    """A run on a few edges.

    Attributes:
        edges: The number of edges of the run.
        arguments: The arguments of the message.
        rows: The arguments that have a row for every edge, in dimension 0.
        pairs: The arguments with the numbers of both ends, [2, edges], each with the row of the destinations.
        numbers: The entries of ``rows`` that are destination numbers, for reductions inside a destination;
            empty if such reductions are not allowed.
        destinations: The number of destinations that the message gets; None if it gets none.
        draws: Whether dropout is allowed; no random numbers are drawn for it.
        real: The real numbers of edges and destinations.
        sizes: Counts of nodes that the message gets, by argument: the real number, and the number in this run
            (None means the real number).
    """

    edges: int
    arguments: dict[str, Any]
    rows: list[Tensor]
    pairs: list[tuple[Tensor, int]]
    numbers: list[Tensor]
    destinations: int | None
    draws: bool
    real: tuple[int, int]
    sizes: dict[str, tuple[int, int | None]]


@dataclass(frozen=True, slots=True)
class Returned:
    """The tensors that a function returns that reduces its messages itself.

    Attributes:
        tensors: The tensors.
        container: The type of the returned container, tuple or list; None for a single tensor.
    """

    tensors: tuple[Tensor, ...]
    container: type | None


@dataclass(slots=True)
class Step:
    """One recorded operation."""

    operation: Any
    places: list[Place | None]  # places of the edges in its operands
    values: list[Any]  # its other arguments, and tensors that the message has not made
    result: Place | None  # place of the edges in its result
    line: Line | None  # line of the message
    filled: Any  # the value with which a tensor is filled; it is not a size


class PythonWatch(TorchFunctionMode):
    """Shows Python the real sizes, and refuses methods that dispatched operations do not reveal."""

    def __init__(self, watch: "Watch") -> None:
        super().__init__()
        self._watch = watch

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if getattr(function, "__name__", "") in _BEHIND_THE_BACK:
            raise Refused(f"its message calls {function.__name__} of a tensor")
        kwargs = kwargs or {}
        result = function(*tried(args), **tried(kwargs))
        if sys._getframe(1).f_code.co_filename.startswith(_OURS):
            return result  # a function of the patch that replaces torch's
        return self._watch.counts.of(self._watch.real, function, args, kwargs, result)


@dataclass(eq=False)
class Watch(TorchDispatchMode):
    """Inspects the operations of a run.

    Attributes:
        run: The run.
        runs: The code whose frame calls the message; lines below it belong to the message.
        steps: The operations in the form that is compared between two runs.
        outer: Tensors that the message uses besides its operands.
        met_at: The line of the first use of each of these tensors, by id.
        largest: Bytes per edge of the largest tensor that the message makes.
        looks: Whether the message reads contents of tensors other than its operands.
        calls: The operations with their arguments and results.
    """

    run: Run
    runs: CodeType
    steps: list[Step] = field(default_factory=list)
    outer: list[Tensor] = field(default_factory=list)
    met_at: dict[int, Line | None] = field(default_factory=dict)
    largest: int = 0
    looks: bool = False
    calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        operands = [value for value in self.run.arguments.values() if isinstance(value, Tensor)]
        self._edges = self.run.edges
        has_destinations = self.run.destinations is not None
        pairs = {id(pair): row for pair, row in self.run.pairs if has_destinations}
        self.destinations = Destinations(self.run.numbers, pairs, self.run.destinations, self._edges)
        self._places: dict[int, Place] = {id(tensor): Place(0) for tensor in self.run.rows}
        self._places.update((id(pair), Place(1)) for pair, _ in self.run.pairs)
        # All tensors that occurred, by id; they must stay alive so that their ids stay valid.
        self.met: dict[int, Tensor] = {id(tensor): tensor for tensor in operands}
        self.counts = Counts()
        self._results: set[int] = set()
        self._records = torch.is_grad_enabled()
        self.unrecorded: set[int] = set()
        self._foreign = {tensor.untyped_storage()._cdata for tensor in operands}

    def finish(self, out: Any, reduces: bool) -> None:
        """Checks the returned message, or the results that the function made from it."""
        self.returned: Returned | None = None
        if reduces:
            container = type(out) if type(out) in (tuple, list) else None
            outs = tuple(out) if container is not None else (out,)
            if not all(isinstance(each, Tensor) and self._is_result(each) for each in outs):
                raise Refused("its aggregate returns something else than messages and their sums")
            self.returned = Returned(outs, container)
            out = outs[0]
        elif not isinstance(out, Tensor):
            raise Refused(f"its message is a {type(out).__name__}, not a tensor")
        elif self.place(out) != Place(0):
            raise Refused("its message has no row for every edge")
        if not out.is_floating_point() and not out.is_complex():
            raise Refused("its messages are not floating-point numbers")
        self.out: Tensor = out

    def _is_result(self, tensor: Tensor) -> bool:
        """Return whether a tensor has a row for every edge, or for every destination."""
        return self.place(tensor) == Place(0) or self.destinations.have_rows(tensor)

    def place(self, tensor: Tensor) -> Place | None:
        """Return the place of the edges in a tensor; None if it has no edges."""
        return self._places.get(id(tensor))

    def real(self, tensor: Tensor, dim: int) -> int | None:
        """Return the real size of a dimension; None if it is the same as in the trial."""
        edges, destinations = self.run.real
        place = self.place(tensor)
        if place is not None:
            return edges * place.inner if dim == place.dim else None
        rows = self.destinations.rows(tensor)
        if rows is None or dim:
            return None
        return destinations if rows == self.run.destinations else edges

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        schema = operation._schema
        name = name_of(operation)
        leaves = tree_leaves((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        drawn = torch.Tag.nondeterministic_seeded in operation.tags
        if drawn and not (self.run.draws and self._drops(operation, args, kwargs)):
            raise Refused(f"its message draws random numbers ({name})")
        line = line_below(self.runs, sys._getframe())
        for tensor in tensors:
            self._meet(tensor, line)
        bound = dict(zip((a.name for a in schema.arguments), args, strict=False), **kwargs)
        if schema.is_mutable:
            self._check_write(schema, bound, name)
        try:
            rule = self.destinations.rule(operation, name, bound, tensors)
            if drawn:
                place = self.place(args[0])
            else:
                place = None if rule else self._result_place(operation, name, args, bound, tensors)
            values = [leaf for leaf in leaves if not isinstance(leaf, Tensor)]
            outside = [t for t in tensors if id(t) not in self._results and self.place(t) is None]
            places = [self.place(t) for t in tensors]
            # Random numbers are replaced by 1, so that no generator advances.
            result = args[0].fill_(1) if drawn else operation(*args, **kwargs)
            if rule:
                place = rule(result, self.place)
        except Mixes as why:
            raise Refused(f"its message mixes edges in {name}{f': {why}' if str(why) else ''}") from None
        self.destinations.follow(name, bound, result)
        filled = bound.get("fill_value")
        self.steps.append(Step(operation, places, [*values, *outside], place, line, filled))
        self.calls.append((operation, args, kwargs, result))
        for out in tree_leaves(result):
            if isinstance(out, Tensor):
                self._note(out, place)
        return result

    def _drops(self, operation: Any, args: Any, kwargs: dict[str, Any]) -> bool:
        """Return whether an operation draws what torch's dropout draws for a tensor of edges."""
        if operation is not torch.ops.aten.bernoulli_.float or kwargs.get("generator") is not None:
            return False
        is_of_edges = id(args[0]) in self._results and self.place(args[0]) == Place(0)
        return is_of_edges and args[0].is_contiguous()

    def _meet(self, tensor: Tensor, line: Line | None) -> None:
        if id(tensor) not in self.met:
            self.met[id(tensor)] = tensor
            self._foreign.add(tensor.untyped_storage()._cdata)
            self.outer.append(tensor)
            self.met_at[id(tensor)] = line

    def _note(self, out: Tensor, place: Place | None) -> None:
        self.met[id(out)] = out
        self._results.add(id(out))
        if self._records and not torch.is_grad_enabled():
            self.unrecorded.add(id(out))
        if place is None or out.numel() == 0:
            return
        if out.dim() <= place.dim or out.size(place.dim) != self._edges * place.inner:
            raise Refused(f"its message makes a tensor of shape {tuple(out.shape)}, with edges out of place")
        self._places[id(out)] = place
        self.largest = max(self.largest, out.nbytes // self._edges)

    def _check_write(self, schema: Any, bound: dict[str, Any], name: str) -> None:
        for argument in schema.arguments:
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            for value in tree_leaves(bound.get(argument.name)):
                if isinstance(value, Tensor) and value.untyped_storage()._cdata in self._foreign:
                    floating = value.is_floating_point()
                    raise Refused(
                        f"its message writes to a tensor that is not its own ({name})"
                        f"{'' if floating else ', as normalisation by the batch does in training'}"
                    )

    def _result_place(
        self, operation: Any, name: str, args: Any, bound: dict[str, Any], tensors: list[Tensor]
    ) -> Place | None:
        touched = any(id(tensor) in self._places for tensor in tensors)
        if named(name).makes or (name == "expand" and not touched):
            return place_of_made(args, bound, self.place, self._edges)
        if not touched:
            self.looks |= name in _READS_VALUES or not _LOOKING.isdisjoint(operation.tags)
            return None
        if name in _READS_VALUES:
            raise Refused(f"its message looks at the values of its operands ({name})")
        rule = rule_of(operation)
        if rule is None:
            raise Refused(f"its message uses {name}, which onehop does not know to keep edges apart")
        return rule(args, bound, self.place, self._edges)
