"""The same bits from any number of threads, and right numbers from every instruction set."""

import pytest
import torch

import onehop
from onehop import Graph, native
from tests.ops.attention_cases import OPERATORS, call, check, operands
from tests.ops.hostile_graphs import HOSTILE
from tests.pairs import pairwise


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture(params=native.extension.available_isas())
def isa(request):
    before = native.extension.selected_isa()
    assert native.extension.select_isa(request.param)
    yield request.param
    native.extension.select_isa(before)


def hub_among_others():
    generator = torch.Generator().manual_seed(0)
    source = torch.randint(0, 900, (30_000,), generator=generator)
    target = torch.cat([torch.zeros(9000).long(), torch.randint(0, 900, (21_000,), generator=generator)])
    return torch.stack([source, target])


@pytest.mark.parametrize("edge", ["none", "projected"])
@pytest.mark.parametrize("operator", OPERATORS)
def test_thread_counts_agree_bit_by_bit(operator, edge, threads):
    edge_index = hub_among_others()
    graph = Graph.from_edge_index(edge_index, 900)
    inputs = operands(operator, edge_index, 900, 900, 3, 7, edge=edge)

    def run():
        leaves = {name: t.clone().requires_grad_() for name, t in inputs.items()}
        function = getattr(onehop, operator)
        settings = {"dropout": 0.2, "seed": 1, "return_attention_weights": True}
        out, weights = call(lambda **kw: function(graph, **kw), settings, **leaves)
        loss = out.sin().sum() + weights.square().sum()
        return [out.detach(), weights.detach(), *torch.autograd.grad(loss, leaves.values())]

    threads(1)
    once = run()
    for count in (1, 2, 4):
        threads(count)
        for first, second in zip(run(), once, strict=True):
            assert torch.equal(first, second), f"{count} threads"


@pairwise(operator=OPERATORS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_every_instruction_set(isa, dtype, operator):
    edge_index, num_src, num_dst = HOSTILE["random"]
    for heads, width, edge in ((1, 1, "none"), (3, 5, "projected"), (2, 17, "rows"), (1, 70, "none")):
        inputs = operands(operator, edge_index, num_src, num_dst, heads, width, dtype, edge)
        check(operator, edge_index, num_src, num_dst, inputs, dropout=0.3, seed=8)


def test_instruction_sets_drop_the_same(isa):
    edge_index = hub_among_others()
    graph = Graph.from_edge_index(edge_index, 900)
    x, zeros = torch.ones(900, 2, 1), torch.zeros(900, 2)
    _, weights = onehop.gat(graph, x, zeros, zeros, dropout=0.5, seed=3, return_attention_weights=True)
    assert torch.equal(weights != 0, onehop.reference.dropout_mask(30_000, 2, 0.5, 3, torch.float32) != 0)
