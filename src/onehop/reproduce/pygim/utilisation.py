"""The share of its peak that each side reaches: the simulated cores, and PyTorch's kernel on GPUs.

The GPU's side is a bound. The kernel is the kernel of pytorch_sparse (csrc/cuda/spmm_cuda.cu): one warp per
row, in blocks of eight; 32 columns of all rows, then the next 32; indices of 8 bytes. It takes as long as its
bytes take at the memory's peak. Of the sources' rows, these bytes are either the bytes that miss the L2 cache
(:mod:`onehop.machines.gpu`) or, as the other extreme, all bytes that edges read.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from statistics import geometric_mean

from onehop.graph import Graph
from onehop.machines import gpu
from onehop.reproduce.intervals import OUR_CHOICE, Setting, Unknown, decides, interval
from onehop.reproduce.pygim.assumptions import THREADS, base
from onehop.reproduce.pygim.comparison import Case, open_winner
from onehop.reproduce.pygim.schemes import PUBLISHED, WIDTH, named
from onehop.reproduce.tables import Chart, Row, row, spans

# The abstract: the mean over PyTorch on a GPU whose name could not be read.
_PAPER = 11.6
_GPU = "rtx_3090"
_KERNEL = gpu.Kernel("feature", load_bytes=4, block_warps=8)
_COLUMNS, _INDEX_BYTES, _ITEM_BYTES = 32, 8, 4
_CORES = "near-bank cores"

_WHOLE, _UNCACHED = "the whole aggregation", "no cache"
_DEFINITION = (
    Unknown(
        "the time of the cores' utilisation",
        "the kernel",
        (_WHOLE,),
        f"{OUR_CHOICE}: the abstract does not define utilisation",
        "the paper's definition of utilisation",
    ),
    Unknown(
        "the GPU's cache",
        "as modelled",
        (_UNCACHED,),
        "the bytes that miss the cache are the least that a GPU reads, all bytes are the most",
        "the paper's share of the GPU's peak",
    ),
)

# By GPU: the lowest share of its peak, if every edge reads a row from memory, and the share with its cache.
Shares = Mapping[str, tuple[float, float]]


def shares(graph: Graph, part: float = 1.0) -> Shares:
    """Return the shares of their peaks, at most 1, that GPUs reach in a float32 product with a value matrix.

    For a part of a graph, the GPUs are reduced in the same proportion.
    """
    return {name: _shares(gpu.load(name).part(part), graph) for name in gpu.presets()}


def _shares(device: gpu.Gpu, graph: Graph) -> tuple[float, float]:
    rows = gpu.gather(graph, _COLUMNS * _ITEM_BYTES, _KERNEL, device)
    # Bytes of a pass: indices and values of edges, row begins, and results.
    others = graph.num_edges * (_INDEX_BYTES + _ITEM_BYTES)
    others += graph.num_dst * (_INDEX_BYTES + _COLUMNS * _ITEM_BYTES)

    def share(sectors: int) -> float:
        pass_ns = (sectors * device.sector_bytes + others) / device.dram_gbps
        return min(2.0 * graph.num_edges * _COLUMNS / pass_ns / device.fp32_gflops, 1.0)

    return share(rows.read), share(rows.fetched)


def rows(cases: Sequence[Case], by_graph: Mapping[str, Shares]) -> list[Row]:
    """Return the cores' shares by graph, and their ratios to PyTorch on GPUs, as a mean and for each GPU."""
    alike = _alike(cases)
    table = []
    for case in alike:
        figure = f"utilisation of the cores in the kernel, {PUBLISHED}, {case.graph}"
        note = "Operations over what the cores reach on arithmetic alone; "
        note += "the paper's definition could not be read."
        table.append(row(figure, "%", note, 100 * case.base.reports[PUBLISHED].utilisation))
    if not alike:
        return table
    over = {name: _over(alike, by_graph, name) for name in gpu.presets()}
    labels = {name: "" if name == _GPU else gpu.load(name).name for name in over}
    spanned = interval(
        {
            frozenset({*setting, *([labels[name]] if labels[name] else [])}): value
            for name, values in over.items()
            for setting, value in values.items()
        }
    )
    note = (
        "The cores' share of their peak, simulated, over the share that a GPU's memory allows at its peak, "
        f"here an {gpu.load(_GPU).name}'s. The paper's GPU and its definition of utilisation could not be "
        "read."
    )
    unknowns = (
        Unknown(
            "the GPU",
            gpu.load(_GPU).name,
            tuple(label for label in labels.values() if label),
            f"{OUR_CHOICE}: the paper's GPU is not in the abstract",
            "the paper's GPU",
        ),
        *_DEFINITION,
    )
    figure = "utilisation over PyTorch's on a GPU"
    table.append(
        row(
            figure,
            "x",
            note,
            spanned,
            _PAPER,
            headline=True,
            decides=decides(spanned, unknowns),
            unknowns=unknowns,
        )
    )
    for name, values in over.items():
        note = "Peaks of arithmetic and memory are NVIDIA's; the GPU's file names the documents."
        figures = list(values.values())
        table.append(row(f"{figure}, {gpu.load(name).name}", "x", note + open_winner(figures), figures))
    return table


def _alike(cases: Sequence[Case]) -> list[Case]:
    """Return the cases that the published scheme fits, with as many merging threads as the published code."""
    return [case for case in cases if case.threads == THREADS[0] and PUBLISHED in case.base.reports]


def _over(cases: Sequence[Case], by_graph: Mapping[str, Shares], name: str) -> dict[Setting, float]:
    """Return means of the cores' share divided by a GPU's: kernel time with the GPU's cache is the base."""
    means = {}
    for whole, cached in product((False, True), (True, False)):
        ratios = []
        for case in cases:
            report = case.base.reports[PUBLISHED]
            reached = report.utilisation_total if whole else report.utilisation
            ratios.append(reached / by_graph[case.graph][name][cached])
        setting = frozenset([*([_WHOLE] if whole else []), *([] if cached else [_UNCACHED])])
        means[setting] = geometric_mean(ratios)
    return means


def chart(cases: Sequence[Case], by_graph: Mapping[str, Shares]) -> Chart:
    """Return a chart with the shares of their peaks that the cores and the GPUs reach, by graph."""
    reached: dict[str, list[tuple[float, float]]] = {}
    for case in _alike(cases):
        report = case.base.reports[PUBLISHED]
        reached[case.graph] = [
            (report.utilisation_total, report.utilisation),
            *by_graph[case.graph].values(),
        ]
    return Chart(
        name="utilisation",
        title=f"Share of its peak, width {WIDTH}; lines: transfers and merge too, or a GPU without caches",
        machine=f"{named(base().config)}; GPUs bounded by their memory",
        unit="share of the peak, %",
        groups=(_CORES, *(gpu.load(name).name for name in gpu.presets())),
        series=spans(
            {
                graph: [(100 * high, 100 * low, 100 * high) for low, high in ends]
                for graph, ends in reached.items()
            }
        ),
        logarithmic=True,
    )
