"""Functions of torch that programs hold, and how they find them again by what they are."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch_geometric  # noqa: F401 - it replaces torch.index_select when it is imported
from torch import Tensor

from tests.integrations.torch.dispatched import whole
from tests.integrations.torch.indices import ANY, ENTRIES, LENGTHS, ODD, ROWS

# Functions as they were found before the patch; calls of them, by which they are looked up again.
X, V = whole(ROWS, 4), whole(ENTRIES, 4)
WIDE = ANY.unsqueeze(1).expand(-1, 4)
FUNCTIONS: dict[str, tuple[Any, str, Callable[[Any, Any], Any]]] = {
    "F.linear": (F, "linear", lambda f, x: f(x, X)),
    "F.embedding": (F, "embedding", lambda f, x: f(ANY, x)),
    "F.embedding_bag": (F, "embedding_bag", lambda f, x: f(ANY.view(6, 10), x)),
    "torch.gather": (torch, "gather", lambda f, x: f(x, 0, WIDE)),
    "torch.index_select": (torch, "index_select", lambda f, x: f(x, 0, ANY)),
    "torch.index_add": (torch, "index_add", lambda f, x: f(x, 0, ANY, V)),
    "torch.scatter_add": (torch, "scatter_add", lambda f, x: f(x, 0, WIDE, V)),
    "torch.scatter_reduce": (torch, "scatter_reduce", lambda f, x: f(x, 0, WIDE, V, "mean")),
    "torch.segment_reduce": (torch, "segment_reduce", lambda f, x: f(x, "sum", lengths=LENGTHS)),
    "torch.index_put": (torch, "index_put", lambda f, x: f(x, (ANY,), V)),
    "torch.mm": (torch, "mm", lambda f, x: f(x, X.t())),
    "torch.addmm": (torch, "addmm", lambda f, x: f(X[:, 0], x, X.t())),
    "Tensor.__getitem__": (Tensor, "__getitem__", lambda f, x: f(x, ANY)),
    "Tensor.__setitem__": (Tensor, "__setitem__", lambda f, x: f(x, ODD, 1)),
    "Tensor.gather": (Tensor, "gather", lambda f, x: f(x, 0, WIDE)),
    "Tensor.index_select": (Tensor, "index_select", lambda f, x: f(x, 0, ANY)),
    "Tensor.index_add": (Tensor, "index_add", lambda f, x: f(x, 0, ANY, V)),
    "Tensor.index_add_": (Tensor, "index_add_", lambda f, x: f(x, 0, ANY, V)),
    "Tensor.scatter_add": (Tensor, "scatter_add", lambda f, x: f(x, 0, WIDE, V)),
    "Tensor.scatter_add_": (Tensor, "scatter_add_", lambda f, x: f(x, 0, WIDE, V)),
    "Tensor.scatter_reduce": (Tensor, "scatter_reduce", lambda f, x: f(x, 0, WIDE, V, "sum")),
    "Tensor.scatter_reduce_": (Tensor, "scatter_reduce_", lambda f, x: f(x, 0, WIDE, V, "sum")),
    "Tensor.index_put_": (Tensor, "index_put_", lambda f, x: f(x, (ANY,), V)),
    "Tensor.mm": (Tensor, "mm", lambda f, x: f(x, X.t())),
}
HELD = {name: getattr(owner, attribute) for name, (owner, attribute, _) in FUNCTIONS.items()}
each_function = pytest.mark.parametrize("name", FUNCTIONS)


def found(name: str) -> Any:
    owner, attribute, _ = FUNCTIONS[name]
    return getattr(owner, attribute)


def call(name: str, x: Any, function: Any = None) -> Any:
    return FUNCTIONS[name][2](found(name) if function is None else function, x)


def operand(name: str) -> Tensor:
    """What a function is called with: as many rows as the index has entries, or fewer."""
    return (V if any(each in name for each in ("mm", "linear", "segment")) else X).clone()


def known(function: Any) -> tuple[list[str], list[str]]:
    """The names under which a function was found before, and under which it is found now."""
    before = [each for each, held in HELD.items() if held is function]
    return before, [each for each in FUNCTIONS if found(each) is function]
