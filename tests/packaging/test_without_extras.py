"""The library needs nothing that the extra ``cli`` brings; what does need it says which extra to install."""

import subprocess
import sys

import pytest

BLOCKED = ("typer", "rich", "matplotlib")
# Finds these packages missing, as an environment without the extra would.
WITHOUT = f"""
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {BLOCKED}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT + program], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("package", BLOCKED)
def test_the_packages_are_missing_there(package: str) -> None:
    assert f"No module named '{package}'" in run(f"import {package}").stderr


def test_operators_patch_and_tuner_work() -> None:
    done = run(
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
    assert done.stdout.strip() == "all well", done.stderr


@pytest.mark.parametrize(
    "start",
    ["from onehop.cli import main; main()", "import runpy; runpy.run_module('onehop', run_name='__main__')"],
    ids=["script", "module"],
)
def test_the_command_names_the_extra_and_ends_with_2(start: str) -> None:
    done = run(start)
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
    done = run(
        "import onehop, torch\n"
        "from onehop.machines.pim import Machine\n"
        "graph = onehop.Graph.from_edge_index(torch.tensor([[0], [1]]))\n"
        f"{made}.plot('plot.png')\n"
    )
    assert done.stderr.strip().splitlines()[-1] == (
        "onehop.errors.ConfigurationError: plot needs matplotlib, which is not installed: "
        "pip install 'onehop[cli]'."
    )


def test_import_needs_neither_scipy_nor_platformdirs() -> None:
    done = run("import torch; before = set(sys.modules); import onehop; print(*set(sys.modules) - before)")
    imported = set(done.stdout.split())
    assert "onehop.ops" in imported
    assert imported & {"scipy", "platformdirs", *BLOCKED} == set()
