"""DGL's message passing."""

import importlib.util
import os
import sys
import types
from typing import Any

from torch import Tensor

from onehop.bench.cases import Case, Workload
from onehop.bench.peers.base import Forward, Peer


class DglPeer(Peer):
    """``dgl.ops`` for sums and means; ``update_all`` for max and min, which fills empty rows with 0."""

    name = "dgl"
    needs = ("dgl",)

    def available(self) -> str | None:
        """Return None if DGL can be imported, with some help, else the reason why not."""
        help_import()
        return super().available()

    def forward(self, case: Case) -> Forward:
        """Make the graph, with 32-bit numbers and all its formats."""
        import dgl.function
        import dgl.ops

        graph = case.workload.once("dgl", lambda: _graph(case.workload))
        weight, reduce = case.weight, case.reduce
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


def _graph(workload: Workload) -> Any:
    import dgl

    source, target = workload.edge_index
    graph = dgl.graph((source, target), num_nodes=workload.num_nodes).int()
    graph.create_formats_()
    return graph


def help_import() -> None:
    """Lets DGL 2.1.0 be imported beside a torch newer than 2.2, without its sampler.

    Its compiled sampler, ``dgl.graphbolt``, was built for torch 2.0 to 2.2 and fails to load; aggregation
    does not need it. Naming the backend keeps DGL from writing a configuration file.
    """
    os.environ.setdefault("DGLBACKEND", "pytorch")
    if "dgl" not in sys.modules and importlib.util.find_spec("dgl") is not None:
        sys.modules.setdefault("dgl.graphbolt", types.ModuleType("dgl.graphbolt"))
