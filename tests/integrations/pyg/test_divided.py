"""Stand-ins for layers that mix nodes are the framework's own where no graph is divided."""

import inspect

import pytest
import torch
from torch_geometric.nn import LayerNorm, MultiAggregation, SumAggregation, global_mean_pool

import onehop
import onehop.distributed

held = global_mean_pool


class Model(torch.nn.Module):
    """Every kind of what is replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.layer, self.dropout = torch.nn.BatchNorm1d(4), LayerNorm(4), torch.nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return global_mean_pool(self.dropout(self.layer(self.norm(x))), None)


def computed(run: torch.nn.Module) -> torch.Tensor:
    torch.manual_seed(3)
    return run(torch.randn(20, 4))


def test_results_and_random_numbers_are_the_same_bits() -> None:
    expected = computed(Model())
    after = torch.rand(3)
    with onehop.patch():
        assert torch.equal(computed(Model()), expected)
        assert torch.equal(torch.rand(3), after)


@pytest.mark.parametrize(
    "made",
    [torch.jit.script, lambda model: torch.compile(model, backend="eager", fullgraph=True)],
    ids=["torchscript", "compile"],
)
def test_models_compile_under_the_patch(made) -> None:
    expected = computed(Model())
    with onehop.patch():
        assert torch.allclose(computed(made(Model())), expected)


def test_read_outs_are_what_they_were_once_the_patch_is_gone() -> None:
    before = held.__code__
    source = inspect.getsource(held)
    with onehop.patch():
        assert held.__code__ is not before
        assert held.__module__ + ".global_mean_pool" in onehop.patched()
        assert inspect.getsource(held) == source
        assert torch.equal(torch.jit.script(held)(torch.ones(3, 2), None), torch.ones(1, 2))
    assert held.__code__ is before
    assert not hasattr(held, "__wrapped__")


@pytest.mark.parametrize("make", [SumAggregation, lambda: MultiAggregation(["mean", "max"])])
def test_aggregations_take_what_they_took(make) -> None:
    x, index = torch.randn(6, 3), torch.tensor([0, 0, 1, 1, 1, 3])
    expected = make()(x, index, dim_size=5)
    with onehop.patch():
        assert torch.equal(make()(x, index, dim_size=5), expected)
        with pytest.raises(ValueError, match="invalid dimension"):
            make()(x, index, dim=2)
