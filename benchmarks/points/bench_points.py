"""Searches among points and walks beside torch_cluster, whose code pyg-lib took over.

    python -m benchmarks.points.bench_points search [--cases knn,radius,fps,walks] [--largest 20000]
    python -m benchmarks.points.bench_points epochs [--models dgcnn,...]

torch_cluster must be importable; it is no dependency of onehop. Its OpenMP runtime may be another than
torch's, and its threads must not spin while they wait: set ``OMP_WAIT_POLICY=PASSIVE``.

``search`` compares results first: the distances of all neighbours that were found must be the same.
``epochs`` trains models of PyG, without the patch on torch_cluster's functions instead of pyg-lib's, and with
the patch.
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

import torch
import torch_geometric.typing
from torch import Tensor, nn
from torch_geometric import nn as gnn
from torch_geometric.nn.models import node2vec

import onehop
from benchmarks import harness
from benchmarks.harness import Benchmark, Option, Options, Row, run_part, steady
from onehop.bench.timing import in_turns
from onehop.loaders.walks import random_walk
from onehop.points.farthest import farthest_points
from onehop.points.search import knn, within

# Distances are compared in float64; torch_cluster searches in the given dtype.
TOLERANCE = 1e-4
TURN_S = 0.2


@dataclass(frozen=True)
class Cloud:
    """Points of clouds of one size, uniform in a cube.

    Attributes:
        clouds: Number of clouds.
        size: Points of each.
        dims: Dimensions.
        neighbours: k, or None for a search within a radius that has about 32 neighbours.
    """

    clouds: int
    size: int
    dims: int
    neighbours: int | None = 16

    def points(self) -> tuple[Tensor, Tensor]:
        """Return [N, dims] and the bounds of the clouds."""
        points = torch.rand(self.clouds * self.size, self.dims, generator=torch.Generator().manual_seed(0))
        return points, torch.arange(self.clouds + 1) * self.size

    @property
    def radius(self) -> float:
        """The radius of a ball with 32 points."""
        ball = math.pi ** (self.dims / 2) / math.gamma(self.dims / 2 + 1)
        return float((32 / (self.size * ball)) ** (1 / self.dims))


SEARCHES = [
    *(Cloud(1, size, 3, k) for size in (1_000, 20_000, 200_000, 1_000_000) for k in (6, 16, 32)),
    *(Cloud(1, size, 3, None) for size in (1_000, 20_000, 200_000)),
    Cloud(1, 20_000, 8),
    Cloud(1, 20_000, 12),
    Cloud(1, 4_096, 16),
    Cloud(1, 4_096, 64),
    Cloud(1, 4_096, 128),
    Cloud(32, 1_024, 3, 20),
    Cloud(32, 1_024, 64, 20),
    Cloud(32, 1_024, 128, 20),
    Cloud(1_000, 20, 3, None),
]
PICKS = [Cloud(32, 1_024, 3), Cloud(1, 20_000, 3)]


def _distances(points: Tensor, pairs: Tensor, of: int) -> Tensor:
    """The sorted distances of the pairs of each point."""
    far = (points.double()[pairs[0]] - points.double()[pairs[1]]).square().sum(1)
    order = far.argsort()
    return far[order[pairs[of][order].argsort(stable=True)]]


def _measured(what: Row, ours: Callable[[], Tensor], theirs: Callable[[], Tensor], rounds: int) -> Row:
    times = in_turns({"onehop": steady(ours, TURN_S), "torch_cluster": steady(theirs, TURN_S)}, rounds)
    return what | harness.compared(times, "torch_cluster")


def searches(options: Options) -> Iterator[Row]:
    """Nearest points, points within a distance, farthest points, walks."""
    import torch_cluster

    workers = torch.get_num_threads()
    for case in SEARCHES if {"knn", "radius"} & set(options.cases) else ():
        kind = "radius" if case.neighbours is None else "knn"
        if kind not in options.cases or case.size > options.largest:
            continue
        x, ptr = case.points()
        batch = torch.arange(case.clouds).repeat_interleave(case.size)
        if case.neighbours is None:
            ours = partial(within, x, x, case.radius, ptr, ptr, most=64)
            theirs = partial(torch_cluster.radius, x, x, case.radius, batch, batch, 64, workers)
        else:
            ours = partial(knn, x, x, case.neighbours, ptr, ptr)
            theirs = partial(torch_cluster.knn, x, x, case.neighbours, batch, batch, num_workers=workers)
        found, expected = (_distances(x, each(), 0) for each in (ours, theirs))
        if found.shape == expected.shape:
            harness.must_agree(harness.apart_by([found], [expected]), TOLERANCE, f"{kind} of {case}")
        elif kind == "knn" or abs(found.numel() - expected.numel()) > 1e-4 * expected.numel():
            raise SystemExit(f"{kind} of {case}: {found.numel()} and {expected.numel()} pairs.")
        what = {
            "case": kind, "clouds": case.clouds, "points": case.size, "dims": case.dims,
            "neighbours": case.neighbours or round(found.numel() / x.size(0), 1),
        }  # fmt: skip
        yield _measured(what, ours, theirs, options.rounds)
    for case in PICKS if "fps" in options.cases else ():
        x, ptr = case.points()
        ours = partial(farthest_points, x, ptr, 0.5, random_start=False)
        theirs = partial(torch_cluster.fps, x, ptr=ptr, ratio=0.5, random_start=False)
        same = (ours() == theirs()).double().mean()
        what = {
            "case": "fps", "clouds": case.clouds, "points": case.size, "dims": case.dims,
            "same": float(same),
        }  # fmt: skip
        yield _measured(what, ours, theirs, options.rounds)
    if "walks" in options.cases:
        yield from _walks(options)


def _walks(options: Options) -> Iterator[Row]:
    import torch_cluster  # noqa: F401

    edge_index = torch.randint(0, 169_343, (2, 2_315_598), generator=torch.Generator().manual_seed(0))
    graph = onehop.Graph.from_edge_index(edge_index.flip(0), 169_343)
    rowptr, col = graph.rowptr, graph.col.long()
    start = torch.arange(169_343)
    for p, q in ((1.0, 1.0), (0.5, 2.0)):
        ours = partial(random_walk, rowptr, col, start, 20, p, q)

        def theirs(p: float = p, q: float = q) -> Tensor:
            found: Tensor = torch.ops.torch_cluster.random_walk(rowptr, col, start, 20, p, q)[0]
            return found

        yield _measured({"case": f"walks, p {p:g}, q {q:g}", "points": 169_343}, ours, theirs, options.rounds)


# --- epochs ----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def torch_clusters() -> Iterator[None]:
    """Puts torch_cluster's functions instead of pyg-lib's."""
    import torch_cluster

    workers = torch.get_num_threads()
    plain = torch.ops.torch_cluster

    def found(x, y, ptr_x=None, ptr_y=None, k=1, cosine=False, num_workers=1):  # type: ignore[no-untyped-def]
        return plain.knn(x, y, ptr_x, ptr_y, k, cosine, workers)

    def near(x, y, ptr_x=None, ptr_y=None, r=1.0, most=32, num_workers=1, omit=False):  # type: ignore[no-untyped-def]
        pairs = plain.radius(x, y, ptr_x, ptr_y, r, most + omit, workers)
        return pairs[:, pairs[0] != pairs[1]] if omit else pairs

    def walks(rowptr, col, start, length, p, q):  # type: ignore[no-untyped-def]
        return plain.random_walk(rowptr, col, start, length, p, q)[0]

    instead = {"knn": found, "radius": near, "random_walk": walks, "fps": _picks(torch_cluster)}
    flags = [(torch_geometric.typing, each) for each in ("WITH_KNN", "WITH_RADIUS", "WITH_FPS")]
    with contextlib.ExitStack() as stack:
        for owner, flag in (*flags, (node2vec, "WITH_PYG_LIB")):
            stack.enter_context(mock.patch.object(owner, flag, True))
        for name, function in instead.items():
            stack.enter_context(mock.patch.object(torch.ops.pyg, name, function, create=True))
        yield


def _picks(torch_cluster: Any) -> Callable[..., Tensor]:
    def picks(src, ptr, ratio=0.5, random_start=True):  # type: ignore[no-untyped-def]
        return torch_cluster.fps(src, ptr=ptr, ratio=ratio, random_start=random_start)

    return picks


def _steps(*widths: int) -> gnn.MLP:
    return gnn.MLP(list(widths))


class DGCNN(nn.Module):
    """Wang et al., Dynamic graph CNN (arXiv 1801.07829), as PyG's example has it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = gnn.DynamicEdgeConv(_steps(6, 64, 64, 64), 20, "max")
        self.conv2 = gnn.DynamicEdgeConv(_steps(128, 128), 20, "max")
        self.lin = nn.Linear(192, 40)

    def forward(self, pos: Tensor, batch: Tensor) -> Tensor:
        """Classes of clouds."""
        first = self.conv1(pos, batch)
        return self.lin(gnn.global_max_pool(torch.cat([first, self.conv2(first, batch)], 1), batch))


