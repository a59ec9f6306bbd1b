"""The parameters of a run on a near-bank machine: the partition of matrix, features and threads."""

from collections.abc import Sequence
from dataclasses import dataclass

from onehop.errors import ArgumentError
from onehop.plans.plan import Plan, check_flag, check_least, check_named

DTYPES = ("int8", "int16", "int32", "int64", "float32", "float64")
# Users append their own: onehop.machines.pim.schemes.register does.
SCHEMES = ["paf", "grande", "sparsep"]
_CHOICES: dict[str, Sequence[str]] = {
    "scheme": SCHEMES,
    "format": ("csr", "coo"),
    "core_balance": ("row", "edge"),
    "thread_balance": ("row", "edge"),
    "column_cut": ("equal", "edge"),
    "merge_order": ("block", "row"),
    "scale": ("tensor", "column"),
    "reader": ("block", "paged"),
    "clear": ("shared", "first"),
    "fold": ("tree", "serial"),
}
_LEAST = dict.fromkeys(("sp", "ds", "tasklets", "rounds", "block_rounds", "merge_threads"), 1)
_LEAST["hub_bytes"] = 0
_FLAGS = ("unit_weights", "reuse_buffers", "stream", "pipelined")


@dataclass(frozen=True, slots=True, kw_only=True)
class PimPlan(Plan):
    """Distribution of one aggregation over the cores of a near-bank machine.

    A cluster is the group of cores that share one part of the matrix and one part of the features: there are
    ``sp * ds`` of them. ``sp`` parts of columns (edge-level parallelism) give partial results that the host
    adds up; ``ds`` parts of feature columns (feature-level parallelism) repeat the work done once an edge.

    Attributes:
        sp: Sparse parts: the matrix is cut into so many blocks of columns.
        ds: Dense parts: the features are cut into so many blocks of columns.
        format: "csr" or "coo", of the matrix in a core's memory.
        core_balance: Quantity that the cores of a cluster share equally: "row", rows; "edge", edges, in CSR
            at the granularity of rows, in COO exactly, where neighbouring cores may then share a row.
        thread_balance: The same for the tasklets of a core. In COO "row" means edges, cut between rows.
        tasklets: Threads of a core.
        reader_bytes: Half of the working memory of a sequential reader of indices or values.
        reader: Use of that memory: "block", all of it is filled at once, and every byte is moved once;
            "paged", the vendor's and PyGim's way: two pages, both fetched whenever the reader reaches the end
            of one.
        clear: Tasklets that set the results of COO to zero: all ("shared"), or only the "first", as PyGim's.
        fold: Addition of the rows that tasklets share (COO with thread balance "edge"), each tasklet's first,
            which it keeps aside: pairwise in a "tree", or by the first tasklet only ("serial"), as PyGim's.
        hub_bytes: Working memory of a core for the features of the sources with most edges, which are then
            not fetched for every edge; 0 means none.
        column_cut: "equal" blocks of columns, or blocks with about equally many "edge"s.
        unit_weights: Without edge weights, use kernels that neither hold nor multiply by values of one; False
            is PyGim's way.
        merge_order: Order in which the host merges: "block", core by core, or "row", row by row.
        merge_threads: Threads of the host that merge.
        pipelined: With several rounds, the host merges one while the cores' kernels of the next run.
        reuse_buffers: The host's result buffers are kept from call to call, so that their pages are mapped.
        rounds: A cluster processes its feature columns in this many passes.
        block_rounds: A cluster processes its block of the matrix in this many passes, and gets the matrix's
            pieces again in every call.
        stream: If the plan does not fit, take as many passes as it needs, instead of an error.
        dtype: Type of the features in the machine; None means unchanged. For float features an integer type
            means that they are quantised.
        accumulator: Type of the sums; None means the narrowest that provably holds them.
        scale: A quantised tensor's factors: one for the "tensor", or one for each "column".
        scheme: "paf", or the prior art that the plan reproduces: "grande" (a part of the matrix in every core
            of a rank, the features cut among them; ``ds`` is then at least the cores of a rank) or "sparsep"
            (sparse matrix times vector, column after column). Or a user's own: the name under which it was
            registered, or ``FILE.py:CLASS``.

    Raises:
        ArgumentError: A field has an invalid value.

    Examples:
        >>> import onehop, torch
        >>> from onehop.machines import pim
        >>> graph = onehop.Graph.from_edge_index(torch.tensor([[0, 0, 1], [1, 2, 2]]))  # 0->1, 0->2, 1->2
        >>> plan = pim.PimPlan(sp=32, ds=1, format="coo")
        >>> out, report = pim.Machine().aggregate(graph, torch.tensor([[1.0], [10.0], [5.0]]), plan)
        >>> out.flatten().tolist(), report.plan.sp
        ([0.0, 1.0, 11.0], 32)
    """

    sp: int = 1
    ds: int = 32
    format: str = "csr"
    core_balance: str = "edge"
    thread_balance: str = "edge"
    tasklets: int = 16
    reader_bytes: int = 32
    reader: str = "block"
    clear: str = "shared"
    fold: str = "tree"
    hub_bytes: int = 0
    column_cut: str = "equal"
    unit_weights: bool = True
    merge_order: str = "block"
    merge_threads: int = 1
    pipelined: bool = False
    reuse_buffers: bool = False
    rounds: int = 1
    block_rounds: int = 1
    stream: bool = False
    dtype: str | None = None
    accumulator: str | None = None
    scale: str = "tensor"
    scheme: str = "paf"

    def __post_init__(self) -> None:
        """Checks every field."""
        for name, allowed in _CHOICES.items():
            check_named(name, getattr(self, name), allowed, own=name == "scheme")
        for name, least in _LEAST.items():
            check_least(name, getattr(self, name), least)
        for name in _FLAGS:
            check_flag(name, getattr(self, name))
        for name in ("dtype", "accumulator"):
            if getattr(self, name) is not None:
                check_named(name, getattr(self, name), DTYPES)
        reader = self.reader_bytes
        if type(reader) is not int or not 8 <= reader <= 1024 or reader & (reader - 1):
            # A refill moves two pages, and one transfer moves at most 2,048 bytes.
            raise ArgumentError(f"plan: reader_bytes must be a power of two from 8 to 1024, not {reader!r}.")

    def __str__(self) -> str:
        """The main choices in one line."""
        parts = [f"{self.sp}x{self.ds}", self.format, f"cores by {self.core_balance}"]
        parts += [f"tasklets by {self.thread_balance}", f"{self.tasklets} tasklets"]
        if self.column_cut != "equal":
            parts.append("columns cut by edges")
        if self.rounds * self.block_rounds > 1:
            parts.append(f"{self.rounds} x {self.block_rounds} rounds")
        return ", ".join(parts if self.scheme == "paf" else [self.scheme, *parts])
