"""The host program on emulated cores: it compiles against the SDK's declarations, its sums are the twin's."""

import dataclasses
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from onehop import ConfigurationError
from onehop.machines.pim import Machine, PimPlan, load, upmem_v1a
from tests.machines.pim.dpu_program import C_TYPES, COMPILER, FLAGS, SOURCES, Build, Slice, numbers
from tests.machines.pim.graphs import HOSTILE
from tests.pairs import pairwise

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler (cc)")

SDK = Path(__file__).parent / "sdk"
CORES, RANKS, TASKLETS = 5, 2, 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("host")


def built(folder: Path, build: Build) -> Path:
    """The host program, for the types that the cores' program has."""
    path = folder / f"host-{build.feature}-{build.sums}"
    if not path.exists():
        types = [C_TYPES.get(str(dtype), f"{dtype}_t") for dtype in (build.feature, build.sum_dtype)]
        command = [
            *(str(COMPILER), *FLAGS, f"-I{SDK}", f"-I{SOURCES}"),
            *(f"-DNR_TASKLETS={build.tasklets}", f"-DFEATURE={types[0]}", f"-DSUM={types[1]}"),
            *(f"-DCORES={CORES}", f"-DRANKS={RANKS}", f'-DEMULATED_FOLDER="{folder}"'),
            *(str(SOURCES / name) for name in ("host.c", "host_measure.c")),
            *(str(SDK / "dpu.c"), "-o", str(path)),
        ]
        subprocess.run(command, check=True, capture_output=True, text=True)
    return path


def ran(host: Path, *words: str | Path | int) -> str:
    words = tuple(map(str, words))
    return subprocess.run([host, *words], check=True, capture_output=True, text=True, timeout=300).stdout


def problem(work: Slice, dtype: str) -> bytes:
    x = work.x.astype(dtype)
    sizes = [work.rows, len(x), x.shape[1], len(work.row), int(work.weight is None)]
    content = np.array(sizes, np.uint32).tobytes() + work.rowptr.astype(np.uint32).tobytes()
    content += work.source.astype(np.uint32).tobytes()
    return content + (b"" if work.weight is None else work.weight.astype(dtype).tobytes()) + x.tobytes()


def work_of(name: str, dtype: str, width: int, *, weighted: bool) -> Slice:
    graph, rng = HOSTILE[name], np.random.default_rng(1)
    row = np.repeat(np.arange(graph.num_dst), np.diff(graph.rowptr.numpy()))
    x = numbers(rng, dtype, graph.num_src, width)
    weight = numbers(rng, dtype, graph.num_edges) if weighted else None
    return Slice(graph.num_dst, row, graph.col.numpy(), x, weight)


@pytest.mark.parametrize("weighted", [True, False], ids=["weights", "unit weights"])
@pytest.mark.parametrize(("feature", "sums"), [("int32", ""), ("int8", "int32"), ("float32", "")])
@pairwise(name=HOSTILE)
def test_sums_are_those_of_the_twin(folder: Path, name: str, feature: str, sums: str, weighted: bool) -> None:
    build = Build(feature=feature, sums=sums, tasklets=TASKLETS)
    host, program = built(folder, build), build.compile(folder)
    work = work_of(name, feature, 5, weighted=weighted)
    (folder / "in").write_bytes(problem(work, feature))
    told = ran(host, "run", program, folder / "in", folder / "out")
    times = dict(line.split() for line in told.splitlines())
    phases = ("matrix", "send", "broadcast", "kernel", "retrieve", "merge")
    assert [name for name in times if name.endswith("_ns")] == [f"{phase}_ns" for phase in phases]
    assert (times["cores"], times["kernel_ns"]) == (str(CORES), "5000")
    found = np.frombuffer((folder / "out").read_bytes(), build.sum_dtype).reshape(work.rows, 5)
    work.check(found, steps=400)


