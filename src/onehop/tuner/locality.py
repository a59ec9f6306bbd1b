"""Share of reads that find a row in a cache of a given size: sampled reuse times, and footprints.

The kernels read the rows of x in the order of the graph's columns. For each read of a sampled row, the reuse
time is the number of reads since the last one of the same row. From the reuse times follows the footprint,
the mean number of different rows in a window of a given length, and from the footprint the share of reads
that miss: those whose reuse time is longer than the window that fills the cache. Theory: X. Xiang, C. Ding,
H. Luo, B. Bao, "HOTL: a higher order theory of locality", ASPLOS 2013. Rows are sampled by a hash of their
number, so that all reads of a sampled row are seen: C. Waldspurger et al., "Efficient MRC construction with
SHARDS", FAST 2015.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

# About as many reads are sampled, however many there are.
SAMPLED_READS = 1 << 19
_WINDOWS = 96
# Knuth's multiplicative hash.
_HASH, _HASH_BITS = 2654435761, 16


@dataclass(frozen=True, slots=True)
class Locality:
    """Reuse in one order of reads.

    Attributes:
        reads: Number of reads.
        rows: Number of different rows that are read, estimated from the sample.
        windows: Ascending window lengths, in reads.
        footprints: Different rows in a window, for each length.
        longer: Share of the reads whose reuse time exceeds each length, first reads among them.
    """

    reads: int
    rows: float
    windows: np.ndarray
    footprints: np.ndarray
    longer: np.ndarray

    @classmethod
    def of(cls, col: Tensor, num_src: int) -> "Locality":
        """The locality of reading rows in the order of ``col`` ([E], int32)."""
        reads = len(col)
        kept_share, position, node = _sample(col, num_src, reads)
        if len(node) == 0:
            one = np.ones(1)
            return cls(reads, 0.0, one, 0 * one, 0 * one)
        order = torch.sort(node, stable=True).indices
        nodes, when = node[order].numpy(), position[order].numpy().astype(np.float64)
        same = nodes[1:] == nodes[:-1]
        gaps = when[1:] - when[:-1]
        reuse = gaps[same]
        first = when[np.concatenate([[True], ~same])] + 1
        last = reads - when[np.concatenate([~same, [True]])]
        windows = np.unique(np.geomspace(1, max(reads, 2), _WINDOWS).astype(np.int64)).astype(np.float64)
        absent = sum(_excess(times, windows) for times in (reuse, first, last))
        footprints = (len(first) - absent / (reads - windows + 1)) / kept_share
        beyond = len(reuse) - np.searchsorted(np.sort(reuse), windows, side="right")
        # Relative to the expected sample size: hubs that it missed would have been hits (SHARDS-adj).
        longer = np.minimum((beyond + len(first)) / (kept_share * reads), 1.0)
        return cls(reads, len(first) / kept_share, windows, np.maximum.accumulate(footprints), longer)

    def miss_share(self, cache_rows: float, streams: int = 1) -> float:
        """The share of reads that miss an LRU cache of a given number of rows.

        Args:
            cache_rows: Rows that it holds.
            streams: Number of threads that fill it together, each at another place of the same order.
        """
        if self.rows == 0 or cache_rows >= self.rows:
            return 0.0
        if cache_rows < 1:
            return 1.0
        window = float(np.interp(cache_rows, self.footprints, self.windows)) / streams
        return float(np.interp(math.log(max(window, 1.0)), np.log(self.windows), self.longer))


def _sample(col: Tensor, num_src: int, reads: int) -> tuple[float, Tensor, Tensor]:
    """The share of rows that is sampled, and the reads of those: their positions and rows."""
    limit = 1 << _HASH_BITS
    kept = limit if reads <= SAMPLED_READS else max(1, limit * SAMPLED_READS // reads)
    if kept == limit:
        return 1.0, torch.arange(reads, device="cpu"), col
    numbers = torch.arange(num_src, dtype=torch.int64, device="cpu")
    chosen = ((numbers * _HASH) >> 8) % limit < kept
    position = chosen[col].nonzero().squeeze(1)
    return kept / limit, position, col[position]


def _excess(times: np.ndarray, windows: np.ndarray) -> np.ndarray:
    """Sums, for each window, the excess of longer times."""
    ordered = np.sort(times)
    sums = np.concatenate([[0.0], np.cumsum(ordered)])
    shorter = np.searchsorted(ordered, windows, side="right")
    return np.asarray((sums[-1] - sums[shorter]) - windows * (len(ordered) - shorter))
