"""``onehop.tune``: finds the best plans for a graph once, and keeps them."""

import multiprocessing
from collections.abc import Callable, Sequence
from typing import Any

import torch

from onehop import native
from onehop.errors import ArgumentError, ConfigurationError, integer
from onehop.graph import Graph
from onehop.plans.entry import Tuned
from onehop.tuner.cpu import CpuTarget
from onehop.tuner.gpu.target import GpuTarget, gpu_device
from onehop.tuner.operations import Op, Reduction
from onehop.tuner.result import TuningInterrupted, TuningResult
from onehop.tuner.run import Progress, ProgressReport, Run, Tactics, Task
from onehop.tuner.search import Budget, Steps, finish

Target = CpuTarget | GpuTarget
"""One operation on one machine."""


def tune(
    graph: Graph,
    width: int | Sequence[int] = 64,
    op: Op = "aggregate",
    reduce: Reduction = "sum",
    *,
    dtype: torch.dtype = torch.float32,
    backward: bool = True,
    budget_s: float | None = None,
    lossy: bool = False,
    fields: Sequence[str] | None = None,
    again: bool = False,
    keep: bool = True,
    codegen: bool = False,
    device: str | torch.device = "cpu",
    heads: int = 1,
    progress: Progress | None = None,
) -> TuningResult:
    """Find the fastest plan for a graph, a width and an operation on this machine, and keep it.

    From then on, ``aggregate``, the other operators and patched models use the plan, in this process and in
    later ones (``ONEHOP_CACHE_DIR``). On a CPU, it applies to every graph with the same statistics, with the
    same number of threads and instruction set; on a GPU, to every graph of the same shape class, on GPUs of
    the same name. Results stay the same up to rounding. Cases that were tuned before are not tuned again.

    A plan is used only if it was measured in turns with the default plan at the end, and won by more than the
    spread of these measurements (:mod:`onehop.tuner.proof`). If the run is interrupted, confirmed plans are
    kept, and the next run continues from there.

    Args:
        graph: The graph.
        width: Number of columns; or several numbers of columns, for a curve.
        op: "aggregate", "sddmm", "edge_softmax" (width: heads) or "attention"; on a GPU also "gat" and
            "gatv2", which have their own kernels there.
        reduce: For "aggregate": "sum", "mean", "max" or "min"; sum and mean share plans, max and min too.
        dtype: Dtype of the features.
        backward: Also tune the gradient to the features.
        budget_s: Seconds for everything; None means 10 for each width, and 20 with ``codegen``. On a GPU,
            None means 30, because every plan is compiled before it is measured.
        lossy: Allow plans that round float32 features to 16 bits. Such plans are used in this process only.
        fields: Names of the plan's fields that may differ from the default plan's; None means all. Plans
            found with a subset are used in this process only.
        again: Also tune cases that were tuned before.
        keep: Keep the results on disk.
        codegen: Also generate kernels for exactly this width, dtype and graph, if there is a C++ compiler
            (``$CXX``, c++, g++ or clang++). They are compiled for this processor, tested in a separate
            process, compared with the reference, and kept in the folder ``kernels`` below the cache folder.
            They are used only if they beat the best built-in kernel in a race. The result's
            :attr:`~onehop.plans.entry.Tuned.codegen` has the outcome. For "aggregate" only.
        device: "cpu", or "cuda" (or one such device) for the Triton kernels, which are timed by the GPU's own
            clock. With ``TRITON_INTERPRET=1`` "cuda" means Triton's interpreter, whose times are meaningless.
        heads: Number of heads that share the columns evenly; for "sddmm" and attention on a GPU.
        progress: Called with the current step and the used share of the budget, 0 to 1.

    Raises:
        ArgumentError: An argument cannot be used.
        ConfigurationError: The call is within ``torch.compile`` or in a forked process, where times are
            meaningless; or the GPU kernels cannot run here.
        TuningInterrupted: Ctrl-C was pressed; this is a ``KeyboardInterrupt`` whose ``result`` holds the
            confirmed plans.

    Examples:
        >>> import onehop, torch
        >>> graph = onehop.Graph.from_edge_index(torch.tensor([[0, 0, 1], [1, 2, 2]]))
        >>> result = onehop.tune(graph, width=8, budget_s=1.0, keep=False)
        >>> print(result)  # doctest: +ELLIPSIS
        width 8, forward: ...
        width 8, backward: ...
    """
    target = _target(op, reduce, backward, device, heads, lossy, codegen)
    steps = _steps(
        graph, width, target, dtype, budget_s, fields=fields, again=again, keep=keep, progress=progress
    )
    return finish(steps)


def tuning_steps(
    graph: Graph,
    width: int,
    *,
    reduce: str,
    dtype: torch.dtype,
    backward: bool,
    budget_s: float,
    clock: Callable[[], float],
) -> Steps[TuningResult]:
    """Run :func:`tune` for an aggregation on the CPU as a generator, which yields after every measurement.

    The generator returns the result at the end. The arguments are described at :func:`tune`; ``clock`` gives
    the seconds of the budget, and may stop between two steps. Torch's own operation is not timed, because
    building its matrix takes longer than the caller may wait.
    """
    target = CpuTarget("aggregate", reduce, backward, compared=False)
    return _steps(graph, width, target, dtype, budget_s, clock=clock)


