"""Plans that were tuned, as the backends look them up: a table in memory, filled from disk at first use.

The key is what a plan was measured for, and nothing else: figures of the graph (:func:`graph_key`), the
operation, the direction, width, dtype, number of threads and instruction set. Left out are the graph's edges
themselves (the same graph loaded by another program has the same figures) and the values of features and
weights, which no kernel's time depends on. The machine is the file's business (:mod:`onehop.plans.store`).
"""

import dataclasses
import os
import threading
import weakref
from dataclasses import dataclass, field
from typing import Any

import torch

from onehop import config, native
from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.plans import store
from onehop.plans.cpu import CpuPlan

# A width that was not tuned takes the plan of the nearest that was, up to this ratio.
NEAR_WIDTH = 1.25

OPERATIONS = ("sum", "extremum", "extremum_grad", "sddmm", "edge_softmax", "attention")


@dataclass(frozen=True, slots=True)
class Case:
    """What a plan is tuned for.

    Attributes:
        graph: Its figures, from :func:`graph_key`.
        operation: One of :data:`OPERATIONS`; "sum" stands for mean too, "extremum" for max and min.
        transposed: Whether every edge is turned round, as in backward passes.
        width: Columns.
        dtype: Of the features, such as "float32".
        threads: torch's number.
        isa: Instruction set of the kernels.
    """

    graph: str
    operation: str
    transposed: bool
    width: int
    dtype: str
    threads: int
    isa: str

    def __post_init__(self) -> None:
        """Checks what a file may have wrong."""
        if self.operation not in OPERATIONS:
            raise ArgumentError(
                f"operation: expected one of {', '.join(OPERATIONS)}, got {self.operation!r}."
            )
        for name, kind in (("graph", str), ("transposed", bool), ("width", int), ("threads", int)):
            if type(getattr(self, name)) is not kind:
                raise ArgumentError(
                    f"{name}: expected {kind.__name__}, got {type(getattr(self, name)).__name__}."
                )
        _sizes(self.graph)


@dataclass(frozen=True, slots=True)
class Tuned:
    """A plan, and what it was chosen by.

    Attributes:
        case: What it was tuned for.
        plan: The plan.
        predicted_s: What the cost model expects of a call.
        measured_s: Median of the calls of the last race against the default plan; None where it was not run:
            such a plan is where the next search begins, and is not used before.
        default_s: The same for the default plan.
        baseline_s: The same for torch's sparse CSR; None where torch has no such operation, or it was not
            timed, as under ``patch(tune="auto")``.
        ordering_s: What computing the plan's order took; 0 without one.
        tried: How many plans were measured.
        finished: Whether the search came to its end, so that tuning again would find no more.
        codegen: What came of generating kernels, as a sentence; empty where nobody asked for that.
        raced: Whether generated kernels were measured.
    """

    case: Case
    plan: CpuPlan
    predicted_s: float
    measured_s: float | None = None
    default_s: float | None = None
    baseline_s: float | None = None
    ordering_s: float = 0.0
    tried: int = 0
    finished: bool = True
    codegen: str = ""
    raced: bool = False

    @property
    def speedup(self) -> float | None:
        """How many times faster than the default plan."""
        return self.default_s / self.measured_s if self.default_s and self.measured_s else None

    @property
    def break_even(self) -> int:
        """After how many calls the order of the plan has paid for itself; 0 without one."""
        if not self.ordering_s or not self.default_s or not self.measured_s:
            return 0
        saved = self.default_s - self.measured_s
        return int(self.ordering_s / saved) + 1 if saved > 0 else 1 << 30

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Any) -> "Tuned":
        """What :meth:`to_dict` wrote.

        Raises:
            ArgumentError: A field is missing, unknown or of another type.
        """
        try:
            case, plan = Case(**values["case"]), CpuPlan.from_dict(values["plan"])
            return cls(**{**values, "case": case, "plan": plan})
        except (TypeError, KeyError) as error:
            raise ArgumentError(f"tuned plan: a field is missing or unknown ({error}).") from error

    def __str__(self) -> str:
        """The plan, what was expected of it, what was measured, and beside what."""
        told = [f"tuned at width {self.case.width}", f"predicted {_ms(self.predicted_s)}"]
        if self.measured_s is not None:
            told.append(f"measured {_ms(self.measured_s)}")
        if self.default_s is not None:
            told.append(f"default plan {_ms(self.default_s)}")
        if self.baseline_s is not None:
            told.append(f"torch CSR {_ms(self.baseline_s)}")
        made = f"; {self.codegen}" if self.codegen else ""
        return f"{self.plan}, {', '.join(told)} (of {self.tried} plans measured{made})"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


def graph_key(graph: Graph) -> str:
    """The figures of a graph by which tuned plans are found again. Needs the graph's statistics."""
    s = graph.statistics
    degrees = "-".join(map(str, s.degree_quantiles))
    return (
        f"{s.num_src}x{s.num_dst} edges {s.num_edges} degrees {degrees} empty {s.empty_rows} "
        f"loops {s.self_loops} span {s.mean_span:.2f}"
    )


def case_of(graph: Graph, operation: str, transposed: bool, width: int, dtype: torch.dtype) -> Case:
    """What a plan would be tuned for here and now."""
    return Case(
        graph_key(graph),
        operation,
        transposed,
        width,
        str(dtype).removeprefix("torch."),
        native.threads(),
        native.extension.selected_isa(),
    )