class PointNets(nn.Module):
    """Qi et al., PointNet++ (arXiv 1706.02413), as PyG's example has it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = gnn.PointNetConv(_steps(3, 64, 64, 128), add_self_loops=False)
        self.conv2 = gnn.PointNetConv(_steps(131, 128, 128, 256), add_self_loops=False)
        self.lin = nn.Linear(256, 40)

    def forward(self, pos: Tensor, batch: Tensor) -> Tensor:
        """Classes of clouds."""
        x = None
        for conv, ratio, r in ((self.conv1, 0.5, 0.2), (self.conv2, 0.25, 0.4)):
            picked = gnn.fps(pos, batch, ratio)
            # The example keeps 64, torch_cluster others than ours.
            row, col = gnn.radius(pos, pos[picked], r, batch, batch[picked], max_num_neighbors=pos.size(0))
            x = conv((x, None if x is None else x[picked]), (pos, pos[picked]), torch.stack([col, row]))
            pos, batch = pos[picked], batch[picked]
        return self.lin(gnn.global_max_pool(x, batch))


class GravNets(nn.Module):
    """Qasim et al., GravNet (arXiv 1902.07987): hits of one event."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = gnn.GravNetConv(3, 64, 4, 22, k=16)
        self.conv2 = gnn.GravNetConv(64, 64, 4, 22, k=16)
        self.lin = nn.Linear(64, 40)

    def forward(self, pos: Tensor, batch: Tensor) -> Tensor:
        """Classes of events."""
        x = self.conv2(self.conv1(pos, batch).relu(), batch).relu()
        return self.lin(gnn.global_max_pool(x, batch))


