"""Operators of torch.library, and everything that is derived from an operator's call.

An operator is defined by its call (:mod:`onehop.calls`), the shapes of its results and its gradients. From
these, its schema, a kernel for real tensors (key CompositeExplicitAutograd: any device, the backend decides),
a fake kernel and its autograd function are derived. Backward passes call operators again, so they can be
differentiated too.

Each operator has an overload ``held``, which takes a handle (:mod:`onehop.graph.handle`) instead of the
graph's number, for programs that look up their graphs when they run.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, get_type_hints

import torch
from torch import Tensor
from torch.autograd import forward_ad

from onehop.backends import run as run_on_backend, runner_of
from onehop.calls import name_of
from onehop.errors import BackendError
from onehop.graph import Graph, by_number
from onehop.graph.handle import GraphInProgram, held
from onehop.native import WithoutMemoryError
from onehop.ops.batching import Dims, in_older_vmap, one_by_one, over_older_batch
from onehop.ops.contexts import are_in_memory, in_memory, is_plain, materialized
from onehop.ops.held_edges import of_edges
from onehop.ops.namespace import LIBRARY

# Bound to names of this module, because every call reads them.
_length_of_modes = torch._C._len_torch_dispatch_stack
_transforms_are_active = torch._C._are_functorch_transforms_active
_is_compiling = torch.compiler.is_compiling
_grad_is_enabled = torch.is_grad_enabled

_SCHEMA_TYPES = {
    Tensor: "Tensor",
    Tensor | None: "Tensor?",
    int: "SymInt",
    float: "float",
    bool: "bool",
    str: "str",
    list[bool]: "bool[]",
}

_HELD = "held"


C = TypeVar("C", bound=tuple[Any, ...])


class Context(NamedTuple, Generic[C]):
    """The inputs of a backward pass.

    Attributes:
        call: The call that :meth:`Operator.saved` returned.
        results: The results that :meth:`Operator.saved` returned.
        needs: The names of the operands that need a gradient now.
        shapes: By name, the shapes of the operands that needed a gradient when the call was recorded.
        graph: The graph; None while a program is traced.
    """

    call: C
    results: tuple[Tensor, ...]
    needs: tuple[str, ...]
    shapes: dict[str, torch.Size]
    graph: Graph | None


class Operator(Generic[C]):
    """A registered operator. Subclasses define it.

    Calls with plain tensors go directly to the backend, because the dispatcher takes longer than the sums of
    a small graph. Calls under a mode, a transform, a compiler or a profiler use the dispatcher.

    Attributes:
        call: The type of the operator's calls; the tensors come first.
        results: Number of tensors that the operator returns.
        asks_more: Whether :meth:`recorded` changes the call.
        edge_fields: The fields of the call that have a row for each edge.
        gradients_of: The named tuple of gradients, whose fields are the operands that may have one; None if
            the operator is never differentiated.
    """

    call: ClassVar[type]
    results: ClassVar[int] = 1
    asks_more: ClassVar[bool] = False
    edge_fields: ClassVar[tuple[str, ...]] = ()
    gradients_of: ClassVar[Any] = None

    def __init__(self) -> None:
        self.name = name_of(self.call)
        self._fields = _flat_fields(self.call)
        hints = get_type_hints(self.call)
        self._nested = hasattr(next(iter(hints.values())), "_fields")
        self._tensors = sum(kind in (Tensor, Tensor | None) for kind in hints.values())
        inner: Any = next(iter(hints.values())) if self._nested else self.call
        kinds = get_type_hints(inner).values()
        self._further = tuple(at for at, kind in enumerate(kinds) if at and kind in (Tensor, Tensor | None))
        operands = () if self.gradients_of is None else self.gradients_of._fields
        self._places = tuple((name, self.call._fields.index(name)) for name in operands)  # type: ignore[attr-defined]
        LIBRARY.define(self.schema())
        LIBRARY.impl(self.name, self._kernel, "CompositeExplicitAutograd")
        torch.library.register_fake(f"onehop::{self.name}", self._fake, lib=LIBRARY)
        LIBRARY.impl(self.name, self._autograd, "Autograd")
        LIBRARY.impl(self.name, self._in_older_vmap, "Batched")
        torch.library.register_vmap(f"onehop::{self.name}", self._in_vmap, lib=LIBRARY)
        self._dispatched: Callable[..., Any] = getattr(torch.ops.onehop, self.name).default
        LIBRARY.define(self.schema(_HELD))
        LIBRARY.impl(f"{self.name}.{_HELD}", self._held_kernel, "CompositeExplicitAutograd")
        torch.library.register_fake(f"onehop::{self.name}.{_HELD}", self._fake, lib=LIBRARY)
        LIBRARY.impl(f"{self.name}.{_HELD}", self._held_autograd, "Autograd")
        self._dispatched_held: Callable[..., Any] = getattr(getattr(torch.ops.onehop, self.name), _HELD)
        OPERATORS[self.call] = self

    def schema(self, overload: str = "") -> str:
        """Return the operator's schema for torch.library, made from the fields of the call.

        Args:
            overload: "held" for the overload with a handle instead of the graph's number; else empty.
        """
        kinds = ((name, Tensor if overload and name == "graph" else kind) for name, kind in self._fields)
        arguments = ", ".join(f"{_SCHEMA_TYPES[kind]} {name}" for name, kind in kinds)
        returns = "Tensor" if self.results == 1 else f"({', '.join(['Tensor'] * self.results)})"
        return f"{self.name}{'.' if overload else ''}{overload}({arguments}) -> {returns}"

    def fake(self, call: C) -> Any:
        """Return uninitialised results of the right shapes and dtypes, by default like the first operand."""
        return call[0].new_empty(call[0].shape)

    def recorded(self, call: C) -> C:
        """Return the call to run if autograd records it; it may have more results."""
        return call

    def constant(self, call: C, results: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the results without a gradient: by default all except the first."""
        return results[1:]

    def saved(self, call: C, results: Any, needs: tuple[str, ...]) -> tuple[C, tuple[Tensor, ...]]:
        """Return the call and the results that the backward pass needs; tensors not needed are None."""
        return call, ()

    def gradients(self, context: Context[C], *grads: Tensor | None) -> Any:
        """Return the gradients to the operands in ``context.needs``, given the gradients to the results."""
        raise NotImplementedError

    def fitted(self, call: C, graph: Graph) -> C:
        """Return a program's call for the graph of its handle; surplus rows of edge operands are removed."""
        untyped: Any = call
        changed: dict[str, Any] = {}
        if self._nested:
            changed[untyped._fields[0]] = OPERATORS[type(untyped[0])].fitted(untyped[0], graph)
        else:
            changed["graph"] = graph.number
        if "edges" in untyped._fields:
            changed["edges"] = graph.num_edges
        for name in self.edge_fields:
            if (rows := getattr(untyped, name)) is not None:
                changed[name] = of_edges(rows, graph)
        return untyped._replace(**changed)  # type: ignore[no-any-return]

    def padded(self, call: C, results: Any) -> Any:
        """Return the results, padded to the rows that the operands of edges have."""
        return results

    def fold(self, size: int, dims: Dims, args: Sequence[Any]) -> Tensor | None:
        """Return the results of a batch (first dimension) from one call; None if members run one by one."""
        return None

    def __call__(self, call: C, graph: Graph | GraphInProgram | None = None) -> Any:
        """Return the operator's results, recorded if a gradient is needed.

        Args:
            call: The call.
            graph: The graph that the call names, if the caller has it.
        """
        inner = call[0] if self._nested else call
        x = inner[0]
        # In the older vmap, any argument may represent a batch. This is tested last, because torch.compile
        # cannot trace it.
        if not is_plain(x) or in_older_vmap():
            return self._through_dispatcher(call)
        negated = x.is_neg()
        for place in self._further:
            further = inner[place]
            negated = negated or (further is not None and further.is_neg())
        if negated:
            return self(self._in_memory(call), graph)
        if type(graph) is not Graph:
            number: Any = call.graph  # type: ignore[attr-defined]
            if isinstance(number, Tensor):
                return self._on_held(call)
            graph = by_number(number)
        try:
            if _grad_is_enabled():
                # Loops are used here and below, because comprehensions cost a call, which takes noticeable
                # time on small graphs.
                needs: tuple[str, ...] = ()
                operands: tuple[Tensor, ...] = ()
                for name, place in self._places:
                    operand = call[place]
                    if operand is not None and operand.requires_grad:
                        needs, operands = (*needs, name), (*operands, operand)
                if needs:
                    return _Recorded.apply(self, call, needs, graph, *operands)
            return run_on_backend(graph, call, x)
        except WithoutMemoryError:
            # This is not tested before, because it would delay every call.
            if are_in_memory(_flattened(call) if self._nested else call):
                raise
            return self(self._in_memory(call), graph)

    def _in_memory(self, call: C) -> C:
        """Return the call with all operands converted by :func:`.in_memory`."""
        args = _flattened(call) if self._nested else call
        return self._unflattened([in_memory(arg) if isinstance(arg, Tensor) else arg for arg in args])

    def _kernel(self, *args: Any) -> Any:
        call = self._unflattened(args)
        return run_on_backend(by_number(call.graph), call, args[0])  # type: ignore[attr-defined]

    def _through_dispatcher(self, call: C) -> Any:
        args = _flattened(call) if self._nested else call
        if isinstance(call.graph, Tensor):  # type: ignore[attr-defined]
            return self._dispatched_held(*args)
        return self._dispatched(*args)

    def _held_kernel(self, *args: Any) -> Any:
        call = self._unflattened(args)
        graph = held(call.graph)  # type: ignore[attr-defined]
        return self.padded(call, run_on_backend(graph, self.fitted(call, graph), args[0]))

    def _held_autograd(self, *args: Any) -> Any:
        # If the tensors are plain, the program is running, and the graph is known by now.
        if is_plain(args[0]):
            return self._on_held(self._unflattened(args))
        return self._autograd(*args)

    def _on_held(self, call: C) -> Any:
        """Return the results of a call with plain tensors and a handle, recorded if a gradient is needed."""
        graph = held(call.graph)  # type: ignore[attr-defined]
        return self.padded(call, self(self.fitted(call, graph), graph))

    def _fake(self, *args: Any) -> Any:
        return self.fake(self._unflattened(args))

    def _autograd(self, *args: Any) -> Any:
        self._refuse_transforms(*filter(torch.is_tensor, args))
        if self._places and _grad_is_enabled():
            call = self._unflattened(args)
            needs = tuple(name for name, place in self._places if needs_grad(args[place]))
            if needs:
                operands = [getattr(call, name) for name in needs]
                return _Recorded.apply(self, call, needs, None, *operands)
        return self._unrecorded(*args)

    def _unrecorded(self, *args: Any) -> Any:
        """Return the results of a call that came from the dispatcher; its arguments are not batches."""
        if is_plain(args[0]) and are_in_memory(args):
            return self._kernel(*args)
        with torch._C._AutoDispatchBelowAutograd():
            return self._through_dispatcher(self._unflattened(args))

    def _unflattened(self, args: Sequence[Any]) -> C:
        if not self._nested:
            return self.call(*args)  # type: ignore[no-any-return]
        inner: Any = next(iter(get_type_hints(self.call).values()))
        count = len(inner._fields)
        return self.call(inner(*args[:count]), *args[count:])  # type: ignore[no-any-return]

    def _in_older_vmap(self, *args: Any) -> Any:
        return over_older_batch(self._over_batch, args)

    def _in_vmap(self, info: Any, in_dims: Sequence[Any], *args: Any) -> tuple[Any, Any]:
        # For a list of flags, torch passes a list of dimensions, which are all None.
        dims = [dim if isinstance(dim, int) else None for dim in in_dims]
        results = self._over_batch(info.batch_size, dims, args)
        return results, 0 if isinstance(results, Tensor) else (0,) * len(results)

    def _over_batch(self, size: int, dims: Dims, args: Sequence[Any]) -> Any:
        folded = self.fold(size, dims, args)
        return one_by_one(self._dispatched, size, dims, args) if folded is None else folded

    def _refuse_transforms(self, *tensors: Tensor) -> None:
        """Raises an error if a transform requests a derivative that would be missing."""
        if _transforms_are_active() and needs_grad(*tensors):
            what = "gradients of torch.func (grad, vjp, jacrev)"
        elif forward_ad._current_level >= 0 and any(
            forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors
        ):
            what = "derivatives in forward mode (torch.func.jvp, dual tensors)"
        else:
            return
        raise BackendError(
            f"{self._dispatched}: {what} do not go through onehop's operators; take torch.autograd.grad or "
            "backward()."
        )


