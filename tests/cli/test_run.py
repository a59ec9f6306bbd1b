"""``onehop run`` and ``onehop explain``: other people's scripts, as they stand."""

import json
import sys
import threading
import time
from functools import partial

import pytest
import torch
from torch_geometric.nn import GATConv, GCNConv, SAGEConv

import onehop
from onehop.cli.script import Script
from onehop.cli.watching import Sampler, Tally, _forward_codes, _part_of, watched
from onehop.integrations import reports
from tests.processes import run_python

SCRIPT = '''
"""A script of somebody's own."""
import sys

import torch
from torch_geometric.nn import GCNConv, MessagePassing, SAGEConv

from beside import EDGES


class Own(MessagePassing):
    def forward(self, x, edge_index):
        return x


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.odd, self.own = GCNConv(8, 8), SAGEConv(8, 2, aggr="lstm"), Own()

    def forward(self, x, edge_index):
        return self.own(self.odd(self.first(x, edge_index), edge_index), edge_index)


if __name__ == "__main__":
    net = Net()
    edges = torch.stack([torch.arange(EDGES) % 7, (torch.arange(EDGES) // 3).clamp(max=49)])
    for _ in range(int(sys.argv[1])):
        net(torch.ones(50, 8), edges).sum().backward()
    print("argv", sys.argv[1:], __file__.rpartition("/")[2])
    if "fail" in sys.argv:
        raise ValueError("its own error")
    if "exit" in sys.argv:
        sys.exit(7)
    if "sentence" in sys.argv:
        sys.exit("a last word")
'''


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "theirs.py").write_text(SCRIPT)
    (tmp_path / "beside.py").write_text("EDGES = 90\n")
    return tmp_path


def command(folder, *arguments, env=None):
    return run_python(["-m", "onehop", *arguments], cwd=folder, env=env)


def test_a_script_runs_as_it_does_alone_and_its_layers_are_listed(folder):
    done = command(folder, "run", "--report", "out/report.json", "theirs.py", "3", "--report", "mine")
    assert done.returncode == 0, done.stderr
    assert "argv ['3', '--report', 'mine'] theirs.py" in done.stdout
    report = json.loads((folder / "out" / "report.json").read_text())
    rows = {row["class"]: row for row in report["layers"]}
    assert rows.keys() == {"GCNConv", "SAGEConv", "Own"}
    assert (rows["GCNConv"]["path"], rows["GCNConv"]["calls"], rows["GCNConv"]["reason"]) == ("fast", 3, None)
    assert (rows["SAGEConv"]["path"], rows["SAGEConv"]["calls"]) == ("PyG's", 3)
    assert "LSTMAggregation" in rows["SAGEConv"]["reason"]
    assert (rows["Own"]["calls"], rows["Own"]["reason"]) == (0, "it propagated nothing")
    assert report["seconds"] > 0
    assert report["peak_bytes"] > 1 << 20
    assert "LSTMAggregation" in done.stderr
    assert "Each reason, and what can be done: docs/reference/reasons.md" in done.stderr


LINKS = """
import time
import torch
from torch_geometric.utils import scatter


def waits():
    time.sleep(0.5)


x, index = torch.randn(1000, 100), torch.arange(50_000) % 1000
for _ in range(3):
    scatter(x.index_select(0, index), index)
x[:10]
waits()
"""


def test_functions_and_the_largest_other_parts_are_listed(folder):
    (folder / "links.py").write_text(LINKS)
    done = command(folder, "run", "--report", "report.json", "links.py")
    assert done.returncode == 0, done.stderr
    report = json.loads((folder / "report.json").read_text())
    counts = {each["name"]: (each["served"], each["left"]) for each in report["functions"]}
    assert counts["index_select"] == counts["scatter"] == (3, 0)
    assert all(0 <= each["share"] <= 1 for each in report["functions"])
    shares = {each["name"]: each["share"] for each in report["others"]}
    assert 0 < shares["waits, line 8 of links.py"] < 1
    assert len(shares) <= 3
    assert "3 of 3 calls fast" in done.stderr
    assert "waits, line 8 of links.py" in " ".join(done.stderr.split())


def test_a_part_is_what_the_script_called():
    def frames(file: str, name: str):
        names: dict = {"__name__": "torch_geometric.utils.sampling"}
        exec(compile(f"import sys\ndef {name}(then): return then()", file, "exec"), names)
        return names[name]

    own, library = (
        frames("/home/me/train.py", "train"),
        frames("/x/site-packages/torch_geometric/s.py", "draw"),
    )
    inner = frames("/x/site-packages/torch/random.py", "random")
    now = sys._getframe
    assert _part_of(own(partial(library, partial(inner, now)))) == "torch_geometric: draw"
    assert _part_of(own(now)) == "train, line 2 of train.py"
    decorator: dict = {"__name__": "torch.optim.optimizer"}
    text = "def profiled():\n    def wrapper(then): return then()\n    return wrapper"
    exec(compile(text, "/x/site-packages/torch/optim/optimizer.py", "exec"), decorator)
    assert _part_of(own(partial(decorator["profiled"](), partial(library, now)))) == "torch_geometric: draw"
    namespace = {"forward": staticmethod(inner), "__module__": "torch_geometric.nn.drawing"}
    drawing = type("Drawing", (torch.nn.Module,), namespace)()
    assert _part_of(own(partial(drawing, now))) == "torch_geometric: Drawing"


