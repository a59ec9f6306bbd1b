"""The layers that tests of the patch run: how each is made, and what it takes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch_geometric import nn as gnn
from torch_geometric.nn.conv import WLConvContinuous
from torch_geometric.nn.models import LabelPropagation
from torch_geometric.nn.models.linkx import SparseLinear

NODES = 20
WIDTH = 6


@dataclass
class Case:
    make: Callable[[], torch.nn.Module]
    weighted: bool = False
    call: dict[str, Any] = field(default_factory=dict)
    features: int = WIDTH


def mlp() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, 5), torch.nn.ReLU(), torch.nn.Linear(5, 4))


class Plain(gnn.MessagePassing):
    """A user's layer with the default message."""

    def __init__(self, aggr: str, flow: str = "source_to_target") -> None:
        super().__init__(aggr=aggr, flow=flow)
        self.lin = torch.nn.Linear(WIDTH, 4)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=self.lin(x))


class Inherits(gnn.GCNConv):
    """A user's subclass that inherits the message."""


class InheritsGAT(gnn.GATConv):
    """Likewise, with weights for edges."""


CASES = {
    "GCN": Case(lambda: gnn.GCNConv(WIDTH, 4)),
    "GCN weighted": Case(lambda: gnn.GCNConv(WIDTH, 4), weighted=True),
    "GCN improved": Case(lambda: gnn.GCNConv(WIDTH, 4, improved=True)),
    "GCN improved weighted": Case(lambda: gnn.GCNConv(WIDTH, 4, improved=True), weighted=True),
    "GCN without loops": Case(lambda: gnn.GCNConv(WIDTH, 4, add_self_loops=False)),
    "GCN without loops weighted": Case(lambda: gnn.GCNConv(WIDTH, 4, add_self_loops=False), weighted=True),
    "GCN unnormalised": Case(lambda: gnn.GCNConv(WIDTH, 4, normalize=False)),
    "GCN cached": Case(lambda: gnn.GCNConv(WIDTH, 4, cached=True)),
    "GCN backwards": Case(lambda: gnn.GCNConv(WIDTH, 4, flow="target_to_source")),
    "GCN backwards weighted": Case(lambda: gnn.GCNConv(WIDTH, 4, flow="target_to_source"), weighted=True),
    "GCN mean": Case(lambda: gnn.GCNConv(WIDTH, 4, aggr="mean")),
    "GCN max": Case(lambda: gnn.GCNConv(WIDTH, 4, aggr="max")),
    "GCN subclass": Case(lambda: Inherits(WIDTH, 4)),
    "SG": Case(lambda: gnn.SGConv(WIDTH, 4, K=3)),
    "GCN wider": Case(lambda: gnn.GCNConv(WIDTH, 30)),
    "SG backwards": Case(lambda: gnn.SGConv(WIDTH, 4, K=2, flow="target_to_source")),
    "SG wider": Case(lambda: gnn.SGConv(WIDTH, 30, K=2)),
    "SG weighted": Case(lambda: gnn.SGConv(WIDTH, 4, K=2), weighted=True),
    "SSG": Case(lambda: gnn.SSGConv(WIDTH, 4, alpha=0.1, K=3)),
    "APPNP": Case(lambda: gnn.APPNP(K=3, alpha=0.1)),
    "APPNP backwards": Case(lambda: gnn.APPNP(K=2, alpha=0.1, flow="target_to_source")),
    "APPNP dropout": Case(lambda: gnn.APPNP(K=3, alpha=0.1, dropout=0.4)),
    "TAG": Case(lambda: gnn.TAGConv(WIDTH, 4, K=2)),
    "TAG backwards": Case(lambda: gnn.TAGConv(WIDTH, 4, flow="target_to_source")),
    "TAG wider": Case(lambda: gnn.TAGConv(WIDTH, 30)),
    "TAG unnormalised": Case(lambda: gnn.TAGConv(WIDTH, 4, K=2, normalize=False)),
    "LG": Case(lambda: gnn.LGConv()),
    "GCN2": Case(lambda: gnn.GCN2Conv(WIDTH, alpha=0.2), call={"x_0": True}),
    "ARMA": Case(lambda: gnn.ARMAConv(WIDTH, 4, num_stacks=2, num_layers=2)),
    "ARMA one stack": Case(lambda: gnn.ARMAConv(WIDTH, 4)),
    "MixHop": Case(lambda: gnn.MixHopConv(WIDTH, 4)),
    "PDN": Case(lambda: gnn.PDNConv(WIDTH, 4, edge_dim=3, hidden_channels=5), call={"edge_attr": True}),
    "ClusterGCN": Case(lambda: gnn.ClusterGCNConv(WIDTH, 4, diag_lambda=0.1)),
    "Cheb": Case(lambda: gnn.ChebConv(WIDTH, 4, K=3)),
    "LE": Case(lambda: gnn.LEConv(WIDTH, 4)),
    "LE weighted": Case(lambda: gnn.LEConv(WIDTH, 4), weighted=True),
    "LE backwards": Case(lambda: gnn.LEConv(WIDTH, 4, flow="target_to_source")),
    "LE mean": Case(lambda: gnn.LEConv(WIDTH, 4, aggr="mean"), weighted=True),
    "GatedGraph": Case(lambda: gnn.GatedGraphConv(WIDTH, num_layers=2), weighted=True),
    "WLContinuous": Case(lambda: WLConvContinuous(), weighted=True),
    "LabelPropagation": Case(lambda: _Labels(), call={}),
    "SparseLinear": Case(lambda: _Sparse(), call={}),
    "MF": Case(lambda: gnn.MFConv(WIDTH, 4)),
    "Signed": Case(lambda: _Signed()),
    "GIN": Case(lambda: gnn.GINConv(mlp(), train_eps=True)),
    "GIN max": Case(lambda: gnn.GINConv(mlp(), aggr="max")),
    "GIN backwards": Case(lambda: gnn.GINConv(mlp(), flow="target_to_source")),
    "Simple self loop": Case(lambda: gnn.SimpleConv(combine_root="self_loop")),
    "GAT": Case(lambda: gnn.GATConv(WIDTH, 4, heads=3)),
    "GAT one head": Case(lambda: gnn.GATConv(WIDTH, 4)),
    "GAT mean of heads": Case(lambda: gnn.GATConv(WIDTH, 4, heads=3, concat=False)),
    "GAT residual": Case(lambda: gnn.GATConv(WIDTH, 4, heads=2, residual=True, bias=False)),
    "GAT without loops": Case(lambda: gnn.GATConv(WIDTH, 4, heads=2, add_self_loops=False)),
    "GAT backwards": Case(lambda: gnn.GATConv(WIDTH, 4, heads=2, flow="target_to_source")),
    "GAT dropout": Case(lambda: gnn.GATConv(WIDTH, 4, heads=3, dropout=0.4)),
    "GAT all dropped": Case(lambda: gnn.GATConv(WIDTH, 4, heads=3, dropout=1.0)),
    "GAT edges": Case(lambda: gnn.GATConv(WIDTH, 4, heads=3, edge_dim=3), call={"edge_attr": True}),
    "GAT edges dropout": Case(
        lambda: gnn.GATConv(WIDTH, 4, heads=3, edge_dim=3, fill_value=0.5, dropout=0.4),
        call={"edge_attr": True},
    ),
    **{f"GAT {a}": Case(lambda a=a: gnn.GATConv(WIDTH, 4, heads=2, aggr=a)) for a in ("mean", "max")},
    "GAT subclass": Case(lambda: InheritsGAT(WIDTH, 4, heads=2)),
    "GATv2": Case(lambda: gnn.GATv2Conv(WIDTH, 4, heads=3)),
    "GATv2 shared": Case(lambda: gnn.GATv2Conv(WIDTH, 4, heads=3, share_weights=True, concat=False)),
    "GATv2 backwards": Case(lambda: gnn.GATv2Conv(WIDTH, 4, heads=2, flow="target_to_source")),
    "GATv2 dropout": Case(lambda: gnn.GATv2Conv(WIDTH, 4, heads=3, dropout=0.4, residual=True)),
    "GATv2 edges": Case(lambda: gnn.GATv2Conv(WIDTH, 4, heads=3, edge_dim=3), call={"edge_attr": True}),
    "GATv2 edges dropout": Case(
        lambda: gnn.GATv2Conv(WIDTH, 4, heads=3, edge_dim=3, dropout=0.4), call={"edge_attr": True}
    ),
    "GATv2 max": Case(lambda: gnn.GATv2Conv(WIDTH, 4, heads=2, aggr="max")),
    "Transformer": Case(lambda: gnn.TransformerConv(WIDTH, 4, heads=3)),
    "Transformer beta": Case(lambda: gnn.TransformerConv(WIDTH, 4, heads=3, beta=True, concat=False)),
    "Transformer backwards": Case(lambda: gnn.TransformerConv(WIDTH, 4, heads=2, flow="target_to_source")),
    "Transformer dropout": Case(lambda: gnn.TransformerConv(WIDTH, 4, heads=3, dropout=0.4)),
    "Transformer edges": Case(
        lambda: gnn.TransformerConv(WIDTH, 4, heads=3, edge_dim=3, dropout=0.4), call={"edge_attr": True}
    ),
    "AGNN": Case(lambda: gnn.AGNNConv()),
    "AGNN backwards": Case(lambda: gnn.AGNNConv(flow="target_to_source")),
    "AGNN fixed": Case(lambda: gnn.AGNNConv(requires_grad=False, add_self_loops=False)),
    "SuperGAT MX": Case(lambda: gnn.SuperGATConv(WIDTH, 4, heads=3, dropout=0.4)),
    "SuperGAT SD": Case(lambda: gnn.SuperGATConv(WIDTH, 4, heads=3, attention_type="SD", concat=False)),
    "SuperGAT MX backwards": Case(lambda: gnn.SuperGATConv(WIDTH, 4, heads=3, flow="target_to_source")),
    "SuperGAT SD backwards": Case(
        lambda: gnn.SuperGATConv(WIDTH, 4, heads=3, attention_type="SD", flow="target_to_source")
    ),
    "FA": Case(lambda: gnn.FAConv(WIDTH, dropout=0.4), call={"x_0": True}),
    "FA backwards": Case(lambda: gnn.FAConv(WIDTH, flow="target_to_source"), call={"x_0": True}),
    "FA mean": Case(lambda: gnn.FAConv(WIDTH, aggr="mean", eps=0.0), call={"x_0": True}),
    **{f"SAGE {a}": Case(lambda a=a: gnn.SAGEConv(WIDTH, 4, aggr=a)) for a in ("mean", "sum", "max", "min")},
    "SAGE backwards": Case(lambda: gnn.SAGEConv(WIDTH, 4, flow="target_to_source")),
    "SAGE wider": Case(lambda: gnn.SAGEConv(WIDTH, 30)),
    "SAGE project": Case(lambda: gnn.SAGEConv(WIDTH, 4, project=True, normalize=True)),
    **{
        f"Graph {a}": Case(lambda a=a: gnn.GraphConv(WIDTH, 4, aggr=a), weighted=True)
        for a in ("add", "mean", "max", "min")
    },
    "Graph backwards": Case(lambda: gnn.GraphConv(WIDTH, 4, aggr="max", flow="target_to_source")),
    "Graph wider": Case(lambda: gnn.GraphConv(WIDTH, 30)),
    "Graph unweighted": Case(lambda: gnn.GraphConv(WIDTH, 4)),
    **{
        f"Simple {a}": Case(lambda a=a: gnn.SimpleConv(aggr=a), weighted=True) for a in ("sum", "mean", "max")
    },
    **{f"Plain {a}": Case(lambda a=a: Plain(a)) for a in ("sum", "mean", "max", "min")},
    "Plain backwards": Case(lambda: Plain("max", flow="target_to_source")),
}


