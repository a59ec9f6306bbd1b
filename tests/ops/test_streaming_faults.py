"""Streamed aggregation under faults: killed, stopped, run twice, its files changed meanwhile, no room."""

import errno
import json
import os
import resource
import signal
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import onehop
from onehop import ArgumentError, FileFormatError, Graph
from onehop.errors import StorageError
from onehop.graph.stored import StoredGraph
from onehop.ops.streaming.lock import alone
from onehop.ops.streaming.matrix_file import MatrixFile
from tests.processes import Stop, ended, forked

NODES, EDGES, WIDTH = 300, 4000, 24
# Panels of a few columns, tiles of some hundred edges: bytes.
SMALL = 40_000

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


@pytest.fixture(autouse=True)
def _noted_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every tile is noted before the next one; no test pulls a plug, so the system's memory is the disk."""
    monkeypatch.setattr("onehop.ops.streaming.waiting.SYNC_BYTES", 1)
    monkeypatch.setattr(os, "fdatasync", lambda file: None)


@pytest.fixture
def graph(generator: torch.Generator) -> Graph:
    edge_index = torch.randint(0, NODES, (2, EDGES), generator=generator)
    edge_index[1, :900] = 5
    return Graph.from_edge_index(edge_index, NODES)


def features(path: Path, seed: int = 1) -> torch.Tensor:
    x = np.random.default_rng(seed).standard_normal((NODES, WIDTH)).astype(np.float32)
    np.save(path, np.asfortranarray(x))
    return torch.from_numpy(x)


def nth_call(monkeypatch: pytest.MonkeyPatch, where: Any, name: str, number: int, then: Any) -> None:
    """Has ``then`` happen right after the call of that number, from 1 on."""
    original, calls = getattr(where, name), [0]

    def counted(*given: Any, **named: Any) -> Any:
        found = original(*given, **named)
        calls[0] += 1
        if calls[0] == number:
            then()
        return found

    monkeypatch.setattr(where, name, counted)


