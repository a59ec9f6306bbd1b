"""The plan of a near-bank machine: the partition of matrix, features and threads."""

from collections.abc import Sequence
from dataclasses import dataclass

from onehop.errors import ArgumentError
from onehop.plans.plan import Plan, check_flag, check_least, check_named

DTYPES = ("int8", "int16", "int32", "int64", "float32", "float64")
# onehop.machines.pim.schemes.register appends users' own schemes.
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

    A cluster is a group of cores that share one part of the matrix and one part of the features; there are
    ``sp * ds`` clusters. ``sp`` parts of the matrix's columns (edge-level parallelism) give partial results
    that the host adds up; ``ds`` parts of feature columns (feature-level parallelism) repeat the work that is
    done once per edge.

    Attributes:
        sp: Number of sparse parts: the blocks of columns into which the matrix is cut.
        ds: Number of dense parts: the blocks of columns into which the features are cut.
        format: "csr" or "coo": the format of the matrix in a core's memory.
        core_balance: What the cores of a cluster share equally: "row", rows; or "edge", edges. In CSR, edges
            are cut between rows. In COO, edges are cut exactly, so neighbouring cores may share a row.
        thread_balance: What the tasklets of a core share equally. In COO, "row" means edges that are cut
            between rows.
        tasklets: Number of threads of a core.
        reader_bytes: Half of the working memory of a sequential reader of indices or values.
        reader: Use of this memory. "block" fills all of it at once, and every byte is moved once. "paged" is
            the vendor's and PyGim's way: two pages, both of which are fetched whenever the reader reaches the
            end of one.
        clear: Which tasklets set the results of COO to zero: all ("shared"), or only the "first", as in
            PyGim.
        fold: How the rows that tasklets share (COO with thread balance "edge") are added. Each tasklet keeps
            its first row aside; these rows are added pairwise in a "tree", or by the first tasklet only
            ("serial"), as in PyGim.
        hub_bytes: Working memory of a core for the features of the sources with the most edges, which are
            then not fetched for every edge; 0 means none.
        column_cut: "equal" cuts equal blocks of columns; "edge" cuts blocks with about equally many edges.
        unit_weights: Without edge weights, use kernels that neither store nor multiply by weights of one.
            False is PyGim's way.
        merge_order: Order in which the host merges: "block", core by core, or "row", row by row.
        merge_threads: Number of the host's threads that merge.
        pipelined: With several rounds, the host merges one round while the cores run the kernels of the next.
        reuse_buffers: Keep the host's result buffers between calls, so that their pages stay mapped.
        rounds: Number of passes in which a cluster processes its feature columns.
        block_rounds: Number of passes in which a cluster processes its block of the matrix; the host then
            sends the matrix's pieces again in every call.
        stream: If the plan does not fit, use as many passes as needed instead of raising an error.
        dtype: Dtype of the features in the machine; None means unchanged. For float features, an integer
            dtype means that they are quantised.
        accumulator: Dtype of the sums; None means the narrowest that provably holds them.
        scale: Factors of a quantised tensor: one factor for the "tensor", or one for each "column".
        scheme: "paf"; or the prior art that the plan reproduces: "grande" (every core of a rank has the same
            part of the matrix, and the features are cut among the cores; ``ds`` must be at least the cores of
            a rank) or "sparsep" (sparse matrix times vector, column after column). Or a user's own scheme:
            the name under which it was registered, or ``FILE.py:CLASS``.

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
        """Check every field."""
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
        """Return the main choices in one line."""
        parts = [f"{self.sp}x{self.ds}", self.format, f"cores by {self.core_balance}"]
        parts += [f"tasklets by {self.thread_balance}", f"{self.tasklets} tasklets"]
        if self.column_cut != "equal":
            parts.append("columns cut by edges")
        if self.rounds * self.block_rounds > 1:
            parts.append(f"{self.rounds} x {self.block_rounds} rounds")
        return ", ".join(parts if self.scheme == "paf" else [self.scheme, *parts])
