"""Every tensor that the library makes names its device, so that torch's default device cannot go into it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch.utils._device import _device_constructors

import onehop

SOURCE = Path(onehop.__file__).parent
# What torch itself says looks at the default device.
CREATIONS = frozenset(function.__name__.removeprefix("fft_") for function in _device_constructors())


def unnamed(source: str) -> list[str]:
    """The creations in a text that name no device: the line, and the expression."""
    tree = ast.parse(source)
    named = {
        id(node.func)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and any(keyword.arg == "device" for keyword in node.keywords)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "torch":
            found += [(node.lineno, alias.name) for alias in node.names if alias.name in CREATIONS]
        elif isinstance(node, ast.Attribute) and node.attr in CREATIONS and id(node) not in named:
            expression = ast.unparse(node)
            if expression.startswith("torch."):
                found.append((node.lineno, expression))
    return [f"{line}: {expression}" for line, expression in sorted(found)]


def files() -> Iterator[Path]:
    return SOURCE.rglob("*.py")


def test_every_creation_names_its_device() -> None:
    found = [f"{file.relative_to(SOURCE)}:{each}" for file in files() for each in unnamed(file.read_text())]
    assert not found, "give each of these a device=:\n" + "\n".join(found)


def test_the_search_sees_the_whole_source() -> None:
    calls = sum(file.read_text().count("torch.arange(") for file in files())
    assert calls > 20
    assert {"empty", "zeros", "tensor", "as_tensor", "randperm", "sparse_csr_tensor", "fftfreq"} <= CREATIONS


@pytest.mark.parametrize(
    "line",
    [
        "torch.zeros(3)",
        "torch.as_tensor(x, dtype=torch.long)",
        "torch.fft.fftfreq(3)",
        "f(torch.tensor(1), device=d)",
        "make = partial(torch.ones, 3)",
        "make = torch.empty if fast else None",
        "from torch import arange",
    ],
)
def test_a_creation_without_a_device_is_found(line: str) -> None:
    assert len(unnamed(f"import torch\n{line}\n")) == 1


@pytest.mark.parametrize(
    "line",
    ["torch.zeros(3, device='cpu')", "x.new_zeros(3)", "torch.zeros_like(x)", "np.zeros(3)", "self.empty(3)"],
)
def test_what_takes_no_default_device_is_not_found(line: str) -> None:
    assert not unnamed(f"import torch\n{line}\n")
