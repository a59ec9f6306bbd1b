"""The rules by which a matrix is cut, edge by edge in plain Python: what the native code is compared with."""

from dataclasses import dataclass

from onehop import Graph
from onehop.machines.pim.shapes import CutRule


@dataclass
class Piece:
    """What a tasklet, or a core, has."""

    edges: list[int]
    rows: range


def parts(graph: Graph, bounds: list[int]) -> list[list[list[int]]]:
    """For every block of columns, for every row, its edges: numbered block by block, row by row."""
    source, target = (each.tolist() for each in graph.edge_index())
    order = [] if graph.perm is None else graph.perm.tolist()
    stored = order or range(graph.num_edges)
    found: list[list[list[int]]] = [[[] for _ in range(graph.num_dst)] for _ in bounds[1:]]
    for edge in stored:
        part = next(p for p in range(len(bounds) - 1) if bounds[p] <= source[edge] < bounds[p + 1])
        found[part][target[edge]].append(edge)
    number = 0
    for part in found:
        for row in part:
            row[:] = range(number, number + len(row))
            number += len(row)
    return found


def cut(part: list[list[int]], rule: CutRule) -> list[tuple[Piece, list[Piece]]]:
    """What every core has, and what its tasklets have."""
    edges = [edge for row in part for edge in row]
    if rule.straddling:
        cores = [_around(part, share) for share in _shares(edges, rule.cores)]
    else:
        by_edges = rule.coo or rule.cores_by_edge
        cores = [
            Piece([edge for row in rows for edge in part[row]], rows)
            for rows in _rows(part, range(len(part)), rule.cores, 1, by_edges, set(edges))
        ]
    return [(core, _tasklets(part, core, rule)) for core in cores]


def _tasklets(part: list[list[int]], core: Piece, rule: CutRule) -> list[Piece]:
    if rule.coo and rule.threads_by_edge:
        return [_around(part, share) for share in _shares(core.edges, rule.tasklets)]
    own, granule = set(core.edges), 1 if rule.coo else rule.row_granule
    by_edges = rule.coo or rule.threads_by_edge
    return [
        Piece([edge for row in rows for edge in part[row] if edge in own], rows)
        for rows in _rows(part, core.rows, rule.tasklets, granule, by_edges, own)
    ]


def _shares(edges: list[int], number: int) -> list[list[int]]:
    """Equally many; the first ones get one more."""
    least, more = divmod(len(edges), number)
    found, at = [], 0
    for share in range(number):
        size = least + (share < more)
        found.append(edges[at : at + size])
        at += size
    return found


def _around(part: list[list[int]], edges: list[int]) -> Piece:
    """Edges, and the rows from the first's to the last's."""
    wanted = set(edges)
    rows = [row for row, own in enumerate(part) for edge in own if edge in wanted]
    return Piece(edges, range(rows[0], rows[-1] + 1) if rows else range(0))


def _rows(
    part: list[list[int]], rows: range, number: int, granule: int, by_edges: bool, own: set[int]
) -> list[range]:
    """Cut between rows: evenly, or where a piece has its share of the edges; at multiples of the granule."""
    units = [range(at, min(at + granule, rows.stop)) for at in range(rows.start, rows.stop, granule)]
    if not by_edges:
        chosen = _shares(list(range(len(units))), number)
    else:
        share = max(len(own) // number, 1)
        chosen, count = [[] for _ in range(number)], 0
        piece = 0
        for unit in range(len(units)):
            chosen[piece].append(unit)
            count += sum(edge in own for row in units[unit] for edge in part[row])
            if count >= share and piece < number - 1:
                piece, count = piece + 1, 0
    return [range(units[c[0]].start, units[c[-1]].stop) if c else range(0) for c in chosen]


def filled(part: list[list[int]], piece: Piece) -> int:
    """Rows of a piece that have edges in the part."""
    return sum(bool(part[row]) for row in piece.rows)
