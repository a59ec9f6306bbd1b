"""Operators and forms that are checked on a GPU beside those that are measured."""

from typing import Any

from benchmarks.gpu.operators import ATTENTION, GAT, GATV2, OPERATORS, by_name, operator

# Heads and the width of each: the fewest columns that are measured, and four heads of the same width.
SIZES = ((1, 64), (4, 64))
# Keeps scores of wide rows, and sums over a hub, within float16.
_SCALE = 0.01
_WEIGHTED = {"x": "NHD", "weight": "EH"}
_DROPPED: dict[str, Any] = {"dropout": 0.3, "seed": 7}

# Operators by name: those that no table has, and what edges bring: weights, scores, features and dropout.
UNTIMED = by_name(
    operator("weighted-heads", "aggregate", _WEIGHTED),
    *(
        operator(f"weighted-{reduce}", "aggregate", _WEIGHTED, reduce=reduce)
        for reduce in ("mean", "max", "min")
    ),
    operator("scaled-sum", "aggregate", {"x": "NF", "src_scale": "N", "dst_scale": "N"}),
    operator("sddmm", "sddmm", {"dst": "NHD", "src": "NHD"}),
    *(
        operator(f"fusedmm-{kernel}", "fusedmm", {"dst": "NF", "src": "NF"}, kernel=kernel, scale=_SCALE)
        for kernel in ("sigmoid", "tdist", "dot")
    ),
    operator("edge-softmax", "edge_softmax", {"scores": "EH"}),
    operator("gat-edges", "gat", {**GAT, "edge_score": "EH"}, **_DROPPED),
    operator("gatv2-edges", "gatv2", {**GATV2, "edge": "EHD"}, **_DROPPED),
    operator("attention-edges", "attention", {**ATTENTION, "edge": "EC", "edge_weight": "FC"}, **_DROPPED),
)
CHECKED = OPERATORS | UNTIMED
