"""The names that users may rely on: a change here is a change of the interface."""

import ast
import importlib
import inspect
import re
from pathlib import Path

import onehop
from tests.processes import run_anew

ROOT = Path(__file__).resolve().parents[1]

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


MODULES = {"datasets", "distributed", "errors", "files", "graph", "machines", "ops", "plans", "tuner"}


def test_public_names_are_these() -> None:
    assert set(onehop.__all__) == NAMES | MODULES
    assert sorted(dir(onehop)) == sorted([*NAMES, *MODULES, "__version__"])
    for name in NAMES:
        assert not inspect.ismodule(getattr(onehop, name)), name
    for name in MODULES:
        assert inspect.ismodule(getattr(onehop, name)), name


def test_modules_are_those_of_the_reference() -> None:
    pages = [path.read_text() for path in (ROOT / "docs" / "reference" / "api").glob("*.md")]
    described = {name for page in pages for name in re.findall(r"^::: onehop\.([a-z]+)\.", page, re.M)}
    assert described == MODULES


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(onehop.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imported = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    assert {alias.name for node in imported for alias in node.names} == NAMES | MODULES
    for node in imported:
        for alias in node.names:
            home = importlib.import_module(str(node.module))
            assert getattr(onehop, alias.name) is getattr(home, alias.name), alias.name


def test_names_are_there_without_an_import_of_their_own() -> None:
    told = (
        "import sys, onehop; "
        "assert not {'onehop.distributed', 'onehop.tuner.search', 'onehop.machines.pim'} & set(sys.modules); "
        "onehop.distributed.partition, onehop.datasets.twin, onehop.machines.pim.Machine, onehop.tuner.tune; "
        "assert not hasattr(onehop, 'nothing') and not hasattr(onehop.machines, 'nothing'); "
        "assert set(onehop.machines.__all__) <= {*dir(onehop.machines)}; "
        "from onehop import *; assert tune is onehop.tune and machines is onehop.machines"
    )
    run_anew("-c", told, check=True)


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


def test_every_name_that_dir_lists_is_there_without_pyg() -> None:
    told = (
        "import inspect, sys; sys.modules['torch_geometric'] = None; import onehop; "
        "inspect.getmembers(onehop); assert 'loader' not in dir(onehop) and 'infer' in dir(onehop)"
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
    citation = ROOT / "CITATION.cff"
    assert f"\nversion: {onehop.__version__}\n" in citation.read_text()
