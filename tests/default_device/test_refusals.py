"""Tensors without data never reach native code, whatever their place among the operands."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import onehop
from onehop import BackendError, Graph, OnehopError, native
from onehop.kernels.cpu import rows
from onehop.kernels.cpu.layout import address
from onehop.machines import ndp, pim
from tests.default_device.ways import EDGE_INDEX, EDGES, HEADS, NODES, WIDTH, new_graph, number

GRAPH = new_graph()
X, WEIGHT, SCALE = number(NODES, WIDTH), number(EDGES), number(NODES)
PATHS = onehop.TensorPaths.between("3x0e+2x1o", "0e+1o", up_to=1)
HEADED, OF_HEADS, OF_EDGES = number(NODES, HEADS, WIDTH), number(NODES, HEADS), number(EDGES, HEADS)


def on_machine(machine: Any) -> Callable[..., Any]:
    return lambda x, weight, left, right: machine.aggregate(
        GRAPH, x, weight=weight, src_scale=left, dst_scale=right
    )


CALLS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    **{
        f"aggregate {reduce}": (
            lambda x, weight, left, right, reduce=reduce: onehop.aggregate(
                GRAPH, x, weight, reduce, left, right
            ),
            (X, WEIGHT, SCALE, SCALE),
        )
        for reduce in ("sum", "mean", "max", "min")
    },
    "aggregate with a weight": (lambda x, weight: onehop.aggregate(GRAPH, x, weight), (X, WEIGHT)),
    "heads": (lambda x, weight: onehop.aggregate(GRAPH, x, weight), (HEADED, OF_EDGES)),
    "semiring": (
        lambda x, weight: onehop.aggregate(GRAPH, x, weight, "min", multiply="add"),
        (X, WEIGHT),
    ),
    "sddmm": (lambda dst, src: onehop.sddmm(GRAPH, dst, src), (X, X)),
    "fusedmm": (lambda dst, src: onehop.fusedmm(GRAPH, dst, src, "sigmoid"), (X, X)),
    "tensor product": (
        lambda x, harmonics, weights: onehop.tensor_product(GRAPH, x, harmonics, weights, PATHS),
        (number(NODES, PATHS.dim_x), number(EDGES, PATHS.dim_harmonics), number(EDGES, PATHS.weight_numel)),
    ),
    "edge softmax": (lambda scores: onehop.edge_softmax(GRAPH, scores), (OF_EDGES,)),
    "gat": (
        lambda x, left, right, edge, mask: onehop.gat(GRAPH, x, left, right, edge_score=edge, edge_mask=mask),
        (HEADED, OF_HEADS, OF_HEADS, OF_EDGES, OF_EDGES),
    ),
    "gatv2": (
        lambda src, dst, att, edge, mask: onehop.gatv2(GRAPH, src, dst, att, edge=edge, edge_mask=mask),
        (HEADED, HEADED, number(HEADS, WIDTH), number(EDGES, HEADS, WIDTH), OF_EDGES),
    ),
    "attention": (
        lambda query, key, value, edge, weight, mask: onehop.attention(
            GRAPH, query, key, value, edge=(edge, weight), edge_mask=mask
        ),
        (HEADED, HEADED, HEADED, number(EDGES, 3), number(HEADS * WIDTH, 3), OF_EDGES),
    ),
    "pim": (on_machine(pim.Machine(pim.upmem_v1a())), (X, WEIGHT, SCALE, SCALE)),
    "ndp": (on_machine(ndp.Machine("grande_16")), (X, WEIGHT, SCALE, SCALE)),
    "from_edge_index": (lambda edges: Graph.from_edge_index(edges, NODES), (EDGE_INDEX,)),
    "from_csr": (Graph.from_csr, (GRAPH.rowptr, GRAPH.col)),
}
PLACES = [
    pytest.param(call, operands, place, id=f"{name}, {'all' if place is None else place}")
    for name, (call, operands) in CALLS.items()
    for place in (*range(len(operands)), None)
]


@pytest.mark.parametrize(("call", "operands", "place"), PLACES)
def test_an_operand_without_data_is_refused(
    call: Callable[..., Any], operands: tuple[Tensor, ...], place: int | None
) -> None:
    given = [each.to("meta") if place in (None, index) else each for index, each in enumerate(operands)]
    with pytest.raises(OnehopError, match="meta"):
        call(*given)


@pytest.mark.parametrize("place", [native.address, address])
def test_there_is_no_address_off_the_cpu(place: Callable[[Tensor], int]) -> None:
    assert place(X) == X.data_ptr()
    with pytest.raises(BackendError, match=r"shape \[40, 4\] on meta.*one device"):
        place(X.to("meta"))


def test_rows_are_not_taken_off_the_cpu() -> None:
    index = torch.arange(3, device="cpu")
    for operands in ((X.to("meta"), index), (X, index.to("meta"))):
        with pytest.raises(BackendError, match="meta"):
            rows.take_rows(*operands)
        with pytest.raises(BackendError, match="meta"):
            rows.add_rows(*operands, X[:3])
