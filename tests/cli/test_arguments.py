"""What the command says before it imports torch: help, and one sentence about a wrong option."""

import json
import os
import re
import subprocess
import sys

import pytest

from onehop.cli.app import VERBS
from tests.cli.running import onehop
from tests.processes import run_anew

GROUPS = {"bench": ("ops", "models", "limits", "serve"), "simulate": ("ndp", "pim", "dram", "gpu")}
COMMANDS = [f"{verb} {name}".strip() for verb in VERBS for name in GROUPS.get(verb, ("",))]
HEAVY = ("torch", "numpy", "scipy", "torch_geometric", "matplotlib", "rich", "duckdb")

# What is wrong, and the whole sentence.
WRONG = {
    "": None,
    "fly": "No such command 'fly'; onehop --help lists what there is.",
    "--jsonn x": None,
    "tune": "--graph: a value is required.",
    "tune --graph cora --jsonn x": None,
    "tune --graph cora --widths abc": (
        "--widths: expected numbers of at least 1 with commas between them, got 'abc'."
    ),
    "tune --graph cora --reduce sun": "--reduce: expected one of sum, mean, max, min, got 'sun'.",
    "tune --graph cora --op gat": (
        "--op: expected one of aggregate, sddmm, edge_softmax, attention, got 'gat'."
    ),
    "tune --graph corra": None,
    "tune --graph cora --budget 0": "--budget: expected more than 0 seconds, got 0.",
    "tune --graph cora --plot x.txt": None,
    "tune --graph cora --json /": None,
    "demo --model mlp": None,
    "demo --epochs none": None,
    "demo --graph twin:nobody": None,
    "info --measures 3": None,
    "ingest none.csv --out g": "FILE: none.csv: there is no such file.",
    "ingest": None,
    "run": "SCRIPT: a value is required.",
    "run nowhere.py": None,
    "explain nowhere.py": None,
    "bench ops --peers cupy": None,
    "bench ops --graphs nowhere.mtx": None,
    "bench models --hidden x": None,
    "bench limits --widths 20": "--widths: expected multiples of 16, got 20.",
    "bench serve --rate 0": "--rate: expected a number above 0 (requests a second), got 0.",
    "reproduce pigym": "WORK: expected one of pygim, grande, io-aware, isplib, or all, got 'pigym'.",
    "reproduce io-aware --gpu none.json": "--gpu: none.json: no such file.",
    "simulate ndp --graph twin:arxivv": None,
    "simulate ndp --machine grande_17": None,
    "simulate ndp --sample 4 --priors": None,
    "simulate pim --plan fast": None,
    "simulate pim --layers 3": ("--layers: a run without a model is one aggregation; give --model too."),
    "simulate pim --dtype int4": None,
    "simulate dram --preset DDR6": None,
    "simulate dram --replay none.trace": "--replay: none.trace: no such file.",
    "simulate dram --sweep faw=32,48 --trace t.json": (
        "--trace: a sweep has no timeline; leave --trace or --sweep away."
    ),
    "simulate gpu --order metis": (
        "--order: expected one of own, random, degree, rcm, community, got 'metis'."
    ),
}