def kill_myself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_run_killed_at_any_point_leaves_what_the_next_one_goes_on_from(
    graph: Graph, stored: StoredGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, out = features(tmp_path / "x.npy"), tmp_path / "out.npy"
    exact = onehop.aggregate(graph, x).numpy()
    # In this order: right after the space is taken, a part is written, it is on the disk, a note is written
    # and takes its place, and before the result takes its place.
    points = [
        (os, "posix_fallocate", 1),
        (os, "pwritev", 1),
        (os, "fdatasync", 1),
        (Path, "write_text", 1),
        (Path, "replace", 1),
        (os, "pwritev", 40),
        (Path, "write_text", 9),
        (Path, "replace", 9),
        (os, "fsync", 1),
    ]
    done_before = 0
    for place, name, number in points:

        def run(place: Any = place, name: str = name, number: int = number) -> None:
            nth_call(monkeypatch, place, name, number, kill_myself)
            onehop.aggregate(stored, tmp_path / "x.npy", out=out, memory=SMALL)

        assert ended(forked(run)) == -signal.SIGKILL, (name, number)
        assert not out.exists()
        note = tmp_path / "out.npy.progress.json"
        done = json.loads(note.read_text())["done"] if note.exists() else 0
        assert done >= done_before  # what was noted is not done again
        done_before = done
    assert done_before > 9
    onehop.aggregate(stored, tmp_path / "x.npy", out=out, memory=SMALL)
    np.testing.assert_array_equal(np.load(out), exact)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["graph", "out.npy", "x.npy"]


def test_a_run_killed_once_its_result_is_in_place_harms_no_later_one(
    graph: Graph, stored: StoredGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, out = features(tmp_path / "x.npy"), tmp_path / "out.npy"

    def run() -> None:
        nth_call(monkeypatch, os, "fsync", 1, lambda: nth_call(monkeypatch, Path, "replace", 1, kill_myself))
        onehop.aggregate(stored, tmp_path / "x.npy", out=out, memory=SMALL)

    assert ended(forked(run)) == -signal.SIGKILL
    exact = onehop.aggregate(graph, x).numpy()
    np.testing.assert_array_equal(np.load(out), exact)
    out.unlink()
    onehop.aggregate(stored, tmp_path / "x.npy", out=out, memory=SMALL)
    np.testing.assert_array_equal(np.load(out), exact)


def test_while_a_run_is_stopped_another_is_refused_and_told_whose_it_is(
    graph: Graph, stored: StoredGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, out = features(tmp_path / "x.npy"), tmp_path / "out.npy"
    features(tmp_path / "other.npy", seed=2)

    def run() -> None:
        nth_call(monkeypatch, os, "pwritev", 40, lambda: os.kill(os.getpid(), signal.SIGSTOP))
        onehop.aggregate(stored, tmp_path / "x.npy", out=out, memory=SMALL)

    child = forked(run)
    assert os.WIFSTOPPED(os.waitpid(child, os.WUNTRACED)[1])
    for _ in range(2):
        with pytest.raises(StorageError, match=rf"process {child} on .*, since \d{{4}}-.*give another out"):
            onehop.aggregate(stored, tmp_path / "other.npy", out=out, memory=SMALL)
    os.kill(child, signal.SIGCONT)
    assert ended(child) == 0
    np.testing.assert_array_equal(np.load(out), onehop.aggregate(graph, x).numpy())
    assert sorted(each.name for each in tmp_path.iterdir()) == ["graph", "other.npy", "out.npy", "x.npy"]


def test_two_threads_of_one_process_do_not_mix_their_results(
    graph: Graph, stored: StoredGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, out = features(tmp_path / "x.npy"), tmp_path / "out.npy"
    features(tmp_path / "other.npy", seed=2)
    begun, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        go_on.wait()

    nth_call(monkeypatch, os, "pwritev", 3, wait)
    first = threading.Thread(
        target=onehop.aggregate, args=(stored, tmp_path / "x.npy"), kwargs={"out": out, "memory": SMALL}
    )
    first.start()
    begun.wait()
    try:
        # By another name of the same folder.
        same = tmp_path / "graph" / ".." / "out.npy"
        with pytest.raises(StorageError, match=f"process {os.getpid()} on "):
            onehop.aggregate(stored, tmp_path / "other.npy", out=same, memory=SMALL)
    finally:
        go_on.set()
        first.join()
    np.testing.assert_array_equal(np.load(out), onehop.aggregate(graph, x).numpy())


def test_of_many_runs_at_once_results_are_those_of_one(
    graph: Graph, stored: StoredGraph, tmp_path: Path
) -> None:
    exact = [onehop.aggregate(graph, features(tmp_path / f"{k}.npy", k)).numpy() for k in range(4)]
    out = tmp_path / "out.npy"

    def run(number: int) -> None:
        try:
            onehop.aggregate(stored, tmp_path / f"{number}.npy", out=out, memory=SMALL)
        except StorageError:
            os._exit(3)

    children = [forked(lambda number=number: run(number)) for number in range(4)]
    codes = [ended(child) for child in children]
    assert 0 in codes
    assert set(codes) <= {0, 3}
    found = np.load(out)
    assert any(np.array_equal(found, exact[k]) for k, code in enumerate(codes) if code == 0)
    assert not (tmp_path / "out.npy.lock").exists()


def test_a_lock_that_somebody_removes_is_missed(
    stored: StoredGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    features(tmp_path / "x.npy")
    nth_call(monkeypatch, os, "pwritev", 3, (tmp_path / "out.npy.lock").unlink)
    with pytest.raises(StorageError, match=r"out\.npy\.lock was removed while"):
        onehop.aggregate(stored, tmp_path / "x.npy", out=tmp_path / "out.npy", memory=SMALL)
    assert not (tmp_path / "out.npy").exists()


def test_a_file_system_without_locks_is_refused(
    stored: StoredGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    features(tmp_path / "x.npy")

    def none(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("onehop.ops.streaming.lock.fcntl.flock", none)
    with pytest.raises(StorageError, match=r"cannot lock files .*Give out on another disk"):
        onehop.aggregate(stored, tmp_path / "x.npy", out=tmp_path / "out.npy", memory=SMALL)


def stop() -> None:
    raise Stop


def change(path: Path) -> None:
    """Other contents, of the same size and time of change."""
    told = path.stat()
    values = np.load(path)
    values.flat[0] = values.flat[1]
    np.save(path, values)
    os.utime(path, ns=(told.st_atime_ns, told.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (told.st_size, told.st_mtime_ns)


@pytest.mark.parametrize("writes", [2, 40], ids=["first-panel", "later-panel"])
@pytest.mark.parametrize("what", ["x.npy", "w.npy", "graph/col.npy", None])
def test_a_resumed_run_goes_by_contents(
    graph: Graph,
    stored: StoredGraph,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    what: str | None,
    writes: int,
) -> None:
    features(tmp_path / "x.npy")
    weight = np.random.default_rng(3).standard_normal(EDGES).astype(np.float32)
    np.save(tmp_path / "w.npy", weight)
    arguments = (stored, tmp_path / "x.npy", tmp_path / "w.npy")
    options: dict[str, Any] = {"out": tmp_path / "out.npy", "memory": SMALL}
    with monkeypatch.context() as patch:
        nth_call(patch, MatrixFile, "put", writes, stop)
        with pytest.raises(Stop):
            onehop.aggregate(*arguments, **options)
    noted = json.loads((tmp_path / "out.npy.progress.json").read_text())["done"]
    assert noted == writes - 1
    if what is not None:
        change(tmp_path / what)
    written: list[int] = []
    with monkeypatch.context() as patch:
        put = MatrixFile.put
        patch.setattr(MatrixFile, "put", lambda self, *rest: (written.append(1), put(self, *rest)))
        onehop.aggregate(*arguments, **options)
    told = "begun anew: the contents of " + ("x " if what == "x.npy" else "graph or weight ")
    assert (told in caplog.text) == (what is not None)
    found = np.load(tmp_path / "out.npy")
    count = len(written)
    onehop.aggregate(*arguments, out=tmp_path / "fresh.npy", memory=SMALL)
    np.testing.assert_array_equal(found, np.load(tmp_path / "fresh.npy"))
    with monkeypatch.context() as patch:
        written.clear()
        patch.setattr(MatrixFile, "put", lambda self, *rest: (written.append(1), put(self, *rest)))
        onehop.aggregate(*arguments, out=tmp_path / "all.npy", memory=SMALL)
    assert count == len(written) - (noted if what is None else 0)


@pytest.mark.parametrize("what", ["x.npy", "graph/col.npy"])
def test_files_written_to_during_a_run_are_told(
    stored: StoredGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    features(tmp_path / "x.npy")
    nth_call(monkeypatch, os, "pwritev", 3, lambda: os.utime(tmp_path / what, ns=(1, 1)))
    with pytest.raises(FileFormatError, match="was written to while it was aggregated"):
        onehop.aggregate(stored, tmp_path / "x.npy", out=tmp_path / "out.npy", memory=SMALL)
    assert not (tmp_path / "out.npy").exists()


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text.replace('"done": 20', '"done": 26'),
        lambda text: text[:-7],
        lambda text: "[" * 100_000,
        lambda text: "[]",
        lambda text: text.replace('"panels": [', '"panels": ["a", '),
    ],
    ids=["more-done", "truncated", "deep", "list", "type"],
)
def test_a_damaged_note_is_not_gone_on_from(
    graph: Graph, stored: StoredGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Any
) -> None:
    x = features(tmp_path / "x.npy")
    with monkeypatch.context() as patch:
        nth_call(patch, MatrixFile, "put", 21, stop)
        with pytest.raises(Stop):
            onehop.aggregate(stored, tmp_path / "x.npy", out=tmp_path / "out.npy", memory=SMALL)
    note = tmp_path / "out.npy.progress.json"
    assert damage(note.read_text()) != note.read_text()
    note.write_text(damage(note.read_text()))
    onehop.aggregate(stored, tmp_path / "x.npy", out=tmp_path / "out.npy", memory=SMALL)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), onehop.aggregate(graph, x).numpy())


def test_places_that_cannot_be_written_are_sentences(stored: StoredGraph, tmp_path: Path) -> None:
    features(tmp_path / "x.npy")
    (tmp_path / "file").write_text("in the way")
    for out, kind, message in (
        (tmp_path / "nowhere" / "out.npy", StorageError, "No such file or directory.*Make its folder first"),
        (tmp_path / "file" / "out.npy", StorageError, "Not a directory.*A part of the path is not a folder"),
        (tmp_path / ("n" * 300), StorageError, "name too long.*Give a shorter name"),
        (tmp_path, ArgumentError, "is a folder; give the name of a file"),
        (Path("/proc/out.npy"), StorageError, r"out: cannot write /proc/out\.npy\.lock"),
    ):
        with pytest.raises(kind, match=message):
            onehop.aggregate(stored, tmp_path / "x.npy", out=out, memory=SMALL)


@pytest.fixture
def read_only() -> Iterator[Path]:
    """A folder that this user may not write to; root becomes another user for that."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(stat.S_IRUSR | stat.S_IXUSR | stat.S_IROTH | stat.S_IXOTH)
        yield folder


def without_rights(run: Callable[[], object]) -> int:
    def demoted() -> None:
        if os.geteuid() == 0:
            os.seteuid(65534)
        run()

    return ended(forked(demoted))


def test_a_read_only_folder_is_a_sentence(read_only: Path) -> None:
    def run() -> None:
        told = r"Permission denied.*Give a place that this user may write to"
        with pytest.raises(StorageError, match=told), alone(read_only / "out.npy"):
            pass

    assert without_rights(run) == 0


def test_a_disk_that_is_full_leaves_the_earlier_result(stored: StoredGraph, tmp_path: Path) -> None:
    features(tmp_path / "x.npy")
    (tmp_path / "out.npy").write_text("earlier")

    def run() -> None:
        advice = "File too large.*Make room or give another place, and call again"
        result = r"out: cannot write 28800 bytes to .*out\.npy\.partial \("
        # Bytes of a file: not even the lock's, not the result's.
        for most, told in ((10, advice), (10_000, result + advice)):
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
            with pytest.raises(StorageError, match=told):
                onehop.aggregate(stored, tmp_path / "x.npy", out=tmp_path / "out.npy", memory=SMALL)

    assert ended(forked(run)) == 0
    assert (tmp_path / "out.npy").read_text() == "earlier"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["graph", "out.npy", "x.npy"]


def test_a_lock_that_is_taken_over_says_whose_it_is_now(tmp_path: Path) -> None:
    left = tmp_path / "out.npy.lock"
    left.write_text(json.dumps({"pid": 1, "host": "a host with a long name" * 20, "since": "yesterday"}))
    with alone(tmp_path / "out.npy"):
        assert json.loads(left.read_text())["pid"] == os.getpid()
        with pytest.raises(StorageError, match=f"process {os.getpid()} on "), alone(tmp_path / "out.npy"):
            pass
    assert not left.exists()
