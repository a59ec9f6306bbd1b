import subprocess
import sys

import pytest

import onehop
from onehop.cli.app import VERBS
from tests.cli.running import onehop as onehop_

BAD = {
    "verb": (["fly"], "fly"),
    "option": (["demo", "--speed", "9"], "--speed"),
    "value": (["demo", "--epochs", "none"], "epochs"),
    "too small": (["demo", "--epochs", "0"], "epochs"),
    "model": (
        ["demo", "--model", "mlp"],
        "models: expected some of ogb-gcn, ogb-sage, cora-gcn",
    ),
    "no model": (["demo", "--model", ","], "models: expected at least one"),
    "file": (["demo", "--graph", "no/such/file.npz"], "no/such/file.npz"),
    "kind": (["demo", "--graph", "nas:arxiv"], "twin:NAME, pyg:NAME, ogb:NAME, got 'nas:arxiv'"),
    "no graph": (
        ["tune", "--graph", "corra"],
        "no file 'corra'. Generated graphs are twin:NAME, with one of amazon,",
    ),
    "twin": (["demo", "--graph", "twin:nobody"], "nobody"),
    "width": (["bench", "ops", "--widths", "16,-2"], "widths: expected numbers"),
    "no width": (["bench", "ops", "--widths", ","], "widths: expected at least one"),
    "case": (["bench", "ops", "--cases", "median"], "cases: expected some of sum"),
    "peer": (["bench", "ops", "--peers", "cupy"], "peers: expected some of torch-csr-int32"),
    "graph": (["bench", "ops", "--graphs", "nowhere.mtx"], "nowhere.mtx"),
    "hidden": (["bench", "models", "--hidden", "x"], "hidden: expected numbers"),
    "ablation": (["bench", "models", "--ablation", "simd"], "ablation: expected some of keep_memory"),
    "variant": (["bench", "models", "--variants", "int8"], "variants: expected some of bf16, compiled"),
    "model's peer": (["bench", "models", "--peers", "cupy"], "peers: expected some of pyg-edge_index"),
    "row length": (["bench", "limits", "--widths", "20"], "multiples of 16"),
}


@pytest.mark.parametrize(("arguments", "sentence"), BAD.values(), ids=BAD)
def test_bad_requests_end_with_a_sentence_and_code_2(arguments, sentence):
    result = onehop_(*arguments)
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert "Traceback" not in result.output


def test_a_damaged_file_ends_with_a_sentence(tmp_path):
    path = tmp_path / "damaged.npz"
    path.write_bytes(b"PK nothing")
    result = onehop_("demo", "--graph", path)
    assert result.exit_code == 2
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("verb", [(), ("demo",), ("info",), ("bench",), ("bench", "ops")], ids=" ".join)
def test_help_is_there(verb):
    result = onehop_(*verb, "--help")
    assert result.exit_code == 0
    assert "Usage: " in result.stdout


def test_it_runs_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "onehop", "--help"], capture_output=True, text=True, check=True
    )
    assert "Usage: onehop " in done.stdout


def test_importing_onehop_imports_nothing_of_the_command_line():
    heavy = [
        "torch_geometric",
        "dgl",
        "triton",
        "matplotlib",
        "rich",
        "typer",
        "numba",
        "onehop.cli",
        "onehop.bench",
    ]
    used = "onehop.Graph, onehop.aggregate, onehop.patch"
    code = f"import sys, onehop; {used}; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_help_and_version_import_nothing_heavy():
    code = (
        "import sys\n"
        "sys.argv[0] = 'onehop'\n"
        "from typer.testing import CliRunner\n"
        "from onehop.cli.app import app\n"
        "for option in ('--help', '--version'):\n"
        "    assert CliRunner().invoke(app, [option]).exit_code == 0\n"
        "print([name for name in ('torch', 'numpy', 'matplotlib', 'rich') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_version():
    assert onehop_("--version").stdout == f"onehop {onehop.__version__}\n"


@pytest.mark.parametrize("verb", VERBS)
def test_the_list_of_verbs_says_what_each_verb_says(verb):
    told = " ".join(onehop_(verb, "--help").stdout.split())
    assert VERBS[verb].rstrip(".") in told


@pytest.mark.parametrize("group", [(), ("bench",), ("simulate",)], ids=" ".join)
def test_no_line_of_help_is_cut_off(group):
    assert "..." not in onehop_(*group, "--help").stdout.partition("Commands")[2]


@pytest.mark.parametrize("verb", [("demo",), ("bench", "models")], ids=" ".join)
def test_lists_have_the_same_name_in_each_verb(verb):
    assert "--models" in onehop_(*verb, "--help").stdout


@pytest.mark.parametrize("verb", ["run", "demo", "info", "tune"])
def test_every_verb_writes_json(verb):
    assert "--json" in onehop_(verb, "--help").stdout


@pytest.mark.parametrize(
    "verb",
    [
        *((verb,) for verb in VERBS),
        *(("bench", kind) for kind in ("ops", "models", "limits")),
        *(("simulate", kind) for kind in ("ndp", "pim", "dram")),
    ],
    ids=" ".join,
)
def test_options_of_several_verbs_say_the_same(verb):
    shared = {
        "--threads": "Threads to use; torch's number by default.",
        "--width ": "Feature columns.",
        "--scale": "Multiplies a twin's numbers of nodes and edges.",
    }
    told = " ".join(onehop_(*verb, "--help").stdout.split())
    for option, text in shared.items():
        assert (option in told) == (text in told), option
