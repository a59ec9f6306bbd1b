"""Patched layers in compiled programs that run on the GPU's kernels, interpreted on CPU tensors."""

import pytest
import torch

import onehop
from onehop.kernels.triton import availability
from tests.integrations.pyg.test_compile import LAYERS, has_ours, make, programs, step  # noqa: F401

pytestmark = [
    pytest.mark.skipif(availability.not_installed() is not None, reason="no triton to interpret the kernels"),
    pytest.mark.usefixtures("interpreter"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("name", ["GCN", "SAGE, max", "GAT", "GATv2", "Transformer"])
def test_a_layer_is_one_program_of_the_gpus_operators(name, programs, edge_index):  # noqa: F811
    layer = make(LAYERS[name])
    x = torch.randn(20, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected = step(layer, layer, x, edge_index)
    with onehop.patch(backend="triton"):
        compiled = torch.compile(layer, fullgraph=True, backend=programs.backend)
        found = step(compiled, layer, x, edge_index)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    assert has_ours(programs.forward)
    assert has_ours(programs.backward)


@pytest.mark.parametrize("name", ["GAT", "Transformer"])
def test_no_kernel_of_another_backend_runs_in_a_program(name, programs, edge_index, monkeypatch):  # noqa: F811
    from onehop.backends.cpu import CpuBackend

    def refused(*_):
        raise AssertionError("the CPU's kernels ran")

    layer = make(LAYERS[name])
    x = torch.randn(20, 6, dtype=torch.float64)
    with onehop.patch(backend="triton"):
        monkeypatch.setattr(CpuBackend, "run", refused)
        compiled = torch.compile(layer, fullgraph=True, backend=programs.backend)
        step(compiled, layer, x, edge_index)
