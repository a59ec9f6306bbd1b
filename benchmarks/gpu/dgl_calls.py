"""DGL's operators on a GPU, as its layers call them."""

import functools
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn.functional import leaky_relu

from benchmarks.gpu.operators import Inputs
from onehop.bench.peers.base import import_reason
from onehop.bench.peers.dgl import help_import

Call = Callable[[Inputs], Tensor]
_SLOPE = 0.2


def missing() -> str | None:
    """Why DGL cannot be measured here; None if it can."""
    help_import()
    return import_reason("dgl")


def graph_of(edge_index: Tensor, nodes: int) -> Any:
    """A graph with 32-bit numbers and all its formats, on the device of the edges."""
    import dgl

    graph = dgl.graph((edge_index[0], edge_index[1]), num_nodes=nodes).int()
    graph.create_formats_()
    return graph


def call_of(operator: str, graph: Any) -> Call:
    """One of :data:`OPERATORS`.

    What DGL cannot do with some operands, it says when called: as a RuntimeError.
    """
    import dgl

    function = OPERATORS[operator]

    @functools.wraps(function)
    def call(inputs: Inputs) -> Tensor:
        try:
            return function(graph, inputs)
        except dgl.DGLError as error:
            raise RuntimeError(str(error)) from error

    return call


def _sum(graph: Any, inputs: Inputs) -> Tensor:
    import dgl.ops

    out: Tensor = dgl.ops.copy_u_sum(graph, inputs["x"])
    return out


def _weighted_sum(graph: Any, inputs: Inputs) -> Tensor:
    import dgl.ops

    out: Tensor = dgl.ops.u_mul_e_sum(graph, inputs["x"], inputs["weight"].unsqueeze(-1))
    return out


def _mean(graph: Any, inputs: Inputs) -> Tensor:
    import dgl.ops

    out: Tensor = dgl.ops.copy_u_mean(graph, inputs["x"])
    return out


def _extremum(graph: Any, inputs: Inputs, reduce: str) -> Tensor:
    """By ``update_all``, which fills rows without edges with 0."""
    import dgl.function

    reducer = {"max": dgl.function.max, "min": dgl.function.min}[reduce]
    with graph.local_scope():
        graph.srcdata["x"] = inputs["x"]
        graph.update_all(dgl.function.copy_u("x", "m"), reducer("m", "out"))
        out: Tensor = graph.dstdata["out"]
        return out


def _gat(graph: Any, inputs: Inputs) -> Tensor:
    import dgl.ops

    scores = dgl.ops.u_add_v(graph, inputs["score_src"], inputs["score_dst"])
    return _weighed(graph, inputs["x"], leaky_relu(scores, _SLOPE))


def _gatv2(graph: Any, inputs: Inputs) -> Tensor:
    import dgl.ops

    edges = leaky_relu(dgl.ops.u_add_v(graph, inputs["x_src"], inputs["x_dst"]), _SLOPE)
    return _weighed(graph, inputs["x_src"], (edges * inputs["att"]).sum(-1))


def _attention(graph: Any, inputs: Inputs) -> Tensor:
    import dgl.ops

    scores = dgl.ops.u_dot_v(graph, inputs["key"], inputs["query"]).squeeze(-1)
    return _weighed(graph, inputs["value"], scores * inputs["query"].size(-1) ** -0.5)


def _weighed(graph: Any, x: Tensor, scores: Tensor) -> Tensor:
    import dgl.ops

    weights = dgl.ops.edge_softmax(graph, scores)
    out: Tensor = dgl.ops.u_mul_e_sum(graph, x, weights.unsqueeze(-1))
    return out


# By the names of benchmarks.gpu.operators.OPERATORS, all of which but variants DGL has.
OPERATORS: dict[str, Callable[[Any, Inputs], Tensor]] = {
    "sum": _sum,
    "weighted-sum": _weighted_sum,
    "mean": _mean,
    "max": functools.partial(_extremum, reduce="max"),
    "min": functools.partial(_extremum, reduce="min"),
    "gat": _gat,
    "gatv2": _gatv2,
    "attention": _attention,
}