class _Labels(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = LabelPropagation(num_layers=2, alpha=0.9)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.inner(x, edge_index, post_step=lambda y: y) + x.sum()


class _Sparse(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = SparseLinear(NODES, 4)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.inner(edge_index) + x.sum()


class _Signed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = gnn.SignedConv(WIDTH, 4, first_aggr=True)
        self.second = gnn.SignedConv(4, 3, first_aggr=False)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        positive, negative = edge_index[:, :50], edge_index[:, 50:]
        return self.second(self.first(x, positive, negative), positive, negative)


def case_call(case: Case, edge_index: Tensor) -> Callable[..., Tensor]:
    def call(
        model: torch.nn.Module, x: Tensor, edge_weight: Tensor | None = None, **others: Tensor
    ) -> Tensor:
        operands: list[Tensor] = [x]
        if "x_0" in others:
            operands.append(others["x_0"])
        operands.append(edge_index)
        if edge_weight is not None:
            operands.append(edge_weight)
        if "edge_attr" in others:
            operands.append(others["edge_attr"])
        return model(*operands)

    return call


def operands_of(case: Case, dtype: torch.dtype) -> dict[str, Tensor]:
    torch.manual_seed(1)
    operands = {"x": torch.randn(NODES, WIDTH, dtype=torch.float64)}
    if case.weighted:
        operands["edge_weight"] = torch.rand(90, dtype=torch.float64) + 0.1
    if "x_0" in case.call:
        operands["x_0"] = torch.randn(NODES, WIDTH, dtype=torch.float64)
    if "edge_attr" in case.call:
        operands["edge_attr"] = torch.randn(90, 3, dtype=torch.float64)
    return {name: tensor.to(dtype) for name, tensor in operands.items()}


# Layers whose messages run in blocks, or compiled.

DIM = 3
DEGREES = torch.tensor([3, 2, 4, 5, 1, 2, 1, 0, 2])
SCALERS = ["identity", "amplification", "attenuation", "linear", "inverse_linear"]


def rowwise_mlp(width: int, out: int = 4) -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Linear(width, out),
        torch.nn.ReLU(inplace=True),
        torch.nn.LayerNorm(out),
        torch.nn.Linear(out, out),
    )


def pna(aggregators: list[str], **kwargs: object) -> torch.nn.Module:
    return gnn.PNAConv(WIDTH, 4, aggregators, SCALERS, DEGREES, **kwargs)


class Mine(gnn.MessagePassing):
    """A user's layer, with several operands and an update of its own."""

    def __init__(self, aggr: str = "mean", flow: str = "source_to_target") -> None:
        super().__init__(aggr=aggr, flow=flow)
        self.lin = torch.nn.Linear(2 * WIDTH + DIM, 5)
        self.table = torch.nn.Embedding(NODES, 5)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x, h=x.tanh(), edge_attr=edge_attr, slope=0.1, bias=x[0, :5])

    def message(
        self,
        x_i: Tensor,
        x_j: Tensor,
        h_j: Tensor,
        edge_attr: Tensor,
        slope: float,
        bias: Tensor,
        edge_index_j: Tensor,
        size_i: int,
    ) -> Tensor:
        out = self.lin(torch.cat([x_i - x_j, h_j, edge_attr], dim=-1))
        out[:, 0] = 2 * edge_attr[:, 1]
        out += torch.zeros(out.size(0), 1)
        gate = torch.where(edge_attr[:, :1] > 0, edge_attr[:, :1], slope * x_i[:, 1:2] / size_i)
        return out * gate.expand(-1, 5) + bias + self.table(edge_index_j)

    def update(self, inputs: Tensor, h: Tensor) -> Tensor:
        return inputs + h[:, :5]