@pytest.mark.parametrize(
    ("ending", "code", "told"),
    [("fail", 1, "ValueError: its own error"), ("exit", 7, ""), ("sentence", 1, "a last word")],
)
def test_the_exit_code_and_the_traceback_are_the_scripts_own(folder, ending, code, told):
    done = command(folder, "run", "theirs.py", "1", ending)
    assert done.returncode == code
    errors, _, table = done.stderr.partition("layers")
    assert told in errors
    assert "onehop" not in errors
    assert "GCNConv" in table


def test_a_class_that_the_patch_does_not_know_is_named(folder):
    done = command(folder, "run", "--only", "Nonsense", "theirs.py", "1")
    assert done.returncode == 2
    assert "Nonsense" in done.stderr
    assert "Traceback" not in done.stderr


def test_settings_reach_the_patch(folder):
    (folder / "asks.py").write_text(
        "from onehop.integrations.session import now\nprint(now.settings.dropout, now.settings.reuse)\n"
    )
    assert "False True" in command(folder, "run", "--no-dropout", "asks.py").stdout
    assert "True False" in command(folder, "run", "--no-reuse", "asks.py").stdout


def test_a_forbidden_patch_is_said(folder, monkeypatch):
    monkeypatch.setenv("ONEHOP_DISABLE", "1")
    done = command(folder, "run", "theirs.py", "1")
    assert done.returncode == 0
    assert "without the patch, which ONEHOP_DISABLE=1 forbids" in " ".join(done.stderr.split())


def test_the_report_is_written_where_it_was_to_be_before_the_script_moved(folder):
    (folder / "moves.py").write_text("import os\nos.mkdir('away')\nos.chdir('away')\n")
    assert command(folder, "run", "--report", "report.json", "moves.py").returncode == 0
    assert json.loads((folder / "report.json").read_text())["layers"] == []


def test_a_report_that_cannot_be_written_is_said_and_leaves_the_exit_code(folder):
    (folder / "takes.py").write_text("open('out', 'w').close()\nraise SystemExit(7)\n")
    done = command(folder, "run", "--report", "out/report.json", "takes.py")
    assert done.returncode == 7
    assert "The script ran no layers" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("onehop: --json: cannot write")


@pytest.mark.parametrize("place", ["theirs.py", "-m theirs", "-m pkg", "-m pkg.mod", "pkg", "-m other", "-"])
def test_imports_of_dgl_are_found_without_importing_anything(folder, place, monkeypatch):
    (folder / "pkg").mkdir()
    for name in ("theirs.py", "pkg/__main__.py", "pkg/mod.py"):
        (folder / name).write_text("if True:\n    from dgl.nn import GraphConv\n")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.chdir(folder)
    name, is_module = place.removeprefix("-m "), place.startswith("-m ")
    source = (folder / name).read_bytes() if name.endswith(".py") else b"" if name == "-" else None
    assert ("dgl" in Script(name, is_module, (), source).packages()) == (place not in ("-m other", "-"))
    assert "pkg" not in sys.modules


def test_explain_tells_plans_and_reasons(folder):
    done = command(folder, "explain", "--json", "found.json", "theirs.py", "2")
    assert done.returncode == 0, done.stderr
    layers = json.loads((folder / "found.json").read_text())["layers"]
    paths = {each["class"]: each["path"] for each in layers}
    assert (paths["GCNConv"], paths["SAGEConv"]) == ("fast", "PyG's")
    assert all(each["program"] is None for each in layers)
    assert "GCNConv, 2 calls, fast: sum of" in done.stderr
    assert "SAGEConv, 2 calls, PyG's: its aggregation is LSTMAggregation" in done.stderr
    assert done.stdout == "argv ['2'] theirs.py\n"


class Waiting(SAGEConv):
    """A layer whose forward ends when it has been seen."""

    sampler: Sampler

    def forward(self, x, edge_index):
        while self.known and not self.sampler.within["Waiting"]:
            time.sleep(0.001)
        self.known = True
        return super().forward(x, edge_index)

    known = False


def test_shares_are_those_of_the_samples():
    edge_index = torch.randint(0, 20, (2, 60))
    layer, tally = Waiting(4, 4), Tally()
    with onehop.patch(), reports.heard_by(tally), Sampler(tally) as sampler:
        Waiting.sampler = sampler
        # The first call is not known before it propagates.
        for each in (layer, layer, GATConv(4, 4), GCNConv(4, 4)):
            each(torch.ones(20, 4), edge_index)
        outside = sampler.samples + 2
        while sampler.samples < outside:
            time.sleep(0.001)
    rows = {each.row.kind: each for each in watched(tally, sampler)}
    assert rows.keys() == {"Waiting", "GATConv", "GCNConv"}
    assert rows["Waiting"].row.calls == 2
    shares = [each.share or 0 for each in rows.values()]
    assert shares == sorted(shares, reverse=True)
    assert 0 < (rows["Waiting"].share or 0) < 1


def test_attention_that_shares_its_wrapper_is_told_apart():
    edge_index = torch.randint(0, 20, (2, 60))
    tally = Tally()
    with onehop.patch(), reports.heard_by(tally):
        for kind in (GATConv, GCNConv, SAGEConv):
            kind(4, 4)(torch.ones(20, 4), edge_index)
        codes = _forward_codes(tally.heard())
        assert codes[SAGEConv.forward.__wrapped__.__code__] == "SAGEConv"
        assert codes[GATConv.forward.__wrapped__.__code__] == "GATConv"


def test_rows_of_other_threads_are_counted():
    tally, layer = Tally(), GCNConv(4, 4)
    edge_index = torch.randint(0, 20, (2, 60))
    with onehop.patch(), reports.heard_by(tally):
        threads = [
            threading.Thread(target=lambda: [layer(torch.ones(20, 4), edge_index) for _ in range(20)])
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sum(row.calls for row in tally.rows()) == 80
