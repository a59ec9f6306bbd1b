"""The first patch of a process finds torch's kernels, whatever context it is made in."""

import pytest

from tests.processes import run_python

CONTEXTS = {
    "inference": "torch.inference_mode()",
    "no_grad": "torch.no_grad()",
    "autocast": "torch.autocast('cpu', torch.bfloat16)",
    "a device": "torch.device('meta')",
    "a dispatch mode": "Mode()",
    "a function mode": "Functions()",
    "fake tensors": "torch._subclasses.FakeTensorMode()",
    "deterministic": "Deterministic()",
}
SCRIPT = """
import contextlib
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
import onehop
from onehop import thresholds
from onehop.integrations.rows import counted

class Mode(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))

class Functions(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))

@contextlib.contextmanager
def Deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)

with CONTEXT:
    onehop.patch(only="torch")
x, index = torch.arange(8.0).view(4, 2), torch.tensor([3, 1])
with thresholds.lifted(), counted() as counts:
    print(x[index].tolist(), x.index_select(0, index).tolist(), sorted(counts))
"""


@pytest.mark.parametrize("name", CONTEXTS)
def test_the_first_patch(name: str) -> None:
    rows = [[6.0, 7.0], [2.0, 3.0]]
    found = run_python(["-c", SCRIPT.replace("CONTEXT", CONTEXTS[name])])
    assert found.stdout.strip() == f"{rows} {rows} [('index_select', True), ('x[index]', True)]"
