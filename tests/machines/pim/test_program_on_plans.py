"""The DPU program on the slices that the simulated machine cuts: core by core, added up as the host does."""

from pathlib import Path

import numpy as np
import pytest
import torch

from onehop import Graph
from onehop.machines.pim import Machine, PimPlan
from onehop.machines.pim.memory import cut_rule
from onehop.machines.pim.scheme import Cluster, layout
from tests.machines.pim.dpu_program import COMPILER, Build, Slice, run
from tests.machines.pim.graphs import HOSTILE
from tests.machines.pim.machines import small

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler (cc)")

MACHINE = Machine(small())
WIDTH = 6


def run_cluster(
    folder: Path, build: Build, plan: PimPlan, graph: Graph, cluster: Cluster, x: np.ndarray, out: np.ndarray
) -> None:
    """Runs every core of a cluster, and adds what it returns to ``out``."""
    shapes = MACHINE.shapes(graph)
    rule = cut_rule(plan, MACHINE.kernel(plan, "int32"), cluster.cores)
    parts, cuts = shapes.parts(plan.sp, plan.column_cut), shapes.cuts(plan.sp, plan.column_cut, rule)
    sources = shapes.columns(plan.sp, plan.column_cut, False)[0].numpy()
    first, last = parts.bounds[cluster.part], parts.bounds[cluster.part + 1]
    positions = parts.positions[cluster.part]
    row_of = np.repeat(np.arange(graph.num_dst), np.diff(positions))
    edge_begin, edge_end, row_begin = cuts.tasklets[cluster.part, :3]
    for core in range(cluster.cores):
        r0, r1 = cuts.core_rows[cluster.part, :, core]
        e0, e1 = edge_begin[core, 0], edge_end[core, -1]
        if r0 == r1 or first == last:
            continue
        work = Slice(
            int(r1 - r0),
            row_of[e0 - positions[0] : e1 - positions[0]] - r0,
            sources[e0:e1],
            x[first:last, cluster.begin : cluster.end],
        )
        begins = row_begin[core] - r0 if plan.format == "csr" else edge_begin[core] - e0
        ends = [*begins, r1 - r0 if plan.format == "csr" else e1 - e0]
        found, _ = run(build.compile(folder), build, work, [int(each) for each in ends])
        out[r0:r1, cluster.begin : cluster.end] += found


@pytest.mark.parametrize("name", ["hub", "empty rows", "fewer rows than cores"])
@pytest.mark.parametrize(
    ("form", "by_core", "by_thread", "variant"),
    [
        ("csr", "edge", "edge", "csr"),
        ("csr", "row", "row", "csr"),
        ("coo", "row", "row", "rows"),
        ("coo", "edge", "edge", "free"),
    ],
)
def test_program_and_simulator_agree(
    tmp_path_factory: pytest.TempPathFactory,
    name: str,
    form: str,
    by_core: str,
    by_thread: str,
    variant: str,
) -> None:
    graph = HOSTILE[name]
    plan = PimPlan(sp=2, ds=2, format=form, core_balance=by_core, thread_balance=by_thread, tasklets=11)
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(-9, 10, (graph.num_src, WIDTH), generator=generator, dtype=torch.int32)
    expected, _ = MACHINE.aggregate(graph, x, plan)
    out = np.zeros((graph.num_dst, WIDTH), dtype=np.int32)
    folder = tmp_path_factory.mktemp("program")
    for cluster in layout(MACHINE.config, plan, WIDTH).clusters:
        run_cluster(folder, Build(variant), plan, graph, cluster, x.numpy(), out)
    assert np.array_equal(out, expected.numpy())
