"""DGL's message passing."""

import importlib.util
import os
import sys
import types
from typing import Any

from torch import Tensor

from onehop.bench.cases import Case
from onehop.bench.peers.base import Forward, Peer


class DglPeer(Peer):
    """``dgl.ops`` for sums and means; ``update_all`` for max and min, which fills empty rows with 0."""

    name = "dgl"
    needs = ("dgl",)

    def available(self) -> str | None:
        """Return None if DGL can be imported (after a workaround), else the reason why not."""
        help_import()
        return super().available()

    def forward(self, case: Case) -> Forward:
        """Build the graph, with 32-bit numbers and in all its formats."""
        workload, weight, reduce = case.workload, case.weight, case.reduce
        graph = workload.once("dgl", lambda: graph_of(workload.edge_index, workload.num_nodes))
        return reduction(graph, weight, reduce)


def graph_of(edge_index: Tensor, num_nodes: int, *, loops: bool = False) -> Any:
    """Return a graph with 32-bit numbers and all its formats, on the device of ``edge_index`` [2, E]."""
    import dgl

    graph = dgl.graph((edge_index[0], edge_index[1]), num_nodes=num_nodes)
    graph = (dgl.add_self_loop(graph) if loops else graph).int()
    graph.create_formats_()
    return graph


def reduction(graph: Any, weight: Tensor | None, reduce: str) -> Forward:
    """Return a function of x [N, F]: its sum, weighted by [E] if given, or its "mean", "max" or "min"."""
    import dgl.function
    import dgl.ops

    reducers = {"max": dgl.function.max, "min": dgl.function.min}

    def forward(x: Tensor) -> Tensor:
        result: Tensor
        if weight is not None:
            result = dgl.ops.u_mul_e_sum(graph, x, weight.unsqueeze(-1))
        elif reduce == "sum":
            result = dgl.ops.copy_u_sum(graph, x)
        elif reduce == "mean":
            result = dgl.ops.copy_u_mean(graph, x)
        else:
            with graph.local_scope():
                graph.ndata["x"] = x
                graph.update_all(dgl.function.copy_u("x", "m"), reducers[reduce]("m", "out"))
                result = graph.ndata["out"]
        return result

    return forward


def help_import() -> None:
    """Make DGL 2.1.0 importable with a torch newer than 2.2, without its sampler.

    Its compiled sampler, ``dgl.graphbolt``, was built for torch 2.0 to 2.2 and fails to load; aggregation
    does not need it. Naming the backend keeps DGL from writing a configuration file.
    """
    os.environ.setdefault("DGLBACKEND", "pytorch")
    if "dgl" not in sys.modules and importlib.util.find_spec("dgl") is not None:
        sys.modules.setdefault("dgl.graphbolt", types.ModuleType("dgl.graphbolt"))
