"""Where the GPU backend runs, and what it says where it does not; nothing here needs triton."""

import importlib.util

import pytest
import torch

import onehop
from onehop import BackendError, Graph
from onehop.backends import backend_for
from onehop.backends.triton import TritonBackend
from onehop.kernels.triton import availability

CUDA, CPU = torch.device("cuda:0"), torch.device("cpu")


@pytest.fixture
def gpu(monkeypatch):
    """A machine that has triton and a GPU of some capability, as torch tells it."""
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    monkeypatch.setattr(torch.version, "hip", None)

    def of_capability(*capability):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)

    of_capability(9, 0)
    return of_capability


def test_runs_on_gpus(gpu):
    assert TritonBackend().refuse(CUDA, torch.bfloat16) is None


def test_refuses_old_gpus(gpu):
    gpu(7, 5)
    refusal = TritonBackend().refuse(CUDA, torch.float32)
    assert refusal == "needs a GPU of compute capability 8.0 or later, and a GPU has 7.5"


def test_refuses_other_devices(gpu):
    assert TritonBackend().refuse(CPU, torch.float32) == "runs on CUDA tensors, not on cpu"


def test_refuses_other_dtypes(gpu):
    assert "not in torch.int32" in TritonBackend().refuse(CUDA, torch.int32)


def test_says_that_triton_is_missing(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    backend = TritonBackend()
    assert "pip install 'onehop[gpu]'" in backend.refuse(CUDA, torch.float32)
    assert backend.describe() == backend.refuse(CPU, torch.float32)


def test_says_that_there_is_no_gpu(gpu, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "needs a GPU" in TritonBackend().refuse(CUDA, torch.float32)


def test_is_not_picked_for_cpu_tensors():
    assert backend_for(CPU, torch.float32).name == "cpu"


def test_asked_for_without_a_gpu_it_says_why(gpu, monkeypatch):
    graph = Graph.from_edge_index(torch.tensor([[0], [1]]), 2)
    with pytest.raises(BackendError, match="triton runs on CUDA tensors, not on cpu"):
        onehop.aggregate(graph, torch.ones(2, 3), backend="triton")


def test_tensors_of_two_devices_are_told_apart():
    graph = Graph.from_edge_index(torch.tensor([[0], [1]]), 2)
    x, weight = torch.ones(2, 3), torch.ones(1, device="meta")
    with pytest.raises(onehop.ArgumentError, match="expected it on cpu as the features are, got meta"):
        onehop.aggregate(graph, x, weight, backend="triton")
    with pytest.raises(onehop.ArgumentError, match="expected one device"):
        onehop.sddmm(graph, x, x.to("meta"), backend="triton")


def test_needs_a_triton_that_its_kernels_compile_with(gpu, monkeypatch):
    monkeypatch.setattr(availability, "version", lambda: "3.2.0")
    refusal = TritonBackend().refuse(torch.device("cuda"), torch.float32)
    assert refusal == "needs triton 3.4 or later, and 3.2.0 is installed: upgrade torch"


def test_describes_itself(gpu, monkeypatch):
    monkeypatch.setattr(availability, "version", lambda: "3.9.0")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert TritonBackend().describe() == "triton 3.9.0 on a GPU, a GPU"
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert "interpreted" in TritonBackend().describe()
