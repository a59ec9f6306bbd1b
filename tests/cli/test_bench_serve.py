"""``onehop bench serve`` at its smallest: what it prints and writes; nothing here is about speed."""

import multiprocessing

import pytest

import onehop as library
from onehop.bench import plain_models, plots, report, serving
from onehop.bench.recipes import SERVED
from onehop.bench.servers import Case, Servers, _Server
from onehop.bench.serving import ServingResult
from onehop.bench.timing import Times
from onehop.errors import OnehopError
from tests.cli.running import onehop, written
from tests.pictures import drawn, faults

pytest.importorskip("torch_geometric")

SMALLEST = "bench serve --sizes 20:60 --rounds 1 --seconds 0.01"


@pytest.fixture(autouse=True)
def unpatched():
    yield
    library.unpatch()


class Here(Servers):
    """A single worker, which is no process of its own."""

    def __init__(self, processes, threads):
        self._next = multiprocessing.Value("q", 0)
        self._workers = []
        self._server = _Server(self._next)

    def _ask(self, name, *arguments):
        return [getattr(self._server, name)(*arguments)]


@pytest.fixture
def here(monkeypatch):
    """Spares the command the start of processes."""
    monkeypatch.setattr("onehop.cli.bench.Servers", Here)


def test_worker_processes_answer_with_every_model(tmp_path):
    plot = tmp_path / "serve.png"
    document, output = written(tmp_path / "serve.json", SMALLEST, "--processes 2 --plot", plot)
    assert "Requests to 2 workers of 1 thread" in output
    assert (document["command"], document["processes"], document["threads_a_process"]) == (
        "bench serve",
        2,
        1,
    )
    assert [(r["model"], r["nodes"], r["edges"]) for r in document["results"]] == [
        (model, 20, 60) for model in SERVED
    ]
    for result in document["results"]:
        assert not result["wrong"]
        assert result["difference"] <= serving.TOLERANCE
        assert result["rate"] == pytest.approx(0.5 * result["requests_per_second"]["pyg"])
        assert result["requests"] >= 30
        for name in ("busy", "p50", "p99"):
            assert set(result[name]) == {"pyg", "onehop"}
            assert result["ratio"][name]["median"] > 0
        for way, times in result["p50"].items():
            assert 0 < times["median_s"] <= result["p99"][way]["median_s"]
    assert plot.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_a_rate_that_cannot_be_answered_is_named(tmp_path, here, monkeypatch):
    monkeypatch.setattr("onehop.bench.arrivals._LONGEST_S", 0.2)
    document, output = written(tmp_path / "serve.json", SMALLEST, "--models sage --rate 1e7")
    (result,) = document["results"]
    assert result["rate"] == 1e7
    told = " ".join(output.split())
    for name in ("PyG", "onehop"):
        assert f"sage, 20 nodes, 60 edges: the rate is more than {name} can answer" in told
    # They arrive at once, so that each waits for all before it.
    busy = result["busy"]["pyg"]["median_s"]
    assert result["p99"]["pyg"]["median_s"] > 5 * busy


def test_wrong_answers_end_with_code_1_and_are_not_timed(tmp_path, here, monkeypatch):
    monkeypatch.setattr("onehop.bench.servers._difference", lambda found, expected: float("nan"))
    path = tmp_path / "serve.json"
    result = onehop(SMALLEST, "--models gcn --json", path)
    assert result.exit_code == 1
    assert "onehop is WRONG on gcn, 20 nodes, 60 edges, and not timed" in " ".join(result.stdout.split())


def test_requests_are_the_same_in_every_process_and_differ_from_each_other():
    case = Case("gcn", nodes=20, edges=60, width=8, seed=5)
    one, other = (_prepared(case) for _ in range(2))
    assert len(one._requests) == 1000
    for (x, edge_index), (same_x, same_edges) in zip(one._requests[:3], other._requests[:3], strict=True):
        assert x.equal(same_x)
        assert edge_index.equal(same_edges)
    assert len({tuple(edge_index.flatten().tolist()) for _, edge_index in one._requests}) == 1000
    assert one._answer(0).equal(other._answer(0))
    assert not one._answer(0).equal(one._answer(1))
    assert one._answer(0).is_inference()


def _prepared(case):
    server = _Server(multiprocessing.Value("q", 0))
    assert server.prepare(case) <= serving.TOLERANCE
    return server


def test_a_worker_that_ends_is_reported():
    with Servers(1, 1) as servers:
        worker, _ = servers._workers[0]
        worker.terminate()
        worker.join()
        with pytest.raises(OnehopError, match="A worker process ended"):
            servers.prepare(Case("gcn", 20, 60, 8, 0))


def test_models_are_pygs_own_of_three_layers():
    assert set(SERVED) == set(plain_models.SERVED)
    for make in plain_models.SERVED.values():
        assert make(8).num_layers == 3


def result_of(model, nodes, pyg, ours):
    times = {"pyg": Times((pyg, 2 * pyg)), "onehop": Times((ours, 2 * ours))}
    case = Case(model, nodes, 4 * nodes, 64, 0)
    return ServingResult(case, 0.0, 10.0, 30, times, times, times)


def test_the_table_and_the_picture_have_every_result(tmp_path):
    results = [result_of("gcn", 40, 0.002, 0.001), result_of("sage", 4000, 0.02, 0.01)]
    wrong = ServingResult(Case("gatv2", 4000, 16_000, 64, 0), 0.5)
    rows = report.serving_table([*results, wrong], "1 worker of 1 thread").cells()
    assert rows[0] == [
        *("40", "160", "gcn", "333", "667", "2.00x", "10"),
        *("3.00", "1.50", "2.00x", "3.00", "1.50", "2.00x"),
    ]
    assert rows[2] == ["4,000", "16,000", "gatv2", *["-"] * 10]
    with drawn() as figures:
        plots.plot_serving([*results, wrong], "a machine", tmp_path / "serve.png")
        plots.plot_serving([wrong], "a machine", tmp_path / "nothing.png")
    assert [faults(figure) for figure in figures] == [[]] * 2
    assert len(figures[0].axes) == 2
