"""Environments in which something is missing: what needs it says so in one sentence, and the rest works."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import run_anew

ROOT = Path(__file__).resolve().parents[2]
# What the extra cli brings.
EXTRA = ("typer", "rich", "matplotlib")
NOT_INSTALLED = "ModuleNotFoundError(f'No module named {name!r}', name=name)"
OF_ANOTHER_MACHINE = "ImportError('wrong ELF class: ELFCLASS32')"


def run_without(
    *modules: str, program: str, error: str = NOT_INSTALLED
) -> "subprocess.CompletedProcess[str]":
    """Runs a program where these modules, and those inside them, cannot be imported."""
    finder = f"""
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in {modules} or name.partition(".")[0] in {modules}:
            raise {error}
sys.meta_path.insert(0, Missing())
"""
    return run_anew("-c", finder + program)


def last_line(done: "subprocess.CompletedProcess[str]") -> str:
    return done.stderr.strip().splitlines()[-1]


def command(*arguments: str) -> str:
    return f"sys.argv[:] = ['onehop', *{arguments!r}]\nfrom onehop.cli import main\nmain()\n"


@pytest.mark.parametrize("package", EXTRA)
def test_the_packages_are_missing_there(package: str) -> None:
    assert f"No module named '{package}'" in run_without(*EXTRA, program=f"import {package}").stderr


def test_operators_patch_and_tuner_work_without_the_extra() -> None:
    program = (
        "import onehop, torch\n"
        "from torch_geometric.nn import GCNConv\n"
        "edges = torch.tensor([[0, 1, 2], [1, 2, 1]])\n"
        "graph = onehop.Graph.from_edge_index(edges)\n"
        "assert onehop.aggregate(graph, torch.ones(3, 4)).tolist() == [[0.0] * 4, [2.0] * 4, [1.0] * 4]\n"
        "conv, x = GCNConv(4, 2), torch.ones(3, 4)\n"
        "expected = conv(x, edges)\n"
        "with onehop.patch():\n"
        "    torch.testing.assert_close(conv(x, edges), expected)\n"
        "    conv(x, edges).sum().backward()\n"
        "assert onehop.tune(graph, width=4, budget_s=0.05).plans\n"
        "print('all well')\n"
    )
    done = run_without(*EXTRA, program=program)
    assert done.stdout.strip() == "all well", done.stderr


@pytest.mark.parametrize(
    "start",
    ["from onehop.cli import main; main()", "import runpy; runpy.run_module('onehop', run_name='__main__')"],
    ids=["script", "module"],
)
def test_the_command_names_the_extra_and_ends_with_2(start: str) -> None:
    done = run_without(*EXTRA, program=start)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        "onehop: the command onehop needs typer, which is not installed: pip install 'onehop[cli]'.\n"
    )


@pytest.mark.parametrize(
    "made",
    ["Machine().aggregate(graph, torch.ones(2, 4))[1]", "onehop.tune(graph, width=4, budget_s=0.05)"],
    ids=["report", "tuning"],
)
def test_pictures_name_the_extra(made: str) -> None:
    program = (
        "import onehop, torch\n"
        "from onehop.machines.pim import Machine\n"
        "graph = onehop.Graph.from_edge_index(torch.tensor([[0], [1]]))\n"
        f"{made}.plot('plot.png')\n"
    )
    assert last_line(run_without(*EXTRA, program=program)) == (
        "onehop.errors.ConfigurationError: plot needs matplotlib, which is not installed: "
        "pip install 'onehop[cli]'."
    )


@pytest.mark.parametrize(
    ("then", "heavy"),
    [
        ("import onehop", {"scipy", "platformdirs"}),
        ("onehop.Graph, onehop.aggregate, onehop.patch", {"onehop.cli", "onehop.bench"}),
    ],
)
def test_import_brings_in_no_optional_package(then: str, heavy: set[str]) -> None:
    # Whatever torch itself brings in is not onehop's doing.
    program = f"import sys, torch; before = set(sys.modules); import onehop; {then}"
    done = run_anew("-c", f"{program}; print(*set(sys.modules) - before)")
    imported = set(done.stdout.split())
    assert "onehop.ops" in imported
    assert imported & {"torch_geometric", "dgl", "triton", "numba", *EXTRA, *heavy} == set()


@pytest.mark.parametrize(("verb", "options"), [("info", ()), ("demo", ()), ("tune", ("--graph", "cora"))])
def test_without_torch(verb: str, options: tuple[str, ...]) -> None:
    done = run_without("torch", program=command(verb, *options))
    assert done.returncode == 2
    told = f"onehop: onehop {verb} needs torch, which is not installed: pip install 'onehop[cli]'."
    assert last_line(done) == told


@pytest.mark.parametrize(
    ("program", "code", "said_by"),
    [(command("info"), 2, "onehop: "), ("import onehop", 1, "onehop.errors.ExtensionError: ")],
)
def test_with_kernels_of_another_machine(program: str, code: int, said_by: str) -> None:
    done = run_without("onehop._native", program=program, error=OF_ANOTHER_MACHINE)
    assert done.returncode == code
    told = last_line(done)
    assert told.startswith(f"{said_by}onehop's compiled kernels cannot be loaded by Python 3.")
    assert "(wrong ELF class: ELFCLASS32). Install onehop for this machine" in told


@pytest.mark.parametrize("program", ["import onehop", command("info")])
def test_with_an_older_torch(program: str) -> None:
    done = run_anew("-c", "import sys, torch; torch.__version__ = '2.5.1+cpu'\n" + program)
    told = "onehop works with torch 2.6 or later, and this is 2.5.1+cpu: pip install -U torch"
    assert last_line(done).endswith(told)


def test_without_a_compiler(tmp_path: Path) -> None:
    programs = {name: Path(sys.executable).with_name(name) for name in ("cmake", "ninja")}
    if not all(program.exists() for program in programs.values()):
        pytest.skip("cmake and ninja come with the extra build")
    ninja = [f"-DCMAKE_MAKE_PROGRAM={programs['ninja']}", "-G", "Ninja"]
    done = subprocess.run(
        [programs["cmake"], "-S", ROOT, "-B", tmp_path, *ninja],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    told = " ".join(done.stderr.split())
    assert "there is no C++ compiler. Debian and Ubuntu: apt install g++" in told


def test_with_an_older_python() -> None:
    done = run_anew("-c", "import sys; sys.version_info = (3, 10, 13); import onehop")
    assert done.returncode == 1
    assert last_line(done).startswith("ImportError: onehop needs Python 3.11 or later, and this is ")
