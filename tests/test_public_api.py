"""The names that users may rely on: a change here is a change of the interface."""

import inspect

import onehop

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
    "OnehopError",
    "Patch",
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
    "fusedmm",
    "gat",
    "gatv2",
    "patch",
    "patched",
    "sddmm",
    "tune",
    "unpatch",
}


def public_names() -> set[str]:
    return {
        name
        for name, value in vars(onehop).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }


def test_public_names_are_these() -> None:
    assert public_names() == NAMES


def test_every_public_name_has_a_docstring() -> None:
    assert [name for name in sorted(NAMES) if not inspect.getdoc(getattr(onehop, name))] == []


def test_every_error_is_an_onehop_error() -> None:
    errors = [getattr(onehop, name) for name in NAMES if name.endswith("Error")]
    assert all(issubclass(error, onehop.OnehopError) for error in errors)


def test_version_is_that_of_the_package() -> None:
    from importlib.metadata import version

    assert onehop.__version__ == version("onehop")
