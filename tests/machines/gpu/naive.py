"""A second cache sector by sector, and blocks one by one, as their description says: the oracle."""

from collections import OrderedDict


class NaiveCache:
    """Sectors of each set from the least to the most recent one."""

    def __init__(self, size, ways):
        self.ways = max(min(ways, size), 1)
        self.sets = [OrderedDict() for _ in range(size // self.ways)]
        self.fetched = 0

    def read(self, sector):
        if not self.sets:
            self.fetched += 1
            return
        hashed = (sector * 0x9E3779B97F4A7C15) % 2**64 >> 32
        held = self.sets[hashed * len(self.sets) >> 32]
        if sector not in held:
            self.fetched += 1
            if len(held) == self.ways:
                held.popitem(last=False)
            held[sector] = None
        held.move_to_end(sector)


def steps_of(row, mapping, sectors, tile):
    """What a warp reads in each of its steps: lists of lists of sectors, the inner ones one after another."""
    if mapping == "neighbour":
        chunks = [row[first : first + 32] for first in range(0, len(row), 32)]
        return [[[u * sectors + s for u in chunk] for s in range(sectors)] for chunk in chunks]
    tiles = range(0, sectors, tile)
    return [[[u * sectors + s for s in range(first, first + tile)]] for first in tiles for u in row]


def fetched(rows, mapping, row_bytes, load_bytes, block_warps, warps, passes, size, ways):
    """Sectors that are fetched; ``rows`` are lists of columns, ``size`` the sectors of the cache."""
    sectors = row_bytes // 32
    tile = min(row_bytes, 32 * load_bytes) // 32
    # Every block begins when the first of the places becomes free, in turns.
    free = [0] * max(warps // block_warps, 1)
    turns = {}
    for first in range(0, len(rows), block_warps):
        block = [steps_of(row, mapping, sectors, tile) * passes for row in rows[first : first + block_warps]]
        place = free.index(min(free))
        for warp in block:
            for number, step in enumerate(warp):
                turns.setdefault(free[place] + number, []).append(step)
        free[place] += max(len(warp) for warp in block)
    cache = NaiveCache(size, ways)
    for _, steps in sorted(turns.items()):
        for phase in range(max(len(step) for step in steps)):
            for step in steps:
                for sector in step[phase]:
                    cache.read(sector)
    return cache.fetched