def test_help_and_wrong_options_import_nothing_heavy(tmp_path):
    commands = [*(f"{each} {form}" for each in ("", *GROUPS, *COMMANDS) for form in ("-h", "--help")), *WRONG]
    code = (
        "import json, sys\n"
        "sys.argv[0] = 'onehop'\n"
        "from typer.testing import CliRunner\n"
        "from onehop.cli.app import app\n"
        "found = {}\n"
        f"for command in {commands!r}:\n"
        "    result = CliRunner().invoke(app, command.split(), prog_name='onehop')\n"
        f"    heavy = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "    found[command] = (result.exit_code, result.stdout, result.stderr, heavy)\n"
        "print(json.dumps([found, len(sys.modules)]))"
    )
    done = run_anew("-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found, modules = json.loads(done.stdout)
    assert modules < 500  # 370 on Python 3.11, and torch alone has 1,500
    assert list(tmp_path.iterdir()) == []
    for command, (code, output, errors, heavy) in found.items():
        assert heavy == [], command
        if command not in WRONG:
            assert (code, errors) == (0, ""), command
            assert output.startswith("Usage: onehop "), command
        elif command:
            assert (code, output) == (2, ""), command
            assert errors.startswith("onehop: "), command
            assert len(errors.splitlines()) == 1, command
            if WRONG[command] is not None:
                assert errors == f"onehop: {WRONG[command]}\n", command
            else:
                options = re.findall(r"--[a-z]+|SCRIPT|FILE", command)
                assert not options or any(each in errors for each in options), (command, errors)


def test_a_value_that_only_a_machine_knows_is_refused_with_the_option():
    errors = onehop("simulate pim --set tasklets=0").stderr
    assert errors == "onehop: --set: tasklets must be an integer of at least 1, not 0.\n"


def test_the_name_of_an_option_is_the_one_that_was_typed():
    for name in ("--model", "--models"):
        assert onehop("demo", name, "mlp").stderr.startswith(f"onehop: {name}: expected some of ogb-gcn")


@pytest.mark.parametrize("command", COMMANDS)
def test_usage_has_the_usual_form(command):
    usage, _, rest = onehop(command, "--help").stdout.partition("\n")
    arguments = {
        "run": " SCRIPT [ARGS]...",
        "explain": " SCRIPT [ARGS]...",
        "ingest": " FILE",
        "reproduce": " WORK",
    }
    assert usage == f"Usage: onehop {command} [OPTIONS]{arguments.get(command, '')}"
    assert re.findall(r"<[a-z \[\]]+>|\{|\[\[", rest) == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_can_be_quiet_and_write_json(command):
    told = onehop(command, "-h").stdout
    assert "-q, --quiet" in told
    assert "--json" in told


def test_json_goes_to_standard_output_alone():
    result = onehop("simulate dram --requests 100 --json -")
    document = json.loads(result.stdout)
    assert document["schema"] == 1
    assert document["command"] == "simulate dram"
    assert "bandwidth" in result.stderr
    quiet = onehop("simulate dram --requests 100 --json - --quiet")
    assert json.loads(quiet.stdout)["served"] == document["served"]
    assert quiet.stderr == ""


def test_quiet_prints_nothing():
    result = onehop("simulate dram --requests 100 -q")
    assert (result.exit_code, result.output) == (0, "")


def test_a_name_alone_is_the_twin(edge_list, monkeypatch):
    monkeypatch.chdir(edge_list.parent)
    command = "simulate gpu --width 16 --quiet --json -"
    both = [json.loads(onehop(command, "--graph", name).stdout) for name in ("cora", "twin:cora")]
    assert both[0]["graph"] == both[1]["graph"]
    assert both[0]["graph"]["source"] == "twin:cora"
    (edge_list.parent / "cora").write_text(edge_list.read_text())
    assert json.loads(onehop(command, "--graph", "cora").stdout)["graph"] == both[0]["graph"]


def test_results_are_written_although_nothing_reads_the_tables(tmp_path):
    path = tmp_path / "out.json"
    arguments = ["simulate", "dram", "--requests", "2000"]
    assert broken_pipe(*arguments, "--json", path) == (0, b"")
    assert json.loads(path.read_text())["served"] == 2000
    assert broken_pipe(*arguments) == (1, b"")  # as without a file nobody gets the results


def broken_pipe(*arguments):
    """The exit code and the errors of a command whose standard output nothing reads."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as output:
        command = [sys.executable, "-m", "onehop", *map(str, arguments)]
        done = subprocess.run(command, stdout=output, stderr=subprocess.PIPE)
    return done.returncode, done.stderr


INTERRUPTED = """
import importlib, os, signal, sys

class At:
    def find_spec(self, name, path=None, target=None):
        if name == {moment!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.argv[:] = ["onehop", *{command!r}.split()]
signal.signal(signal.SIGINT, signal.default_int_handler)  # shells ignore it in the background
from onehop.cli import main

sys.meta_path.insert(0, At())
main()
"""


@pytest.mark.parametrize(
    ("command", "moment"),
    [
        ("bench ops", "typer"),
        ("bench ops", "onehop.cli.arguments.bench"),
        ("bench ops", "torch"),
        ("bench ops", "torch.nn"),
        ("bench ops", "numpy"),
        ("bench ops", "rich.progress"),
        ("simulate pim --graph twin:cora --width 4 --plan 1x32 --plot x.png", "matplotlib.figure"),
    ],
)
def test_an_interrupt_ends_with_130_and_one_sentence(command, moment, tmp_path):
    done = run_anew("-c", INTERRUPTED.format(command=command, moment=moment), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (130, "onehop: interrupted.\n")
    assert list(tmp_path.iterdir()) == []
