"""What gat, gatv2 and attention refuse, in words, before native code sees it."""

import pytest
import torch

import onehop
from onehop import ArgumentError, Graph

# Two heads of three columns; three sources, two destinations, four edges.
EDGE_INDEX = torch.tensor([[0, 1, 2, 2], [0, 0, 1, 1]])
SRC, DST, EDGE = torch.ones(3, 2, 3), torch.ones(2, 2, 3), torch.ones(4, 2, 3)
GOOD = {
    "gat": {"x": SRC, "score_src": torch.ones(3, 2), "score_dst": torch.ones(2, 2)},
    "gatv2": {"x_src": SRC, "x_dst": DST, "att": torch.ones(2, 3)},
    "attention": {"query": DST, "key": SRC, "value": SRC},
}
ANY = {
    "dropout_of_one": ({"dropout": 1.0}, r"dropout: expected a probability in \[0, 1\), got 1.0"),
    "negative_dropout": ({"dropout": -0.1}, r"dropout: expected a probability in \[0, 1\)"),
    "dropout_is_nan": ({"dropout": float("nan")}, "dropout: expected a probability"),
    "dropout_is_text": ({"dropout": "0.5"}, "dropout: expected a probability"),
    "mask_and_dropout": (
        {"dropout": 0.5, "edge_mask": torch.ones(4, 2)},
        "dropout, edge_mask: give one of them",
    ),
    "mask_of_wrong_heads": ({"edge_mask": torch.ones(4, 3)}, r"edge_mask: expected \[E, H\] = \[4, 2\]"),
    "mask_of_wrong_edges": ({"edge_mask": torch.ones(3, 2)}, r"edge_mask: expected \[E, H\] = \[4, 2\]"),
    "mask_is_boolean": ({"edge_mask": torch.ones(4, 2).bool()}, "edge_mask: expected float32"),
    "mask_wants_a_gradient": (
        {"edge_mask": torch.ones(4, 2, requires_grad=True)},
        "edge_mask: has no gradient here; detach it",
    ),
    "mask_elsewhere": ({"edge_mask": torch.ones(4, 2, device="meta")}, "edge_mask: expected it on cpu"),
    "negative_seed": ({"dropout": 0.5, "seed": -1}, "seed: expected an integer"),
    "seed_too_large": ({"dropout": 0.5, "seed": 2**63}, "seed: expected an integer"),
    "seed_is_no_integer": ({"dropout": 0.5, "seed": 1.5}, "seed: expected an integer"),
    "backend_is_unknown": ({"backend": "abacus"}, "backend: 'abacus' is unknown"),
}
EDGES = {
    "edge_of_wrong_width": ({"edge": torch.ones(4, 2, 4)}, r"edge: expected \[E, H, D\] = \[4, 2, 3\]"),
    "edge_of_wrong_heads": ({"edge": torch.ones(4, 1, 3)}, r"edge: expected \[E, H, D\] = \[4, 2, 3\]"),
    "edge_of_wrong_count": ({"edge": torch.ones(5, 2, 3)}, r"edge: expected \[E, H, D\] = \[4, 2, 3\]"),
    "edge_is_flat": ({"edge": torch.ones(4, 6)}, r"edge: expected \[E, H, D\]"),
    "edge_is_a_list_of_three": ({"edge": [EDGE] * 3}, "edge: expected a tensor or the pair"),
    "edge_features_of_wrong_count": (
        {"edge": (torch.ones(3, 5), torch.ones(6, 5))},
        r"edge\[0\]: expected \[E, K\] = \[4, any\]",
    ),
    "edge_weight_does_not_fit": (
        {"edge": (torch.ones(4, 5), torch.ones(6, 4))},
        r"edge\[1\]: expected \[H \* D, K\] = \[6, 5\]",
    ),
    "edge_without_columns": (
        {"edge": (torch.ones(4, 0), torch.ones(6, 0))},
        r"edge\[0\]: expected at least one column",
    ),
    "edge_is_integer": ({"edge": EDGE.int()}, "edge: expected float32"),
}
BAD = {
    "gat": {
        "x_is_flat": ({"x": torch.ones(3, 6)}, r"x: expected \[num_src, H, D\] = \[3, any, any\]"),
        "x_of_destinations": ({"x": DST}, "x: expected a row for each of the 3 sources"),
        "x_is_no_tensor": ({"x": [[[1.0]]]}, "x: expected a dense tensor, got list"),
        "no_heads": ({"x": torch.ones(3, 0, 3)}, "x: expected at least one head and one column"),
        "no_columns": ({"x": torch.ones(3, 2, 0)}, "x: expected at least one head and one column"),
        "scores_of_other_heads": (
            {"score_src": torch.ones(3, 3)},
            r"score_src: expected \[num_src, H\] = \[3, 2\], got \[3, 3\]",
        ),
        "scores_of_other_nodes": ({"score_dst": torch.ones(3, 2)}, r"score_dst: expected \[num_dst, H\]"),
        "scores_elsewhere": ({"score_dst": torch.ones(2, 2, device="meta")}, "score_dst: expected it on cpu"),
        "edge_score_of_other_heads": ({"edge_score": torch.ones(4, 1)}, r"edge_score: expected \[E, H\]"),
        "slope_is_text": ({"negative_slope": "0.2"}, "negative_slope: expected a number, got str"),
    },
    "gatv2": {
        "heads_differ": ({"x_dst": torch.ones(2, 3, 3)}, r"x_dst: expected \[num_dst, H, D\] = \[2, 2, 3\]"),
        "sides_swapped": ({"x_src": DST, "x_dst": SRC}, "x_src: expected a row for each of the 3 sources"),
        "att_of_wrong_width": ({"att": torch.ones(2, 4)}, r"att: expected \[H, D\] = \[2, 3\]"),
        "att_with_a_leading_one": ({"att": torch.ones(1, 2, 3)}, r"att: expected \[H, D\]"),
        "att_is_sparse": ({"att": torch.ones(2, 3).to_sparse()}, "att: expected a dense tensor"),
        **EDGES,
    },
    "attention": {
        "key_of_other_width": (
            {"key": torch.ones(3, 2, 4)},
            r"key: expected \[num_src, H, D\] = \[3, 2, 3\]",
        ),
        "value_of_other_heads": ({"value": torch.ones(3, 1, 3)}, r"value: expected \[num_src, H, V\]"),
        "value_of_other_width_with_edges": (
            {"value": torch.ones(3, 2, 5), "edge": EDGE},
            r"value: expected \[num_src, H, V\] = \[3, 2, 3\]",
        ),
        "query_is_integer": ({"query": DST.long()}, "query: expected float32"),
        "scale_is_a_tensor": ({"scale": torch.ones(1)}, "scale: expected a number, got Tensor"),
        **EDGES,
    },
}
CASES = [
    (operator, name, change, message)
    for operator in GOOD
    for name, (change, message) in (ANY | BAD[operator]).items()
]


