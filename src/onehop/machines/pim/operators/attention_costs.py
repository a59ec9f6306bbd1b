"""Work and bytes of attention on the cores: scores, softmax and weighted sums, row by row.

A row belongs to one tasklet (CSR), which reads the row's edges twice. First it computes each edge's score,
keeps the largest, and writes the score to its bank. Then it reads the score again, takes the exponential, and
adds the source's values times the exponential. At the end it divides by the sum of exponentials. For each of
its rows, a core returns these averages, and per head the largest score and the sum.

Formulas, with H heads, D columns of a head's key and V of its value:

    gat      leaky_relu(key[j] + query[i] + edge): an add (two with an edge's score), a comparison, a multiply
    gatv2    att . leaky_relu(value[j] + query[i]): for each column two adds, a comparison and a multiply,
             because
      the slope is multiplied into a second vector ``att``
    dot      query[i] . key[j], the factor multiplied into the queries by the host: a multiply and an add

Multiplies of random numbers are assumed to take all bits, as in sums of float features.
"""

from dataclasses import dataclass

import numpy as np

from onehop.machines.base import AttentionSize
from onehop.machines.pim.config import PimConfig
from onehop.machines.pim.costs import (
    READER_PAGES,
    bottleneck,
    bulk_cycles,
    interpolate,
    multiply_instructions,
)
from onehop.machines.pim.numbers import NAMES
from onehop.machines.pim.scheme import padded
from onehop.machines.pim.shapes import WorkCounts
from onehop.plans.pim import PimPlan


def granule(size: AttentionSize) -> int:
    """Return the columns that must be in one core: all columns of a head if scores need them, else 1."""
    return 1 if size.rule == "gat" else max(size.width, 1)


@dataclass(frozen=True, slots=True)
class Share:
    """Sizes of the part of a row or an edge that a core holds, for the columns of its cluster.

    columns: Number of value columns.
        heads: Number of heads to which these columns belong.
        heads: Heads that these belong to.
        key: Padded bytes of a source's keys; 0 for gatv2, which uses its values as keys.
        value: Padded bytes of a source's values.
        query: Padded bytes of a destination's queries.
        result: Padded bytes of a row of results: averages, largest scores, sums.
        useful_source: Bytes of a source without padding.
        useful_query: Bytes of a destination without padding.
        useful_result: Bytes of a result without padding.
        edge: Bytes of an edge's own numbers: score and mask.
    """

    columns: int
    heads: int
    key: int
    value: int
    query: int
    result: int
    useful_source: int
    useful_query: int
    useful_result: int
    edge: int


def share_of(config: PimConfig, size: AttentionSize, begin: int, end: int) -> Share:
    """Return the sizes for the columns from ``begin`` up to ``end`` of the values of all heads."""
    item, align = size.dtype.itemsize, config.core.alignment_bytes
    columns = end - begin
    heads = -(-end // size.width) - begin // size.width
    keys = 0 if size.rule == "gatv2" else heads * size.key_width
    queries = heads * size.key_width

    def filled(numbers: int) -> int:
        return padded(numbers, item, align) * item

    return Share(
        columns,
        heads,
        filled(keys),
        filled(columns),
        filled(queries),
        filled(columns + 2 * heads),
        (keys + columns) * item,
        queries * item,
        (columns + 2 * heads) * item,
        heads * item * (size.edge_scores + size.masked),
    )


def score_instructions(config: PimConfig, size: AttentionSize) -> float:
    """Return the instructions of one edge's score of one head."""
    add, multiply, compare = _operations(config, NAMES[size.dtype])
    if size.rule == "gat":
        return add * (1 + size.edge_scores) + compare + multiply
    each = config.core.element_instructions + multiply + add
    if size.rule == "gatv2":
        each += add + compare
    return size.key_width * each


def attention_cycles(
    config: PimConfig, plan: PimPlan, size: AttentionSize, share: Share, counts: WorkCounts
) -> tuple[np.ndarray, np.ndarray]:
    """Return the cycles of every core's kernel, and the busy cycles of each tasklet.

    Returns:
        [parts, cores], and [parts, cores, tasklets].
    """
    core, functions = config.core, config.functions[NAMES[size.dtype]]
    add, multiply, compare = _operations(config, NAMES[size.dtype])
    # First pass: score and maximum. Second pass: subtract the maximum, exponential, sum, mask; then the
    # columns.
    scored = share.heads * (score_instructions(config, size) + compare)
    weighed = share.heads * (add + functions.exponential + add + size.masked * multiply)
    summed = share.columns * (core.element_instructions + multiply + add)
    edge = 2 * core.edge_instructions + scored + weighed + summed
    row = 2 * core.row_instructions + share.columns * core.row_element_instructions
    row += share.heads * functions.divide + share.columns * multiply
    instructions = counts.edges * edge + counts.rows * row

    read, write = core.dma_read_cycles, core.dma_write_cycles
    block = READER_PAGES * plan.reader_bytes
    consumed = block if plan.reader == "block" else plan.reader_bytes
    streamed = float(interpolate(read, block)) / consumed
    stored = float(interpolate(write, block)) / block
    item = size.dtype.itemsize
    scores = share.heads * item
    keys = share.key or share.value
    # The indices are read twice; scores are written once and read once; the edges' own numbers are read once.
    of_edge = 2 * 4 * streamed + scores * (stored + streamed) + share.edge * streamed
    of_edge += bulk_cycles(core, read, keys) + bulk_cycles(core, read, share.value)
    of_row = 2 * 4 * streamed + bulk_cycles(core, read, share.query) + bulk_cycles(core, write, share.result)
    transfers = counts.edges * of_edge + counts.rows * of_row
    return bottleneck(core, counts, instructions, transfers)


def bank_bytes(
    share: Share, item: int, columns: np.ndarray, rows: np.ndarray, edges: np.ndarray
) -> np.ndarray:
    """Return the bytes that a core's bank must hold: results, queries, keys, values, indices, edge numbers.

    ``item``: bytes of a number; ``columns``: sources of a part; ``rows``, ``edges``: the largest number of
    rows and edges in a core. The edge numbers include the scores.
    """
    needed = rows * (share.result + share.query) + columns * (share.key + share.value)
    needed = needed + matrix_bytes(rows, edges) + edges * (share.heads * item + share.edge)
    total: np.ndarray = np.ceil(needed).astype(np.int64)
    return total


def matrix_bytes(rows: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return the bytes of row bounds and indices, each padded to a multiple of two entries."""
    total: np.ndarray = 4 * np.ceil((rows + 1) / 2) * 2 + 4 * np.ceil(edges / 2) * 2
    return total


def working_bytes(config: PimConfig, plan: PimPlan, size: AttentionSize, share: Share) -> int:
    """Return the working memory of all tasklets in bytes: a row of each kind, readers, a writer, a stack."""
    streams = 4 + size.edge_scores + size.masked
    each = share.key + share.value + share.query + share.result
    each += streams * READER_PAGES * plan.reader_bytes + config.core.stack_bytes
    return plan.tasklets * each


def _operations(config: PimConfig, dtype: str) -> tuple[float, float, float]:
    """Return the instructions of an add, a multiply by a random number, and a comparison."""
    costs = config.arithmetic[dtype]
    multiply = multiply_instructions(costs, costs.significant_bits)
    return costs.accumulate, multiply, config.functions[dtype].compare