class Molecules(nn.Module):
    """Molecules: Schuett et al., SchNet (arXiv 1706.08566), and Gasteiger et al., DimeNet++ (2011.14115)."""

    def __init__(self, make: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.model = make()
        self.lin = nn.Linear(1, 40)

    def forward(self, pos: Tensor, batch: Tensor) -> Tensor:
        """Energies, as classes."""
        atoms = torch.ones(pos.size(0), dtype=torch.int64)
        return self.lin(self.model(atoms, pos * 8, batch))


def _dimenet() -> nn.Module:
    """DimeNet++ of the size of its paper."""
    return gnn.DimeNetPlusPlus(
        hidden_channels=128, out_channels=1, num_blocks=4, int_emb_size=64, basis_emb_size=8,
        out_emb_channels=256, num_spherical=7, num_radial=6,
    )  # fmt: skip


def _of_clouds(model: Callable[[], nn.Module], clouds: int, size: int) -> Callable[[], float]:
    torch.manual_seed(0)
    pos, batch = torch.rand(clouds * size, 3), torch.arange(clouds).repeat_interleave(size)
    wanted, net = torch.randint(0, 40, (clouds,)), model()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)

    def step() -> float:
        torch.manual_seed(1)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(pos, batch), wanted)
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


def _of_walks(nodes: int, edges: int) -> Callable[[], float]:
    torch.manual_seed(0)
    edge_index = torch.randint(0, nodes, (2, edges))
    model = gnn.Node2Vec(edge_index, 128, walk_length=20, context_size=10, walks_per_node=10, sparse=True)
    optimizer = torch.optim.SparseAdam(list(model.parameters()), lr=0.01)

    def step() -> float:
        total = 0.0
        for positive, negative in _first(model.loader(batch_size=128, shuffle=True), 20):
            optimizer.zero_grad()
            loss = model.loss(positive, negative)
            loss.backward()
            optimizer.step()
            total += float(loss.detach())
        return total

    return step


def _first(batches: Any, count: int) -> Iterator[Any]:
    for batch, _ in zip(batches, range(count), strict=False):
        yield batch


MODELS: dict[str, Callable[[], Callable[[], float]]] = {
    "dgcnn": partial(_of_clouds, DGCNN, 32, 1024),
    "pointnet++": partial(_of_clouds, PointNets, 32, 1024),
    "gravnet": partial(_of_clouds, GravNets, 1, 2000),
    "schnet": partial(_of_clouds, partial(Molecules, gnn.SchNet), 100, 20),
    # PyG's needs torch-sparse.
    "dimenet++": partial(_of_clouds, partial(Molecules, _dimenet), 100, 20),
    "node2vec-cora": partial(_of_walks, 2_708, 10_556),
    "node2vec-arxiv": partial(_of_walks, 169_343, 2_315_598),
}


def epochs(options: Options) -> Iterator[Row]:
    """Steps of models that search or walk."""
    ways = {"torch_cluster": torch_clusters, "onehop": onehop.patch}
    for name in options.models:
        steps, losses = {}, {}
        for way, context in ways.items():
            with context():
                steps[way] = MODELS[name]()
                losses[way] = steps[way]()
        harness.must_agree(
            # Walks are drawn by other generators.
            0.0 if "node2vec" in name else abs(losses["onehop"] / losses["torch_cluster"] - 1),
            1e-3,
            f"the loss of {name}",
        )

        def turn(way: str, steps: dict[str, Any] = steps) -> float:
            with ways[way]():
                return steady(steps[way], TURN_S)()

        times = in_turns({way: partial(turn, way) for way in ways}, options.rounds)
        yield {"case": name, "losses": losses, **harness.compared(times, "torch_cluster")}


_TIMES = (
    "torch_cluster, ms | seconds/torch_cluster/median_s | ms; onehop, ms | seconds/onehop/median_s | ms; "
    "speed-up | speedup | gain speedup_quartiles"
)
SEARCH = Benchmark(
    "bench points search",
    searches,
    f"case; clouds | clouds | {{}}; points | points | {{}}; dims | dims | {{}}; "
               f"neighbours | neighbours | {{}}; {_TIMES}",
    {
        "cases": ("knn", "radius", "fps", "walks"),
        "largest": Option(1_000_000, "points of the largest cloud that is searched"),
    },
    rounds=5,
)  # fmt: skip
EPOCHS = Benchmark(
    "bench points epochs",
    epochs,
    f"case; {_TIMES}",
    {"models": tuple(MODELS)},
    rounds=5,
)

if __name__ == "__main__":
    run_part(__doc__, {"search": SEARCH, "epochs": EPOCHS})
