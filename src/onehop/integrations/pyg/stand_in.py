"""The operators of pyg-lib that PyG calls by name, used if pyg-lib is not installed.

PyG 2.8 searches neighbours of points, samples points, clusters points and draws walks with ``torch.ops.pyg``,
which pyg-lib registers, and first checks flags of ``torch_geometric.typing``. When the patch is removed, the
operators stay registered, and the flags are restored.
"""

import torch
import torch_geometric.typing
from torch import Tensor
from torch_geometric.nn.conv import spline_conv
from torch_geometric.nn.models import node2vec

from onehop.errors import ArgumentError
from onehop.graph.matching import matched
from onehop.integrations.pyg import clouds
from onehop.integrations.pyg.operators import Operator, StandsIn, has_pyg_lib, register
from onehop.integrations.rows import Row
from onehop.loaders.walks import random_walk
from onehop.ops.splines import spline_basis, spline_weighting
from onehop.points.farthest import farthest_points
from onehop.points.search import knn, nearest, within


def rows() -> list[Row]:
    """Return the rows for flags and functions; none if pyg-lib is installed or PyG is older than 2.8."""
    table = [
        Row(spline_conv, function.__name__, function, None)
        for function in (spline_basis, spline_weighting)
        if getattr(spline_conv, function.__name__, True) is None
    ]
    if not getattr(torch_geometric.typing, "WITH_SPLINE", True):
        table.append(Row(torch_geometric.typing, "WITH_SPLINE", True, False))
    for flag, operator in _OPERATORS.items():
        if not getattr(torch_geometric.typing, flag, True):
            register([operator])
            table.append(Row(torch_geometric.typing, flag, True, False))
    # If the flag is set, older releases call more operators of pyg-lib than onehop has.
    if hasattr(torch_geometric.typing, "WITH_KNN") and not has_pyg_lib():
        table += clouds.rows()
        register([_WALKS])
        table += [
            Row(owner, "WITH_PYG_LIB", StandsIn(), False) for owner in (torch_geometric.typing, node2vec)
        ]
    return table


def _knn(
    x: Tensor,
    y: Tensor,
    ptr_x: Tensor | None = None,
    ptr_y: Tensor | None = None,
    k: int = 1,
    cosine: bool = False,
    num_workers: int = 1,
) -> Tensor:
    return knn(x, y, k, ptr_x, ptr_y, cosine=cosine)


def _radius(
    x: Tensor,
    y: Tensor,
    ptr_x: Tensor | None = None,
    ptr_y: Tensor | None = None,
    r: float = 1.0,
    max_num_neighbors: int = 32,
    num_workers: int = 1,
    ignore_same_index: bool = False,
) -> Tensor:
    if max_num_neighbors < 0:
        raise ArgumentError(f"max_num_neighbors: expected at least 0, got {max_num_neighbors}.")
    return within(x, y, r, ptr_x, ptr_y, most=max_num_neighbors, omit_self=ignore_same_index)


def _fps(src: Tensor, ptr: Tensor, ratio: float = 0.5, random_start: bool = True) -> Tensor:
    return farthest_points(src, ptr, ratio, random_start=random_start)


def _graclus_cluster(rowptr: Tensor, col: Tensor, weight: Tensor | None = None) -> Tensor:
    return matched(rowptr, col, weight)


def _grid_cluster(
    pos: Tensor, size: Tensor, start: Tensor | None = None, end: Tensor | None = None
) -> Tensor:
    """Return the number of each point's voxel; cells are counted along the first dimension fastest.

    Raises an ArgumentError for sizes or coordinates that give no voxel numbers.
    """
    if not bool((size > 0).all()):
        dim = int((size > 0).int().argmin())
        raise ArgumentError(f"size: expected numbers above 0, got {size[dim].item()} in dimension {dim}.")
    for name, points in (("pos", pos), ("start", start), ("end", end)):
        if points is not None and not bool(points.isfinite().all()):
            place = (~points.isfinite()).nonzero()[0].tolist()
            raise ArgumentError(
                f"{name}: expected finite coordinates, got {points[tuple(place)].item()} in entry {place}."
            )
    first = pos.amin(0) if start is None else start
    last = pos.amax(0) if end is None else end
    if not bool((last >= first).all()):
        dim = int((last >= first).int().argmin())
        raise ArgumentError(
            f"start, end: expected a grid that ends where it begins or behind, got {first[dim].item()} to "
            f"{last[dim].item()} in dimension {dim}."
        )
    steps = ((last - first) / size).trunc()
    if not float((steps.double() + 1).prod()) < 2.0**63:
        raise ArgumentError("size: the grid has 2^63 cells or more, which 64 bits cannot number; enlarge it.")
    cells = steps.long() + 1
    strides = torch.cat([torch.ones_like(cells[:1]), cells[:-1].cumprod(0)])
    return (((pos - first) / size).trunc().long() * strides).sum(1)


def _random_walk(rowptr: Tensor, col: Tensor, seed: Tensor, walk_length: int, p: float, q: float) -> Tensor:
    # PyG counts in 64 bits, but passes edges of 32 bits unchanged.
    return random_walk(rowptr, col.to(rowptr.dtype), seed, walk_length, p, q)


def _pairs(x: Tensor, *_: object, **__: object) -> Tensor:
    return x.new_empty(2, torch.library.get_ctx().new_dynamic_size(), dtype=torch.int64)


def _some(src: Tensor, *_: object, **__: object) -> Tensor:
    return src.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.int64)


def _each(x: Tensor, *_: object, **__: object) -> Tensor:
    return x.new_empty(x.size(0), dtype=torch.int64)


def _nodes(rowptr: Tensor, *_: object) -> Tensor:
    return rowptr.new_empty(rowptr.size(0) - 1)


def _walks(rowptr: Tensor, col: Tensor, seed: Tensor, walk_length: int, p: float, q: float) -> Tensor:
    return rowptr.new_empty(seed.size(0), walk_length + 1)


_OF_POINTS = "Tensor x, Tensor y, Tensor? ptr_x=None, Tensor? ptr_y=None"
# The operators with their schemas, by the flag of PyG that says whether pyg-lib has them.
_OPERATORS = {
    "WITH_KNN": Operator(
        f"knn({_OF_POINTS}, int k=1, bool cosine=False, int num_workers=1) -> Tensor", _knn, fake=_pairs
    ),
    "WITH_RADIUS": Operator(
        f"radius({_OF_POINTS}, float r=1.0, int max_num_neighbors=32, int num_workers=1, "
        "bool ignore_same_index=False) -> Tensor",
        _radius,
        fake=_pairs,
    ),
    "WITH_NEAREST": Operator(f"nearest({_OF_POINTS}) -> Tensor", nearest, fake=_each),
    "WITH_FPS": Operator(
        "fps(Tensor src, Tensor ptr, float ratio=0.5, bool random_start=True) -> Tensor", _fps, fake=_some
    ),
    "WITH_GRACLUS": Operator(
        "graclus_cluster(Tensor rowptr, Tensor col, Tensor? weight=None) -> Tensor",
        _graclus_cluster,
        fake=_nodes,
    ),
    "WITH_GRID_CLUSTER": Operator(
        "grid_cluster(Tensor pos, Tensor size, Tensor? start=None, Tensor? end=None) -> Tensor",
        _grid_cluster,
        fake=_each,
    ),
}
_WALKS = Operator(
    "random_walk(Tensor rowptr, Tensor col, Tensor seed, int walk_length, float p, float q) -> Tensor",
    _random_walk,
    fake=_walks,
)
