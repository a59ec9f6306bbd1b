"""DGL's operators on a GPU, as its layers call them."""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn.functional import leaky_relu

from benchmarks.gpu.operators import Inputs
from onehop.bench.peers.base import import_reason
from onehop.bench.peers.dgl import graph_of as graph_of, help_import, reduction

Call = Callable[[Inputs], Tensor]
_SLOPE = 0.2
# By the names of benchmarks.gpu.operators.OPERATORS, all of which but variants DGL has.
OPERATORS = ("sum", "weighted-sum", "mean", "max", "min", "gat", "gatv2", "attention")


def missing() -> str | None:
    """Why DGL cannot be measured here; None if it can."""
    help_import()
    return import_reason("dgl")


def call_of(operator: str, graph: Any) -> Call:
    """One of :data:`OPERATORS`.

    What DGL cannot do with some operands, it says when called: as a RuntimeError.
    """
    import dgl
    import dgl.ops

    def weighed(x: Tensor, scores: Tensor) -> Tensor:
        weights = dgl.ops.edge_softmax(graph, scores)
        out: Tensor = dgl.ops.u_mul_e_sum(graph, x, weights.unsqueeze(-1))
        return out

    def gat(inputs: Inputs) -> Tensor:
        scores = dgl.ops.u_add_v(graph, inputs["score_src"], inputs["score_dst"])
        return weighed(inputs["x"], leaky_relu(scores, _SLOPE))

    def gatv2(inputs: Inputs) -> Tensor:
        edges = leaky_relu(dgl.ops.u_add_v(graph, inputs["x_src"], inputs["x_dst"]), _SLOPE)
        return weighed(inputs["x_src"], (edges * inputs["att"]).sum(-1))

    def attention(inputs: Inputs) -> Tensor:
        scores = dgl.ops.u_dot_v(graph, inputs["key"], inputs["query"]).squeeze(-1)
        return weighed(inputs["value"], scores * inputs["query"].size(-1) ** -0.5)

    def reduced(inputs: Inputs) -> Tensor:
        return reduction(graph, inputs.get("weight"), operator.removeprefix("weighted-"))(inputs["x"])

    function = {"gat": gat, "gatv2": gatv2, "attention": attention}.get(operator, reduced)

    def call(inputs: Inputs) -> Tensor:
        try:
            return function(inputs)
        except dgl.DGLError as error:
            raise RuntimeError(str(error)) from error

    return call
