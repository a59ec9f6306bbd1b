"""Every operator, its gradients and its random numbers."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import onehop
from onehop.kernels.triton import availability
from tests.default_device.ways import EDGES, HEADS, NODES, WIDTH, assert_same_bits, new_graph, number

REDUCTIONS = ("sum", "mean", "max", "min")


def recorded(run: Callable[..., Any], *operands: Tensor) -> list[Tensor]:
    """The outputs, and the gradients of all operands."""
    leaves = [operand.clone().requires_grad_() for operand in operands]
    out = run(*leaves)
    outs = list(out) if isinstance(out, tuple) else [out]
    loss = sum((each * each.detach().cos()).sum() for each in outs)
    return [*(each.detach() for each in outs), *torch.autograd.grad(loss, leaves)]


def aggregated(reduce: str, **kwargs: Any) -> list[Tensor]:
    graph = new_graph()

    def run(x: Tensor, weight: Tensor, left: Tensor, right: Tensor) -> Tensor:
        return onehop.aggregate(graph, x, weight, reduce, left, right, **kwargs)

    plain = recorded(lambda x: onehop.aggregate(graph, x, reduce=reduce), number(NODES, WIDTH))
    return plain + recorded(run, number(NODES, WIDTH), number(EDGES), number(NODES), number(NODES))


def with_heads(reduce: str) -> list[Tensor]:
    graph = new_graph()
    return recorded(
        lambda x, weight: onehop.aggregate(graph, x, weight, reduce),
        number(NODES, HEADS, WIDTH),
        number(EDGES, HEADS),
    )


def semiring(multiply: str, reduce: str) -> list[Tensor]:
    graph = new_graph()
    return recorded(
        lambda x, weight: onehop.aggregate(graph, x, weight, reduce, multiply=multiply),
        number(NODES, WIDTH),
        number(EDGES),
    )


def gat(**kwargs: Any) -> list[Tensor]:
    graph = new_graph()
    return recorded(
        lambda x, left, right, edge: onehop.gat(graph, x, left, right, edge_score=edge, **kwargs),
        number(NODES, HEADS, WIDTH),
        number(NODES, HEADS),
        number(NODES, HEADS),
        number(EDGES, HEADS),
    )


def gatv2(**kwargs: Any) -> list[Tensor]:
    graph = new_graph()
    return recorded(
        lambda src, dst, att, edge: onehop.gatv2(graph, src, dst, att, edge=edge, **kwargs),
        number(NODES, HEADS, WIDTH),
        number(NODES, HEADS, WIDTH),
        number(HEADS, WIDTH),
        number(EDGES, HEADS, WIDTH),
    )


def attention(**kwargs: Any) -> list[Tensor]:
    graph = new_graph()
    return recorded(
        lambda q, k, v, edge, weight: onehop.attention(graph, q, k, v, edge=(edge, weight), **kwargs),
        *(number(NODES, HEADS, WIDTH) for _ in range(3)),
        number(EDGES, 3),
        number(HEADS * WIDTH, 3),
    )


def dropped_out() -> list[Tensor]:
    """Dropout whose seed is drawn from torch's own numbers, and the numbers that come after."""
    torch.manual_seed(7)
    return [*gat(dropout=0.5), *gatv2(dropout=0.5), *attention(dropout=0.5), torch.rand(3, device="cpu")]


CASES: dict[str, Callable[[], list[Tensor]]] = {
    **{f"aggregate {reduce}": lambda reduce=reduce: aggregated(reduce) for reduce in REDUCTIONS},
    **{f"heads {reduce}": lambda reduce=reduce: with_heads(reduce) for reduce in REDUCTIONS},
    **{
        f"semiring {multiply} {reduce}": lambda multiply=multiply, reduce=reduce: semiring(multiply, reduce)
        for multiply in ("add", "sub", "sigmoid")
        for reduce in ("sum", "mean", "min")
    },
    "aggregate by the reference": lambda: aggregated("sum", backend="reference"),
    "sddmm": lambda: recorded(
        lambda dst, src: onehop.sddmm(new_graph(), dst, src),
        number(NODES, HEADS, WIDTH),
        number(NODES, HEADS, WIDTH),
    ),
    "sddmm of no columns": lambda: [
        onehop.sddmm(new_graph(), number(NODES, HEADS, 0), number(NODES, HEADS, 0))
    ],
    "edge softmax": lambda: recorded(
        lambda scores: onehop.edge_softmax(new_graph(), scores), number(EDGES, HEADS)
    ),
    **{
        f"fusedmm {kernel}": lambda kernel=kernel: recorded(
            lambda dst, src: onehop.fusedmm(new_graph(), dst, src, kernel),
            number(NODES, WIDTH),
            number(NODES, WIDTH),
        )
        for kernel in ("sigmoid", "tdist", "dot")
    },
    "gat": gat,
    "gat with weights": lambda: gat(return_attention_weights=True),
    "gatv2": gatv2,
    "gatv2 with weights": lambda: gatv2(return_attention_weights=True),
    "attention": attention,
    "attention with weights": lambda: attention(return_attention_weights=True),
    "attention with a mask": lambda: attention(edge_mask=number(EDGES, HEADS)),
    "dropout with seeds": lambda: (
        gat(dropout=0.5, seed=3) + gatv2(dropout=0.5, seed=3) + attention(dropout=0.5, seed=3)
    ),
    "dropout by the reference": lambda: attention(dropout=0.5, seed=3, backend="reference"),
    "dropout": dropped_out,
    "large outputs": lambda: recorded(lambda x: onehop.aggregate(new_graph(), x), number(NODES, 8192)),
}

# Interpreted, on CPU tensors.
TRITON: dict[str, Callable[[], list[Tensor]]] = {
    "aggregate": lambda: aggregated("sum", backend="triton"),
    "extremum": lambda: aggregated("max", backend="triton"),
    "gat": lambda: gat(dropout=0.5, seed=3, backend="triton"),
}


@pytest.mark.parametrize("name", CASES)
def test_same_bits_whatever_the_default_device(name: str, elsewhere: Callable[[], Any]) -> None:
    assert_same_bits(CASES[name], elsewhere)


@pytest.mark.skipif(availability.not_installed() is not None, reason="no triton for them")
@pytest.mark.usefixtures("interpreter")
@pytest.mark.parametrize("name", TRITON)
def test_same_bits_from_the_kernels_of_gpus(name: str, elsewhere: Callable[[], Any]) -> None:
    assert_same_bits(TRITON[name], elsewhere)