OPERATORS: dict[type, Operator[Any]] = {}
"""The operators by the types of their calls."""


def run(call: Any, graph: Graph | GraphInProgram | None = None) -> Any:
    """Return the results of a call of any operator, recorded if a gradient is needed.

    Operators whose gradients use each other call this function, so that their files need not import each
    other.
    """
    return OPERATORS[type(call)](call, graph)


class _Recorded(torch.autograd.function._SingleLevelFunction):
    """The autograd function of all operators: ``torch.autograd.Function`` without support for torch.func.

    That support would cost each call a microsecond, which is noticeable on small graphs; operators themselves
    refuse torch.func. The tensor arguments are only the operands that need a gradient, because torch inspects
    each tensor argument in every call.
    """

    apply: ClassVar[Callable[..., Any]]

    @staticmethod
    def forward(
        ctx: Any,
        operator: Operator[Any],
        call: Any,
        needs: tuple[str, ...],
        graph: Graph | None,
        *operands: Tensor,
    ) -> Any:
        if operator.asks_more:
            call = operator.recorded(call)
        if graph is not None:
            results = run_on_backend(graph, call, call[0])
        else:
            results = operator._unrecorded(*call)
            # The number in the call does not keep the graph alive; while a program is traced, there is no
            # graph.
            graph = by_number(call.graph) if type(call.graph) is int else None
        saved, saved_results = operator.saved(call, results, needs)
        count = operator._tensors
        # Only autograd keeps tensors, because it notices writes to them; the rest of the call has no tensors.
        ctx.save_for_backward(*saved[:count], *saved_results)
        like: tuple[tuple[torch.Size, torch.dtype], ...] = ()
        for operand in operands:
            like = (*like, (operand.shape, operand.dtype))
        ctx.of = operator, call[count:], needs, like, graph
        if call.backend:
            ctx.runner = runner_of(call.backend)  # the backward pass looks it up by name
        # As in torch's own operators, a missing incoming gradient stays None.
        ctx.set_materialize_grads(False)
        if operator.results > 1:
            ctx.mark_non_differentiable(*operator.constant(call, results))
        return results

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        operator, rest, names, like, graph = ctx.of
        saved, count = ctx.saved_tensors, operator._tensors
        needs: tuple[str, ...] = ()
        shapes = {}
        for place, name in enumerate(names):
            shapes[name] = like[place][0]
            if ctx.needs_input_grad[4 + place]:
                needs = (*needs, name)
        # This is a loop, because "in" and "count" would compare tensors with None element by element.
        has_grad = False
        for grad in grads:
            has_grad = has_grad or grad is not None
            if grad is not None and (grad._is_zerotensor() or grad.is_neg()):
                grads = materialized(grads)
        if not needs or not has_grad:
            return (None,) * (4 + len(names))
        call = operator.call(*saved[:count], *rest)
        gradients = operator.gradients(Context(call, saved[count:], needs, shapes, graph), *grads)
        operand_grads: tuple[Tensor | None, ...] = ()
        for name, (_, dtype) in zip(names, like, strict=True):
            grad = getattr(gradients, name) if name in needs else None
            operand_grads = (*operand_grads, grad if grad is None or grad.dtype is dtype else grad.to(dtype))
        return None, None, None, None, *operand_grads


def needs_grad(*tensors: Tensor | None) -> bool:
    """Return whether any of these tensors needs a gradient now."""
    # This is a loop, because a generator takes twice as long, which is noticeable on small graphs.
    if torch.is_grad_enabled():
        for tensor in tensors:
            if tensor is not None and tensor.requires_grad:
                return True
    return False


def _flat_fields(call: Any) -> list[tuple[str, Any]]:
    """Return names and types of a call's fields; a nested call is replaced by its fields."""
    flat: list[tuple[str, Any]] = []
    for name, kind in get_type_hints(call).items():
        flat.extend(_flat_fields(kind) if hasattr(kind, "_fields") else [(name, kind)])
    return flat


def _flattened(call: Any) -> tuple[Any, ...]:
    return (*call[0], *call[1:])