@pytest.mark.parametrize("grid", [(1, 1), (1, 2), (2, 1), (2, 2), (4, 1), (1, 4)], ids=str)
@pytest.mark.parametrize(("name", "weighted"), [("hub", False), ("empty rows", True)])
def test_parts_have_the_sums_and_the_bytes_of_the_simulator(
    folder: Path, name: str, weighted: bool, grid: tuple[int, int]
) -> None:
    build = Build(tasklets=TASKLETS)
    work, graph = work_of(name, "int32", 5, weighted=weighted), HOSTILE[name]
    weight = None if work.weight is None else torch.from_numpy(work.weight)
    plan = PimPlan(sp=grid[0], ds=grid[1], tasklets=TASKLETS)
    machine = Machine(upmem_v1a().with_(cores=CORES, ranks=RANKS))
    if weight is not None and graph.perm is not None:
        weight = torch.empty_like(weight).index_put_((graph.perm.long(),), weight)
    sums, report = machine.aggregate(graph, torch.from_numpy(work.x), plan, weight=weight)
    (folder / "in").write_bytes(problem(work, "int32"))
    words = ("run", build.compile(folder), folder / "in", folder / "out", *grid)
    told = dict(line.split() for line in ran(built(folder, build), *words).splitlines())
    found = np.frombuffer((folder / "out").read_bytes(), np.int32).reshape(work.rows, 5)
    assert np.array_equal(found, sums.numpy())
    moved = {name.removesuffix("_bytes"): int(size) for name, size in told.items() if "_bytes" in name}
    # The arguments differ: ten words and the parts, here; PyGim's eight and two a tasklet, there.
    assert moved["send"] == CORES * 4 * (10 + (TASKLETS + 2) // 2 * 2)
    pushed = report.bytes["send"] - CORES * 4 * (8 + 2 * TASKLETS)
    features = {"push": pushed} if pushed else {"broadcast": report.bytes["broadcast"]}
    assert moved == {
        "matrix": report.bytes["matrix"],
        "send": moved["send"],
        **features,
        "retrieve": report.bytes["retrieve"],
    }


@pytest.mark.parametrize(
    "grid", [("0", "1"), ("3", "1"), ("2", "3"), ("8", "1"), ("1x", "2"), ("65536", "65536")]
)
def test_wrong_grids_are_refused(folder: Path, grid: tuple[str, str]) -> None:
    build = Build(tasklets=TASKLETS)
    (folder / "in").write_bytes(problem(work_of("hub", "int32", 4, weighted=False), "int32"))
    command = [built(folder, build), "run", build.compile(folder), folder / "in", folder / "out", *grid]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert re.search(
        "SP, DS: expected a product that is a divisor of the 2 ranks, or a multiple of at", done.stderr
    )


def test_a_measured_machine_runs_the_simulator(folder: Path) -> None:
    build = Build(tasklets=TASKLETS)
    program = build.compile(folder, SOURCES / "measure.c")
    ran(built(folder, build), "measure", program, folder / "machine.toml")
    config = load(folder / "machine.toml")
    assert (config.name, config.cores, config.ranks) == ("measured", CORES, RANKS)
    assert set(config.arithmetic) == {"int32"}
    # What the emulated clock says, each in its place.
    links, mebi = config.links, 1 << 20

    def rate(cores: int, size: int, factor: int) -> float:
        return cores * size / ((1000 + size * (1 + cores / 4)) * factor)

    ranks_first = -(-CORES // RANKS)
    assert links.push_gbps == pytest.approx(rate(CORES, mebi, 1), abs=1e-4)
    assert links.rank_push_gbps == pytest.approx(rate(ranks_first, mebi, 1), abs=1e-4)
    assert links.rank_pull_gbps == pytest.approx(rate(ranks_first, mebi, 2), abs=1e-4)
    assert links.core_push_gbps == pytest.approx(rate(1, mebi, 1), abs=1e-4)
    assert links.core_pull_gbps == pytest.approx(rate(1, mebi, 2), abs=1e-4)
    assert links.pull_gbps[0][1] == pytest.approx(rate(CORES, 64 << 10, 2), abs=1e-4)
    assert links.broadcast_gbps[0] == (1, pytest.approx(ranks_first * mebi / (1000 + mebi), abs=1e-4))
    assert links.broadcast_gbps[1] == (RANKS, pytest.approx(CORES * mebi / (1000 + mebi), abs=1e-4))
    assert links.call_us == pytest.approx(1.012, abs=0.01)
    costs = config.arithmetic["int32"]
    assert costs.accumulate > 0
    assert costs.significant_bits == 32
    assert [size for size, _ in config.core.dma_read_cycles] == [8 << i for i in range(9)]
    assert [size for size, _ in config.links.pull_gbps] == list(range(64, 481, 32))
    assert config.core.element_instructions == 0
    assert config.core.edge_instructions == 35.2
    assert config.links.full_rank_cores == ranks_first
    report = Machine(config).simulate(HOSTILE["hub"], 8, PimPlan(sp=1, ds=1), "int32")
    assert report.total_ns > 0


@dataclasses.dataclass
class Wrong:
    """A file that the host program must refuse."""

    position: int
    number: int
    message: str


@pytest.mark.parametrize(
    "wrong",
    [
        Wrong(1, 2, "has source"),
        Wrong(3, 99, "it ends early"),
        Wrong(5, 3, "row bounds must ascend from 0"),
        Wrong(6, 77, "row bounds must ascend"),
    ],
    ids=lambda wrong: wrong.message,
)
def test_wrong_files_are_refused(folder: Path, wrong: Wrong) -> None:
    build = Build(tasklets=TASKLETS)
    words = np.frombuffer(problem(work_of("hub", "int32", 4, weighted=False), "int32"), np.uint32).copy()
    if wrong.message == "it ends early":
        words = words[:-40]
    else:
        words[wrong.position] = wrong.number
        if wrong.position == 1:
            words = np.concatenate([words, np.zeros(1000, np.uint32)])
    (folder / "bad").write_bytes(words.tobytes())
    done = subprocess.run(
        [built(folder, build), "run", build.compile(folder), folder / "bad", folder / "out"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert re.search(wrong.message, done.stderr)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("base = 'upmem_v9'", "base: expected one of"),
        ("base = 3", "base: expected one of"),
        ("base = 'upmem_v1a'\n[core]\nclok = 3", "unknown key clok"),
        ("base = 'upmem_v1a'\ncores = 1", "ranks: expected 1 to 1"),
        ("name = 'x'", "no cores, ranks; expected name, cores, ranks"),
    ],
)
def test_wrong_bases_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "machine.toml").write_text(text)
    with pytest.raises(ConfigurationError, match=message):
        load(tmp_path / "machine.toml")


def test_a_base_gives_what_a_file_leaves_out(tmp_path: Path) -> None:
    (tmp_path / "machine.toml").write_text("base = 'upmem_v1b'\nname = 'mine'\n[links]\npush_gbps = 3.0\n")
    config = load(tmp_path / "machine.toml")
    assert (config.name, config.core.clock_mhz, config.links.push_gbps) == ("mine", 400.0, 3.0)
    assert "float32" in config.functions