@pytest.fixture(scope="module")
def graph():
    return Graph.from_edge_index(EDGE_INDEX, size=(3, 2))


@pytest.mark.parametrize("operator", GOOD)
def test_what_the_cases_change_is_right(graph, operator):
    assert getattr(onehop, operator)(graph, **GOOD[operator]).shape == (2, 2, 3)


@pytest.mark.parametrize(
    ("operator", "change", "message"),
    [(operator, change, message) for operator, _, change, message in CASES],
    ids=[f"{operator}-{name}" for operator, name, *_ in CASES],
)
def test_names_what_is_wrong(graph, operator, change, message):
    with pytest.raises(ArgumentError, match=message):
        getattr(onehop, operator)(graph, **(GOOD[operator] | change))


@pytest.mark.parametrize("operator", GOOD)
def test_a_graph_is_asked_for(operator):
    with pytest.raises(ArgumentError, match=r"graph: expected an onehop\.Graph, got Tensor"):
        getattr(onehop, operator)(EDGE_INDEX, **GOOD[operator])


@pytest.mark.parametrize("name", ["weights", "rule", "att"])
def test_an_unknown_option_is_named(graph, name):
    with pytest.raises(
        TypeError, match=f"unexpected keyword argument '{name}'.*return_attention_weights, seed"
    ):
        onehop.gat(graph, **GOOD["gat"], **{name: torch.ones(2, 3)})
