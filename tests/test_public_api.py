"""The names that users may rely on: a change here is a change of the interface."""

import ast
import importlib
import inspect
from pathlib import Path

import onehop
from tests.processes import run_anew

# What the file itself imports.
_OF_THE_FILE = {"Any", "Path", "TYPE_CHECKING"}

NAMES = {
    "ArgumentError",
    "BackendError",
    "CacheInfo",
    "ConfigurationError",
    "Explanation",
    "FileFormatError",
    "Graph",
    "IndexRangeError",
    "MachineMemoryError",
    "NeighborSampler",
    "OnehopError",
    "Patch",
    "RawMatrix",
    "TensorPaths",
    "TuningResult",
    "accelerate",
    "aggregate",
    "attention",
    "autotune",
    "cache_info",
    "clear_cache",
    "dropout",
    "edge_softmax",
    "explain",
    "extremum",
    "fusedmm",
    "gat",
    "gather",
    "gatv2",
    "hops",
    "infer",
    "ingest",
    "loader",
    "message",
    "patch",
    "patched",
    "scatter",
    "sddmm",
    "tensor_product",
    "tune",
    "unpatch",
}


# Imported when they are first used.
LATER = {"NeighborSampler", "RawMatrix", "TuningResult", "hops", "infer", "ingest", "loader", "tune"}


def public_names() -> set[str]:
    assert all(hasattr(onehop, name) for name in LATER)
    return {
        name
        for name, value in vars(onehop).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }


def test_public_names_are_these() -> None:
    assert public_names() - _OF_THE_FILE == NAMES


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(onehop.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imported = [node for node in block.body if isinstance(node, ast.ImportFrom) and node.module != "onehop"]
    assert {alias.asname for node in imported for alias in node.names} == NAMES
    for node in imported:
        for alias in node.names:
            home = importlib.import_module(str(node.module))
            assert getattr(onehop, alias.name) is getattr(home, alias.name), alias.name


def test_operators_are_registered_by_the_import() -> None:
    told = (
        "import sys, onehop, torch; torch.ops.onehop.aggregate; onehop.files.read, onehop.plans; "
        "assert 'torch_geometric' not in sys.modules"
    )
    run_anew("-c", told, check=True)


def test_the_patch_imports_neither_tuner_nor_streaming() -> None:
    told = (
        "import sys, onehop; onehop.patch(); "
        "assert not {'onehop.streaming', 'onehop.tuner.search'} & set(sys.modules); "
        "assert callable(onehop.tune) and callable(onehop.hops)"
    )
    run_anew("-c", told, check=True)


def test_the_command_imports_names_when_they_are_used() -> None:
    told = (
        "import sys; sys.argv[0] = '/somewhere/bin/onehop'; import onehop; "
        "assert 'torch' not in sys.modules; onehop.files.read; "
        "assert onehop.Graph.__name__ == 'Graph'; assert not hasattr(onehop, 'nothing')"
    )
    run_anew("-c", told, check=True)


def test_every_public_name_has_a_docstring() -> None:
    assert [name for name in sorted(NAMES) if not inspect.getdoc(getattr(onehop, name))] == []


def test_every_error_is_an_onehop_error() -> None:
    errors = [getattr(onehop, name) for name in NAMES if name.endswith("Error")]
    assert all(issubclass(error, onehop.OnehopError) for error in errors)


def test_version_is_that_of_the_package() -> None:
    from importlib.metadata import version

    assert onehop.__version__ == version("onehop")
    citation = Path(__file__).parents[1] / "CITATION.cff"
    assert f"\nversion: {onehop.__version__}\n" in citation.read_text()
