"""PyG's or torch's own tests, with and without the patch: nothing may fail that passed before.

    python tests/integrations/pyg/host_suite.py --source pytorch_geometric

runs the tests of a checkout of PyG's source twice, in processes of their own, and ends with 1 if the patch
broke one. docs/howto/run-pygs-tests.md says more, also of torch's tests.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import host_layers
from host_comparison import PASSED, SKIPPED, Comparison, Run, compare, flaky, read_run

import onehop

FOLDERS = ("test/nn/conv", "test/nn/aggr", "test/nn/models")
# The differences are 1e-6 at most. Of ChebConv and GENConv it was measured that PyG's result and ours are
# equally far from the one in float64.
_ROUNDING = (
    "it compares two ways through the layer, one of which is PyG's own code under the patch too, with "
    "atol=1e-8: more closely than sums of another order agree in float32"
)
_ADVICE = "it asks for PyG's advice to convert a matrix to CSR, which is not printed where onehop multiplies"
EXCLUSIONS: dict[str, str] = {
    "test/nn/conv/test_cheb_conv.py::test_cheb_conv": _ROUNDING,  # with FULL_TEST=1, as the next
    "test/nn/conv/test_ppf_conv.py::test_ppf_conv": _ROUNDING,
    # Only where the smallest graphs are not left to PyG, or have another order of additions, as here.
    "test/nn/conv/test_sage_conv.py::test_sage_conv[sum-False]": _ROUNDING,
    "test/nn/conv/test_cg_conv.py::test_cg_conv[True]": _ROUNDING,
    "test/nn/conv/test_gen_conv.py::test_gen_conv[softmax]": _ROUNDING,
    "test/nn/conv/test_gen_conv.py::test_gen_conv[powermean]": _ROUNDING,
    "test/nn/conv/test_gen_conv.py::test_gen_conv[aggr2]": _ROUNDING,
    **{
        f"test/utils/test_spmm.py::test_spmm_layout[{reduce}-{layout}-cpu]": _ADVICE
        for reduce in ("sum", "mean", "min", "max")
        for layout in ("layout0", "layout2")
    },
}
"""Tests that may fail under the patch, each with the reason why."""

HERE = Path(__file__).resolve().parent
_REPETITIONS = 3
_LONGEST_RUN_S = 3600.0
# What pytest ends with when it has run the tests: all passed, or some failed.
_RAN = (0, 1)


class SuiteError(Exception):
    """The tests cannot be run as asked; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one folder.

    Attributes:
        folder: Which, seen from the checkout.
        plain: The run without the patch.
        patched: The run with it.
        comparison: What the patch broke. Tests that do not always pass without the patch are not in it.
        flaky: Those.
    """

    folder: str
    plain: Run
    patched: Run
    comparison: Comparison
    flaky: frozenset[str]


def checkout(source: str | os.PathLike[str]) -> Path:
    """The folder of a checkout of PyG's source, or of torch's, which may be of another release.

    Raises:
        SuiteError: It is neither, or of another version than the PyG that is installed.
    """
    root = Path(source).resolve()
    if (root / "test" / "test_indexing.py").is_file():
        return root
    version_file = root / "torch_geometric" / "__init__.py"
    if not version_file.is_file() or not (root / "test").is_dir():
        raise SuiteError(f"{root} is no checkout of PyG's source: torch_geometric/ or test/ is missing.")
    found = re.search(r"__version__ = ['\"]([^'\"]+)", version_file.read_text(encoding="utf-8"))
    theirs, installed = found[1] if found else "unknown", metadata.version("torch_geometric")
    if theirs.split(".")[:2] != installed.split(".")[:2]:
        raise SuiteError(
            f"{root} holds PyG {theirs}, and PyG {installed} is installed: "
            f"check out the tag of the installed version, or install {theirs}."
        )
    return root


def run_tests(
    root: Path, selection: Sequence[str], *, patched: bool, seed: int = 0, options: Sequence[str] = ()
) -> Run:
    """Runs tests of the checkout in a process of their own.

    Args:
        root: The checkout.
        selection: Folders, files or tests, as pytest takes them.
        patched: Whether under the patch.
        seed: What the random numbers of every test begin with.
        options: More of the plugin's options.

    Raises:
        SuiteError: pytest could not run them; with what it printed.
    """
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "record.jsonl"
        arguments = [*selection, "-p", "host_plugin", "--onehop-record", str(record), f"--onehop-seed={seed}"]
        arguments += options
        if patched:
            arguments.append("--onehop-patch")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *arguments, *_PYTEST],
            cwd=root,
            env=_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_LONGEST_RUN_S,
            check=False,
        )
        died = done.returncode < 0
        if not record.exists() or (done.returncode not in _RAN and not died):
            raise SuiteError(f"pytest ended with {done.returncode}:\n{done.stdout[-4000:]}")
        return read_run(record)


# PyG's settings ask for much output, and for PyG 2.7 an error where torch deprecates TorchScript.
# Files that cannot be imported are counted as tests that failed.
_PYTEST = (
    "-W",
    "ignore:`torch.jit:DeprecationWarning",
    "--capture=fd",
    "--color=no",
    "-qqq",
    "-p",
    "no:cacheprovider",
    "--continue-on-collection-errors",
)


def _environment() -> dict[str, str]:
    paths = [str(Path(onehop.__file__).parents[1]), str(HERE), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        # The installed PyG is tested, not the one in the checkout, which is the current folder.
        "PYTHONSAFEPATH": "1",
        # Both runs go through sets in the same order.
        "PYTHONHASHSEED": "0",
    }


def examine(root: Path, folder: str, exclusions: Mapping[str, str], say: Callable[[str], None]) -> Result:
    """Runs the tests of one folder both ways and compares.

    What the patch seems to have broken is run again without it, with other random numbers: a test that does
    not always pass proves nothing.
    """
    say(f"{folder}, without the patch ...")
    plain = run_tests(root, [folder], patched=False)
    say(f"{folder}, under the patch ...")
    patched = run_tests(root, [folder], patched=True)
    found = compare(plain, patched, exclusions)
    suspects = [difference.test for difference in found.regressions]
    unreliable: frozenset[str] = frozenset()
    if suspects:
        say(f"{folder}, {len(suspects)} tests again ...")
        unreliable = flaky(
            suspects,
            [run_tests(root, suspects, patched=False, seed=seed) for seed in range(1, _REPETITIONS + 1)],
        )
    remaining = tuple(difference for difference in found.regressions if difference.test not in unreliable)
    comparison = Comparison(remaining, found.excused, found.needless)
    return Result(folder, plain, patched, comparison, unreliable)


def summary(results: Sequence[Result]) -> str:
    """The counts of each folder and what the patch broke."""
    width = max(len(result.folder) for result in results)
    lines = [f"{'':{width}}  {'without the patch':^24}  {'under the patch':^24}"]
    heads = f"{'passed':>8}{'skipped':>8}{'other':>8}"
    lines.append(f"{'':{width}}  {heads}  {heads}")
    for result in results:
        counts = "  ".join(
            f"{run.count(PASSED):>8}{run.count(SKIPPED):>8}{run.others:>8}"
            for run in (result.plain, result.patched)
        )
        lines.append(f"{result.folder:{width}}  {counts}")
    for result in results:
        found = result.comparison
        lines += [f"\nBROKEN: {each.test} ({each.result})\n{each.detail}" for each in found.regressions]
        lines += [f"\nexcluded: {each.test}: {each.detail}" for each in found.excused]
        lines += [f"\nexcluded, and passed: {test}" for test in found.needless]
        lines += [f"\nfails at times without the patch too: {test}" for test in sorted(result.flaky)]
    broken = sum(len(result.comparison.regressions) for result in results)
    lines.append(f"\nThe patch broke {broken} tests.")
    return "\n".join(lines)


def as_json(results: Sequence[Result], rows: Sequence[host_layers.LayerRow]) -> dict[str, Any]:
    """Everything that was found, for a file."""
    return {
        "versions": versions(),
        "folders": {
            result.folder: {
                name: {PASSED: run.count(PASSED), SKIPPED: run.count(SKIPPED), "other": run.others}
                for name, run in (("plain", result.plain), ("patched", result.patched))
            }
            | asdict(result.comparison)
            | {"flaky": sorted(result.flaky)}
            for result in results
        },
        "layers": [asdict(row) for row in rows],
    }


def versions() -> dict[str, str]:
    """What was tested."""
    return {name: metadata.version(name) for name in ("torch_geometric", "torch")}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folders", nargs="*", default=FOLDERS, help=f"default: {' '.join(FOLDERS)}")
    parser.add_argument(
        "--source", default=os.environ.get("ONEHOP_PYG_SOURCE"), help="the checkout of PyG, or of torch"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was found")
    parser.add_argument("--docs", type=Path, metavar="FILE", help="write the page of PyG's layers")
    given = parser.parse_args(arguments)
    if not given.source:
        parser.error("name a checkout of PyG's source, with --source or ONEHOP_PYG_SOURCE")
    try:
        root = checkout(given.source)
        results = [examine(root, folder, EXCLUSIONS, print) for folder in given.folders]
    except SuiteError as error:
        parser.exit(2, f"{error}\n")
    uses = [use for result in results for use in result.patched.layers]
    rows = host_layers.rows(uses)
    # Torch's tests have no layers.
    print(f"\n{host_layers.as_text(rows)}\n" if uses else "", summary(results), sep="\n")
    if given.json is not None:
        given.json.write_text(json.dumps(as_json(results, rows), indent=1) + "\n", encoding="utf-8")
    if given.docs is not None:
        known = host_layers.MEASURED
        measured = json.loads(known.read_text(encoding="utf-8")) if known.is_file() else None
        given.docs.write_text(host_layers.as_page(rows, versions(), measured), encoding="utf-8")
    return 1 if any(result.comparison.regressions for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