IN_BLOCKS = {
    "GINE": Case(lambda: gnn.GINEConv(rowwise_mlp(WIDTH), edge_dim=DIM), call={"edge_attr": True}),
    "GEN softmax": Case(
        lambda: gnn.GENConv(WIDTH, 4, norm="layer", edge_dim=DIM, learn_t=True), call={"edge_attr": True}
    ),
    "GEN semi": Case(lambda: gnn.GENConv(WIDTH, 4, norm="layer", aggr="softmax_sg")),
    "GEN power": Case(lambda: gnn.GENConv(WIDTH, 4, norm="layer", aggr="powermean", learn_p=True)),
    "CG": Case(lambda: gnn.CGConv(WIDTH, dim=DIM), call={"edge_attr": True}),
    "ResGated": Case(lambda: gnn.ResGatedGraphConv(WIDTH, 4)),
    "ResGated attr": Case(lambda: gnn.ResGatedGraphConv(WIDTH, 4, edge_dim=DIM), call={"edge_attr": True}),
    "Edge": Case(lambda: gnn.EdgeConv(rowwise_mlp(2 * WIDTH))),
    "Edge norm in eval": Case(lambda: gnn.EdgeConv(gnn.MLP([2 * WIDTH, 5, 4])).eval()),
    "PNA": Case(lambda: pna(["mean", "min", "max", "std"])),
    "PNA towers": Case(
        lambda: pna(["sum", "var"], edge_dim=DIM, towers=2, divide_input=True), call={"edge_attr": True}
    ),
    "NN": Case(lambda: gnn.NNConv(WIDTH, 4, torch.nn.Linear(DIM, WIDTH * 4)), call={"edge_attr": True}),
    "GMM": Case(lambda: gnn.GMMConv(WIDTH, 4, dim=DIM, kernel_size=2), call={"edge_attr": True}),
    "GMM separate": Case(
        lambda: gnn.GMMConv(WIDTH, 4, dim=DIM, kernel_size=2, separate_gaussians=True),
        call={"edge_attr": True},
    ),
    "FiLM": Case(lambda: gnn.FiLMConv(WIDTH, 4)),
    "FeaSt": Case(lambda: gnn.FeaStConv(WIDTH, 4, heads=2)),
    "General": Case(lambda: gnn.GeneralConv(WIDTH, 4, in_edge_channels=DIM), call={"edge_attr": True}),
    **{
        f"Mine {a}": Case(lambda a=a: Mine(a), call={"edge_attr": True})
        for a in ("sum", "mean", "max", "min", "std")
    },
    "Mine backwards": Case(lambda: Mine("max", flow="target_to_source"), call={"edge_attr": True}),
}
LAYERS = CASES | IN_BLOCKS