def _steps(
    graph: Graph,
    width: int | Sequence[int],
    target: Target,
    dtype: torch.dtype,
    budget_s: float | None,
    *,
    fields: Sequence[str] | None = None,
    again: bool = False,
    keep: bool = True,
    progress: Progress | None = None,
    clock: Callable[[], float] | None = None,
) -> Steps[TuningResult]:
    """Tune a target; yield after every measurement, and return the result at the end."""
    widths = _checked(graph, width, dtype, budget_s, target)
    free = _free_fields(fields, target)
    reason = unsuitable()
    if reason is not None:
        raise ConfigurationError(f"onehop.tune: {reason}.")
    parts = target.operations()
    whole_s = target.budget_s * len(widths) if budget_s is None else budget_s
    budget = Budget(whole_s, clock)
    report = ProgressReport(progress, budget)
    entries: list[Tuned[Any]] = []
    tasks = [(columns, part) for columns in widths for part in parts]
    on_disk = keep and fields is None

    def result() -> TuningResult:
        return TuningResult(
            target.op, target.reduce, tuple(entries), target.machine(), whole_s - budget.left()
        )

    try:
        for place, (columns, operation) in enumerate(tasks):
            case: Any = target.case(graph, operation, columns, dtype)
            before: Tuned[Any] | None = target.known(case)
            if before is not None and not (again or fields is not None or target.is_due(before)):
                entries.append(before)
                continue
            report.what = f"width {columns}, {'backward' if case.backward else 'forward'}"
            share = budget.part(1 / (len(tasks) - place))
            task = Task(graph, case, operation, dtype)
            tactics: Tactics[Any] = target.tactics(task, free)
            run = Run(task, tactics, share, report.tick, None if again else before)
            try:
                yield from run.steps()
            finally:
                # Also reached after an interruption and when the generator is closed: the results so far are
                # kept.
                entry = _better(run.entry(), before)
                if entry is not None and entry is not before:
                    target.install(entry, on_disk)
                if entry is not None:
                    entries.append(entry)
    except KeyboardInterrupt as error:
        raise TuningInterrupted(result(), on_disk) from error
    report("done", 1.0)
    return result()


def _better(entry: Tuned[Any] | None, before: Tuned[Any] | None) -> Tuned[Any] | None:
    """Return the new result, unless it was not confirmed and the earlier one was."""
    if before is None or (entry is not None and entry.measured_s is not None):
        return entry
    return before if entry is None or before.measured_s is not None else entry


def _target(
    op: str,
    reduce: str,
    backward: bool,
    device: str | torch.device,
    heads: int,
    lossy: bool,
    codegen: bool,
) -> Target:
    try:
        place = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ArgumentError(f"device: expected 'cpu' or 'cuda', got {device!r}.") from error
    if place.type == "cpu":
        if heads != 1:
            raise ArgumentError("heads: they are for GPUs only; on the CPU give the width of one head.")
        return CpuTarget(op, reduce, backward, lossy, codegen)
    if place.type != "cuda":
        raise ArgumentError(f"device: expected 'cpu' or 'cuda', got {str(place)!r}.")
    for name, value in (("lossy", lossy), ("codegen", codegen)):
        if value:
            raise ArgumentError(f"{name}: it is for the CPU's plans only; omit it on a GPU.")
    if (heads := integer("heads", heads, None)) < 1:
        raise ArgumentError(f"heads: expected an integer of at least 1, got {heads!r}.")
    return GpuTarget(op, reduce, backward, heads, gpu_device(place))


def _free_fields(fields: Sequence[str] | None, target: Target) -> tuple[str, ...]:
    if fields is None:
        return target.fields
    for name in fields:
        if name not in target.fields:
            raise ArgumentError(f"fields: expected some of {', '.join(target.fields)}, got {name!r}.")
    return tuple(fields)


def unsuitable() -> str | None:
    """Return why tuning must not run here, or None if it may."""
    if torch.compiler.is_compiling():
        return "programs are tuned before they are compiled, not while torch.compile reads them"
    if native.extension.in_forked_child() or multiprocessing.parent_process() is not None:
        return "this is a worker process, which shares the machine with others: tune in the main process"
    return None


def _checked(
    graph: object, width: int | Sequence[int], dtype: torch.dtype, budget_s: float | None, target: Target
) -> list[int]:
    if not isinstance(graph, Graph):
        raise ArgumentError(f"graph: expected an onehop.Graph, got {type(graph).__name__}.")
    several = isinstance(width, Sequence) or len(getattr(width, "shape", ())) > 0
    numbers: Any = width if several else [width]
    widths = [integer("width", columns, None) for columns in numbers]
    if not widths:
        raise ArgumentError("width: expected at least one number of columns.")
    for columns in widths:
        if columns < 1:
            raise ArgumentError(f"width: expected integers of at least 1, got {columns!r}.")
        reason = target.refuse(columns, dtype)
        if reason is not None:
            raise ArgumentError(reason)
    if budget_s is not None and not budget_s > 0:
        raise ArgumentError(
            f"budget_s: expected more than 0 seconds, got {budget_s}. Without a budget nothing can be "
            f"measured; omit it for {target.budget_s:g} seconds a width."
        )
    return list(dict.fromkeys(widths))