@dataclass(slots=True)
class _Use:
    """A tuned plan in use on one graph: its order, if not there yet, is made once calls have earned it."""

    tuned: Tuned
    without_order: CpuPlan
    calls: int = 0


@dataclass(slots=True)
class _Table:
    """Everything known in this process."""

    # Sizes of a graph -> what was tuned for such graphs: most graphs are dismissed by one lookup.
    by_size: dict[tuple[int, int, int], dict[Case, Tuned]] = field(default_factory=dict)
    # The same as it was read; it is looked at when a graph of these sizes comes.
    unread: dict[tuple[int, int, int], list[Any]] = field(default_factory=dict)
    # Graph -> (operation, transposed, width, dtype, threads, isa) -> what to use; None: nothing.
    uses: "weakref.WeakKeyDictionary[Graph, dict[tuple[Any, ...], _Use | None]]" = field(
        default_factory=weakref.WeakKeyDictionary
    )
    loaded: bool = False


_table = _Table()
_lock = threading.RLock()
# Without this, a child forked while another thread is inside would wait for that thread for ever.
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def find(
    graph: Graph, operation: str, transposed: bool, width: int, dtype: torch.dtype
) -> tuple[CpuPlan, Tuned] | None:
    """The plan to use for this call and the tuning that it comes from; None if nothing was tuned.

    O(1) on top of the graph's statistics, which are looked at only where a graph of the same sizes was tuned.

    The plan is the tuned one, but for its order: where that is not there yet, calls go without it until they
    have lost as much time by that as the order takes to make. So no program loses more than twice what it
    could have gained, however soon it ends.
    """
    if not _table.loaded:
        _load()
    sizes = (graph.num_src, graph.num_dst, graph.num_edges)
    if sizes not in _table.by_size and (sizes not in _table.unread or not _of_sizes(sizes)):
        return None
    uses = _table.uses.get(graph)
    if uses is None:
        uses = _table.uses.setdefault(graph, {})
    key = (operation, transposed, width, dtype, native.threads(), native.extension.selected_isa())
    if key not in uses:
        uses[key] = _choose(graph, operation, transposed, width, dtype)
    use = uses[key]
    if use is None:
        return None
    plan = use.tuned.plan
    if plan.ordering != "none" and (plan.ordering, transposed) not in graph.ordered:
        use.calls += 1
        if plan.ordering not in graph.orders and use.calls <= use.tuned.break_even:
            plan = use.without_order
    return plan, use.tuned


def _choose(graph: Graph, operation: str, transposed: bool, width: int, dtype: torch.dtype) -> _Use | None:
    wanted = case_of(graph, operation, transposed, width, dtype)
    fitting = [
        tuned
        for tuned in _of_sizes((graph.num_src, graph.num_dst, graph.num_edges)).values()
        if tuned.measured_s is not None
        and dataclasses.replace(tuned.case, width=width) == wanted
        and max(width, tuned.case.width) <= NEAR_WIDTH * min(width, tuned.case.width)
    ]
    if not fitting:
        return None
    best = min(fitting, key=lambda tuned: max(width / tuned.case.width, tuned.case.width / width))
    return _Use(best, dataclasses.replace(best.plan, ordering="none"))


def install(found: list[Tuned], keep: bool = True) -> None:
    """Puts plans to use in this process, and, with ``keep``, on disk for later ones."""
    with _lock:
        if not _table.loaded:
            _load()
        _enter(found)
        _table.uses.clear()
    if keep:
        store.save([tuned.to_dict() for tuned in found])


def known(case: Case) -> Tuned | None:
    """What was tuned for exactly this."""
    if not _table.loaded:
        _load()
    return _of_sizes(_sizes(case.graph)).get(case)


def forget() -> None:
    """Empties the table; what is on disk is read again when it is needed."""
    global _table
    with _lock:
        _table = _Table()


def _load() -> None:
    with _lock:
        if _table.loaded:
            return
        _table.loaded = True
        if not config.tuned():
            return
        try:
            for entry in store.load():
                _table.unread.setdefault(_sizes(entry["case"]["graph"]), []).append(entry)
        except (ArgumentError, KeyError, TypeError, AttributeError) as error:
            _give_up(error)


def _of_sizes(sizes: tuple[int, int, int]) -> dict[Case, Tuned]:
    """What was tuned for graphs of these sizes."""
    with _lock:
        found = _table.by_size.get(sizes, {})
        if sizes in _table.unread:
            try:
                read = [Tuned.from_dict(entry) for entry in _table.unread.pop(sizes)]
            except ArgumentError as error:
                _give_up(error)
                return found
            # What was tuned in this process is newer than what was read.
            found = {tuned.case: tuned for tuned in read} | found
            _table.by_size[sizes] = found
        return found


def _give_up(error: Exception) -> None:
    """The file is damaged: nothing more of it is used."""
    _table.unread.clear()
    store.set_aside(str(error))


def _enter(found: list[Tuned]) -> None:
    for tuned in found:
        sizes = _sizes(tuned.case.graph)
        _of_sizes(sizes)
        _table.by_size.setdefault(sizes, {})[tuned.case] = tuned


def _sizes(key: str) -> tuple[int, int, int]:
    """(num_src, num_dst, num_edges), from what :func:`graph_key` wrote."""
    try:
        counts, edges = key.split(" degrees ")[0].split(" edges ")
        num_src, num_dst = counts.split("x")
        return int(num_src), int(num_dst), int(edges)
    except ValueError as error:
        raise ArgumentError(f"graph: {key!r} is no key of a graph ({error}).") from error
