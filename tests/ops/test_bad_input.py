import pytest
import torch

import onehop
from onehop import ArgumentError, BackendError, Graph
from onehop.backends import backend_for


@pytest.fixture
def graph():
    return Graph.from_edge_index(torch.tensor([[0, 1, 2], [0, 0, 1]]), size=(3, 2))


X = torch.ones(3, 4)

BAD_AGGREGATES = {
    "x_is_no_tensor": ({"x": [[1.0]] * 3}, "x: expected a dense tensor"),
    "x_is_sparse": ({"x": X.to_sparse()}, "x: expected a dense tensor"),
    "x_is_integer": ({"x": X.long()}, "x: expected float32"),
    "x_is_complex": ({"x": X.to(torch.complex64)}, "x: expected float32"),
    "x_has_one_dimension": ({"x": X[:, 0]}, "x: expected a row for each of the 3 sources"),
    "x_has_too_few_rows": ({"x": X[:2]}, "x: expected a row for each of the 3 sources, got shape \\[2, 4\\]"),
    "weight_has_wrong_length": (
        {"weight": torch.ones(4)},
        "weight: expected one entry for each of the 3 edges",
    ),
    "weight_is_a_column": ({"weight": torch.ones(3, 1)}, "weight: a weight for each edge and head"),
    "weight_is_integer": ({"weight": torch.ones(3).int()}, "weight: expected float32"),
    "weight_is_a_list": ({"weight": [1.0, 1.0, 1.0]}, "weight: expected a dense tensor"),
    "weight_is_elsewhere": ({"weight": torch.ones(3, device="meta")}, "weight: expected it on cpu"),
    "src_scale_has_wrong_length": (
        {"src_scale": torch.ones(2)},
        "src_scale: expected one entry for each of the 3 sources",
    ),
    "dst_scale_has_wrong_length": (
        {"dst_scale": torch.ones(3)},
        "dst_scale: expected one entry for each of the 2 dest",
    ),
    "reduce_is_unknown": ({"reduce": "median"}, "reduce: expected one of sum, mean, max, min, got 'median'"),
    "backend_is_unknown": ({"backend": "abacus"}, "backend: 'abacus' is unknown"),
}


@pytest.mark.parametrize("name", BAD_AGGREGATES)
def test_aggregate_names_what_is_wrong(graph, name):
    change, message = BAD_AGGREGATES[name]
    with pytest.raises(ArgumentError, match=message):
        onehop.aggregate(graph, **({"x": X} | change))


@pytest.mark.parametrize(
    ("operator", "operands"),
    [
        (onehop.aggregate, (X,)),
        (onehop.edge_softmax, (torch.ones(3),)),
        (onehop.sddmm, (X[:2], X)),
        (onehop.fusedmm, (X[:2], X, "dot")),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_graph_is_asked_for(operator, operands):
    with pytest.raises(ArgumentError, match=r"graph: expected an onehop\.Graph, got Tensor"):
        operator(torch.tensor([[0], [0]]), *operands)


def test_no_backend_for_such_tensors():
    with pytest.raises(BackendError, match="cpu runs on CPU tensors, not on meta"):
        backend_for(torch.device("meta"), torch.float32)


BAD_DOTS = {
    "widths_differ": (torch.ones(2, 4), torch.ones(3, 5), "dst, src: expected"),
    "heads_differ": (torch.ones(2, 2, 4), torch.ones(3, 1, 4), "dst, src: expected"),
    "too_many_dimensions": (torch.ones(2, 1, 2, 3), torch.ones(3, 1, 2, 3), "dst, src: expected"),
    "sides_swapped": (
        torch.ones(3, 4),
        torch.ones(2, 4),
        "dst: expected a row for each of the 2 destinations",
    ),
    "integer": (torch.ones(2, 4).int(), torch.ones(3, 4), "dst: expected float32"),
    "integer_sources": (torch.ones(2, 4), torch.ones(3, 4).int(), "src: expected float32"),
    "too_few_sources": (torch.ones(2, 4), torch.ones(2, 4), "src: expected a row for each of the 3 sources"),
    "sparse_sources": (torch.ones(2, 4), torch.ones(3, 4).to_sparse(), "src: expected a dense tensor"),
}


@pytest.mark.parametrize("name", BAD_DOTS)
def test_sddmm_names_what_is_wrong(graph, name):
    dst, src, message = BAD_DOTS[name]
    with pytest.raises(ArgumentError, match=message):
        onehop.sddmm(graph, dst, src)
