"""Run by test_layers: layers that mix nodes, on this process's part, beside PyG with the whole graph."""

import warnings
from collections.abc import Callable

import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch.utils.checkpoint import checkpoint
from torch_geometric.nn import aggr, attention, models

import onehop
from onehop import distributed
from tests.distributed.cases import random
from tests.distributed.worker import Using, difference, gradients, join, report, seeded, sentence, shared

torch.set_default_dtype(torch.float64)
# PyG warns of its own LSTM and of sorted indices that it would rather have.
warnings.filterwarnings("ignore", category=UserWarning)
NODES, C, EXAMPLES = 90, 6, 3
held_pool = pyg.global_mean_pool  # as models hold it from before the patch


class Between(torch.nn.Module):
    """A normalisation between two convs, as anyone writes it."""

    def __init__(self, norm: torch.nn.Module, batched: bool = False) -> None:
        super().__init__()
        self.first, self.norm, self.second = pyg.SAGEConv(C, C), norm, pyg.GCNConv(C, C)
        self.batched = batched

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        x = self.first(x, edge_index)
        return self.second(self.norm(x, batch) if self.batched else self.norm(x), edge_index)


def of_some(conv: torch.nn.Module, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
    """A normalisation of some of the rows, by function."""
    x = conv(x, edge_index)
    some = x[:, 0] > 0
    return x.masked_scatter(some[:, None], F.batch_norm(x[some], None, None, training=True))


def propagated(conv: torch.nn.Module, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
    """Label propagation, which has no parameters, and a conv."""
    smooth = models.LabelPropagation(3, 0.5)(x.detach().sigmoid(), edge_index)
    return conv(x + smooth, edge_index)


def unpatched(inner: torch.nn.Module, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
    """A layer that PyG runs on its own."""
    with onehop.patch() as patch, patch.paused():
        return inner(x, edge_index)


class ReadOut(torch.nn.Module):
    """A read-out of a single graph."""

    def __init__(self, pool: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.pool = pool

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.pool(x, None)


NORMS: dict[str, Callable[[], torch.nn.Module]] = {
    "torch.nn.BatchNorm1d": lambda: torch.nn.BatchNorm1d(C),
    "BatchNorm1d, cumulative": lambda: torch.nn.BatchNorm1d(C, momentum=None),
    "BatchNorm1d, no running statistics": lambda: torch.nn.BatchNorm1d(C, track_running_stats=False),
    "BatchNorm": lambda: pyg.BatchNorm(C),
    "BatchNorm, single elements": lambda: pyg.BatchNorm(C, allow_single_element=True),
    "DiffGroupNorm": lambda: pyg.DiffGroupNorm(C, 3),
    "LayerNorm": lambda: pyg.LayerNorm(C),
    "LayerNorm by node": lambda: pyg.LayerNorm(C, mode="node"),
    "GraphNorm": lambda: pyg.GraphNorm(C),
    "GraphSizeNorm": lambda: pyg.GraphSizeNorm(),
    "PairNorm": lambda: pyg.PairNorm(),
    "PairNorm, individually": lambda: pyg.PairNorm(scale_individually=True),
    "MeanSubtractionNorm": lambda: pyg.MeanSubtractionNorm(),
    "InstanceNorm": lambda: pyg.InstanceNorm(C, affine=True, track_running_stats=True),
    "InstanceNorm, no running statistics": lambda: pyg.InstanceNorm(C),
}
BATCHED = [name for name in NORMS if "Batch" not in name and name != "DiffGroupNorm"]
MODELS: dict[str, Callable[[], torch.nn.Module]] = {
    **{
        f"GCN, {norm}": lambda norm=norm: models.GCN(C, C, 2, norm=norm)
        for norm in ("layer", "batch", "graph", "pair", "instance")
    },
    "PMLP": lambda: models.PMLP(C, C, C, 2, dropout=0.0).eval(),
    "ClusterGCNConv": lambda: pyg.ClusterGCNConv(C, C, diag_lambda=1.0),
    "MFConv": lambda: pyg.MFConv(C, C),
    # A reversible layer frees the memory of what it is given.
    "GroupAddRev": lambda: Using(
        lambda inner, x, edges: inner(x.clone(), edges),
        pyg.GroupAddRev(pyg.SAGEConv(C // 2, C // 2), num_groups=2),
    ),
    "JumpingKnowledge": lambda: models.GraphSAGE(C, C, 2, jk="lstm"),
    # Before its global attention is turned on.
    "Polynormer": lambda: Using(
        lambda inner, x, edges: inner(x, edges, torch.zeros(len(x), dtype=torch.int64)),
        models.Polynormer(C, C, C, 2, post_bn=True, in_dropout=0, dropout=0),
    ),
    "WLConvContinuous": lambda: pyg.WLConvContinuous(),
    "SAGEConv after LabelPropagation": lambda: Using(propagated, pyg.SAGEConv(C, C)),
    "EdgeConv with BatchNorm1d": lambda: pyg.EdgeConv(
        torch.nn.Sequential(torch.nn.Linear(2 * C, C), torch.nn.BatchNorm1d(C), torch.nn.ReLU())
    ),
    "some rows": lambda: Using(of_some, pyg.SAGEConv(C, C)),
    # A block that runs a second time in the backward pass.
    "checkpointed": lambda: Using(
        lambda block, x, edges: checkpoint(block, x, edges, None, use_reentrant=False),
        Between(torch.nn.BatchNorm1d(C, track_running_stats=False)),
    ),
}
LAYERS: dict[str, Callable[[], torch.nn.Module]] = {
    "ChebConv": lambda: pyg.ChebConv(C, C, 3),
    "DirGNNConv": lambda: pyg.DirGNNConv(pyg.SAGEConv(C, C)),
    "FeaStConv": lambda: pyg.FeaStConv(C, C),
    "HypergraphConv": lambda: pyg.HypergraphConv(C, C),
    "GraphUNet": lambda: models.GraphUNet(C, C, C, 2),
    "TopKPooling": lambda: pyg.TopKPooling(C),
    "SAGPooling": lambda: pyg.SAGPooling(C),
    "ASAPooling": lambda: pyg.ASAPooling(C),
    "EdgePooling": lambda: pyg.EdgePooling(C),
    "ClusterPooling": lambda: pyg.ClusterPooling(C),
    "PANPooling": lambda: pyg.PANPooling(C),
    "DeepGraphInfomax": lambda: models.DeepGraphInfomax(
        C, pyg.GCNConv(C, C), lambda z, *_: z.mean(0), lambda features, edges: (features.flip(0), edges)
    ),
    "GCNConv": lambda: Using(unpatched, pyg.GCNConv(C, C)),
    "MultiheadAttention": lambda: pyg.GPSConv(C, pyg.GCNConv(C, C), heads=2),
    "SGFormerAttention, in a model": lambda: models.SGFormer(C, C, C),
}
WITH_BATCH = ("EdgePooling", "ClusterPooling", "SGFormerAttention, in a model")
READ_OUTS: dict[str, Callable[[], Callable[..., torch.Tensor]]] = {
    "global_add_pool": lambda: pyg.global_add_pool,
    "global_mean_pool": lambda: held_pool,
    "global_max_pool": lambda: pyg.global_max_pool,
    "SumAggregation": aggr.SumAggregation,
    "MedianAggregation": aggr.MedianAggregation,
    "SoftmaxAggregation": aggr.SoftmaxAggregation,
    "MultiAggregation": lambda: aggr.MultiAggregation(["mean", "max"]),
    "Set2Set": lambda: aggr.Set2Set(C, 2),
    "SortAggregation": lambda: aggr.SortAggregation(3),
    "AttentionalAggregation": lambda: aggr.AttentionalAggregation(torch.nn.Linear(C, 1)),
}
ATTENTIONS: dict[str, Callable[[], torch.nn.Module]] = {
    "PerformerAttention": lambda: attention.PerformerAttention(C, 2),
    "SGFormerAttention": lambda: attention.SGFormerAttention(C, 2),
    "PolynormerAttention": lambda: attention.PolynormerAttention(C, 2),
}

rank, ranks = join()
chance = torch.Generator().manual_seed(0)
edge_index = torch.randint(0, NODES, (2, 500), generator=chance)
owner = torch.randint(0, ranks, (NODES,), generator=chance)
if ranks > 2:  # the last one owns a single node
    owner[owner == ranks - 1] = 0
    owner[7] = ranks - 1
in_use = [distributed.DistributedGraph.from_edge_index(edge_index, NODES, owner=owner)]
mine = in_use[0].owned_nodes
x, target = 3 + random(NODES, C), random(NODES, C, seed=4)
batch = torch.randint(0, EXAMPLES, (NODES,), generator=chance)


def step(model: torch.nn.Module, rows: slice | torch.Tensor, edges: torch.Tensor, together: bool) -> dict:
    """The output, all gradients and the buffers after a step of training."""
    features = x[rows].clone().requires_grad_()
    out = model(features, edges, batch[rows])
    seen = out.detach().clone()  # a reversible layer frees it in its backward pass
    ((out - target[rows]) ** 3).sum().div(NODES).backward()
    if together:
        distributed.add_gradients(model.parameters())
    return {
        "out": seen,
        "x": features.grad,
        **gradients(model),
        **{name: each for name, each in model.named_buffers() if each.is_floating_point()},
    }


def error(make: Callable[[], torch.nn.Module], expected: dict) -> float:
    """The largest difference to what PyG alone gave with the whole graph."""
    part = distributed.convert(seeded(make), in_use[0])
    found = step(part, mine, in_use[0].edge_index, together=True)
    assert found.keys() == expected.keys()
    return difference(found, expected, lambda name, whole: whole[mine] if name in ("out", "x") else whole)


def main() -> None:
    makes = {
        **{name: lambda make=make: Between(make()) for name, make in NORMS.items()},
        **{f"{name}, batches": lambda name=name: Between(NORMS[name](), True) for name in BATCHED},
        **{
            name: lambda make=make: Using(lambda inner, x, edges, batch: inner(x, edges), make())
            for name, make in MODELS.items()
        },
    }
    expected = shared(
        {
            name: lambda make=make: step(seeded(make), slice(None), edge_index, together=False)
            for name, make in makes.items()
        }
    )
    with onehop.patch():
        errors = {name: error(make, expected[name]) for name, make in makes.items()}
        in_model: dict[str, Callable[[], object]] = {}
        for name, make in LAYERS.items():
            more = [batch[mine]] if name in WITH_BATCH else []
            model = distributed.convert(make(), in_use[0])
            in_model[name] = lambda model=model, more=more: model(x[mine], in_use[0].edge_index, *more)
        for name, make in READ_OUTS.items():
            inside = distributed.convert(ReadOut(make()), in_use[0])
            in_model[name] = lambda make=make: make()(x[mine], batch[mine])
            in_model[f"{name}, one graph"] = lambda inside=inside: inside(x[mine])
        full, chosen = torch.ones(1, len(mine), dtype=torch.bool), torch.ones(len(mine), dtype=torch.bool)
        for name, make in ATTENTIONS.items():
            in_model[name] = lambda make=make: make()(x[mine][None], full)
        ratio, rows = pyg.DiffGroupNorm.group_distance_ratio, x[mine]
        labels = models.RECT_L(C, C).get_semantic_labels
        correct = models.CorrectAndSmooth(2, 0.5, 2, 0.5).correct
        kinds = torch.zeros(NODES, dtype=torch.int64)
        in_model |= {
            "MemPooling": lambda: pyg.MemPooling(C, C, 2, 2)(x[mine], batch[mine]),
            "DiffGroupNorm.group_distance_ratio": lambda: ratio(x[mine], batch[mine]),
            "RECT_L.get_semantic_labels": lambda: labels(x[mine], batch[mine], chosen),
            "CorrectAndSmooth.correct": lambda: correct(x[mine], batch[mine], chosen, in_use[0].edge_index),
            "HeteroBatchNorm": lambda: pyg.HeteroBatchNorm(C, 2)(x[mine], kinds[mine]),
        }
        refusals = {name: sentence(call) for name, call in in_model.items()}
        calls = {
            "batch normalisation": lambda: torch.nn.BatchNorm1d(C)(x[:5]),
            "LayerNorm": lambda: pyg.LayerNorm(C)(rows),
            "dropout": lambda: torch.nn.Dropout(0.5)(rows),
            "global_add_pool": lambda: pyg.global_add_pool(rows, None),
            "DiffGroupNorm.group_distance_ratio": lambda: ratio(x[:5], batch[:5]),
        }
        unconverted = {name: sentence(call) for name, call in calls.items()}
        sizes = sentence(
            lambda: distributed.convert(pyg.GraphNorm(C), in_use[0])(x[mine], batch[mine], EXAMPLES + rank)
        )
        with distributed.alone():
            beside = {name: sentence(call) for name, call in calls.items()}
            whole_rows = [
                float((pyg.LayerNorm(C)(x) - by_hand(x)).abs().max()),
                float((pyg.global_mean_pool(x, None) - x.mean(0, keepdim=True)).abs().max()),
            ]
        # What layers outside do is their own business once the graph is gone.
        in_model.clear()
        in_use.clear()
        after = {name: sentence(call) for name, call in calls.items()}
        after["part"] = sentence(lambda: held_pool(x[mine], batch[mine]))
    narrow = {str(kind): narrow_error(kind) for kind in (torch.float32, torch.bfloat16)}
    # A sum that is written out, with a loss on every rank.
    leaf = x[mine].clone().requires_grad_()
    summed = distributed.sum_over_processes(leaf.sum(0))
    (summed.square().sum() / ranks).backward()
    written_out = [
        float((summed - x.sum(0)).abs().max()),
        float((leaf.grad - 2 * x.sum(0)).abs().max()) if len(mine) else 0.0,
    ]
    report(
        {
            "errors": errors,
            "refusals": refusals,
            "unconverted": unconverted,
            "sizes": sizes,
            "alone": beside,
            "whole rows": whole_rows,
            "after": after,
            "narrow": narrow,
            "written out": written_out,
        }
    )


def narrow_error(kind: torch.dtype) -> float:
    """Of batch normalisation with float32 parameters; it must keep the dtype of its input."""
    here = distributed.DistributedGraph.from_edge_index(edge_index, NODES, owner=owner)
    norm, exact = torch.nn.BatchNorm1d(C, dtype=torch.float32), torch.nn.BatchNorm1d(C)
    with onehop.patch():
        found = distributed.convert(norm, here)(x[mine].to(kind))
    assert found.dtype == kind
    return float((found - exact(x.to(kind).double())[mine]).abs().max())


def by_hand(rows: torch.Tensor) -> torch.Tensor:
    return (rows - rows.mean()) / (rows.std(unbiased=False) + 1e-5)


main()
