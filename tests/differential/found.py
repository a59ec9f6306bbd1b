"""Programs that once differed: what the fuzzer found, made small, by what each of them shows."""

from tests.differential.calls import Call, Checkpoint, Transform
from tests.differential.gradients import Backward, Gradient, Train
from tests.differential.lives import Change
from tests.differential.program import Features, Graph, Layer, Model, Program
from tests.differential.writes import (
    CopyFeatures,
    WriteEdges,
    WriteFeatures,
    WriteOutput,
    WriteWeights,
)


def _of(layer: str, out: int = 3, **options: object) -> tuple[Model, ...]:
    return (Model(layers=(Layer(layer, tuple(options.items()), out),)),)


_WEIGHTED = (Graph(weight="plain"),)
_LEAF = (Features(grad="leaf"),)
_UNNORMALISED = _of("GCNConv", out=1, normalize=False, add_self_loops=False)

_BATCHED_LAYERS = (
    "GCNConv",
    "SAGEConv",
    "GINConv",
    "GATConv",
    "GATv2Conv",
    "TransformerConv",
    "SimpleConv",
    "AGNNConv",
    "FAConv",
    "SuperGATConv",
    "LEConv",
)

FOUND: dict[str, Program] = {
    "an optimiser may change the projection of constant edge features before a backward pass": Program(
        steps=(Call(), Train(call=Call()), Backward()),
        models=_of("TransformerConv", edge_dim=2),
        graphs=(Graph(layout="slice", seed=814),),
        features=(Features(layout="columns", seed=467),),
        nodes=2,
    ),
    "autocast takes messages of one number an edge": Program(
        steps=(Call(context="autocast"),),
        models=(Model(layers=(Layer(out=6), Layer("Executed", (("node_dim", 1),)))),),
        features=(Features(layout="columns", grad="leaf", seed=394),),
        width=1,
        seed=21656,
    ),
    # What is kept for constant features is handed out.
    "two calls on constant features share no memory": Program(
        steps=(Call(times=3),), models=_of("SimpleConv")
    ),
    "two calls of LGConv share no memory": Program(steps=(Call(times=3),), models=_of("LGConv")),
    "two maxima share no memory": Program(steps=(Call(times=3),), models=_of("Plain", aggr="max")),
    "writing to one output leaves the others alone": Program(
        steps=(Call(times=4), WriteOutput(how="relu"), WriteOutput(age=1, how="times two")),
        models=_of("SimpleConv"),
    ),
    "a write to an output through NumPy does not come back": Program(
        steps=(Call(times=3), WriteOutput(how="numpy"), Call()), models=_of("SimpleConv")
    ),
    "an output that is told to need a gradient leaves the others alone": Program(
        steps=(Call(times=3), WriteOutput(how="needs gradient"), Call()), models=_of("LGConv")
    ),
    "a layer that writes to its second aggregate keeps its first": Program(
        steps=(Call(times=3),), models=_of("Remembering")
    ),
    "attention gives out edges of its own": Program(
        steps=(Call(times=2, attention=True),), models=_of("GATConv")
    ),
    "attention of the second kind gives out edges of its own": Program(
        steps=(Call(times=2, attention=True),), models=_of("GATv2Conv")
    ),
    # Activation checkpointing runs the forward pass twice.
    **{
        f"checkpointing a narrowing {layer}": Program(
            steps=(Checkpoint(), Backward()), models=_of(layer, out=1), width=8
        )
        for layer in ("GCNConv", "SAGEConv", "SGConv", "TAGConv", "GraphConv")
    },
    **{
        f"batched gradients of a checkpointed {layer}": Program(
            steps=(Checkpoint(), Gradient(how="batched")), models=_of(layer), features=_LEAF, tight=False
        )
        for layer in ("GCNConv", "GATConv", "SAGEConv")
    },
    "training under checkpointing": Program(
        steps=(Train(checkpoint=True),), models=_of("GCN", out=1), width=8
    ),
    # Gradients of several outputs at once.
    **{
        f"batched gradients of {layer}": Program(
            steps=(Call(), Gradient(how="batched")), models=_of(layer), features=_LEAF
        )
        for layer in _BATCHED_LAYERS
    },
    "a vectorized Jacobian": Program(steps=(Transform(name="jacobian vectorized"),)),
    "a vectorized Hessian": Program(steps=(Transform(name="hessian vectorized"),)),
    # Transforms.
    **{
        f"{name} of {layer}": Program(
            steps=(Transform(name=name, before=2),), models=_of(layer, out=1), width=8
        )
        for name in ("vmap", "jvp")
        for layer in ("GCNConv", "SGConv", "TAGConv")
    },
    # Default devices. Small outputs are of torch's own allocator, and so on the default device.
    **{
        f"{layer} inside {context}": Program(steps=(Call(context=context),), models=_of(layer), tight=tight)
        for layer, tight in (
            ("GCNConv", False),
            ("SAGEConv", False),
            ("SGConv", False),
            ("GATConv", False),
            ("SimpleConv", False),
            ("Plain", False),
            ("TransformerConv", False),
            ("Gated", True),
            ("EdgeConv", True),
        )
        for context in ("device meta", "default device meta")
    },
    # Writes that the version counter does not see.
    **{
        f"edge weights written by way of {how}": Program(
            steps=(Call(weighted=True, times=4), WriteWeights(how=how), Call(weighted=True)),
            models=_UNNORMALISED,
            graphs=_WEIGHTED,
        )
        for how in ("data", "data part", "numpy", "storage", "dlpack", "new data")
    },
    **{
        f"constant features, {layout}, written behind the counter's back": Program(
            steps=(Call(times=4), CopyFeatures(data=True), Call()),
            models=_of("Plain"),
            features=(Features(layout=layout),),
        )
        for layout in ("view of a view", "rows")
    },
    # Swapped tensors.
    "edges are swapped": Program(steps=(Call(), WriteEdges(how="swap"), Call()), models=_of("SAGEConv")),
    "constant features are swapped": Program(
        steps=(Call(times=2), WriteFeatures(how="swap"), Call()), models=_of("SAGEConv")
    ),
    # What backward does not need is not kept for it.
    "an older output is differentiated after a step of the optimiser": Program(
        steps=(Call(), Train(), Backward()), models=_of("GCNConv")
    ),
    "a lazy layer met inference mode first and trains": Program(
        steps=(Call(context="inference"), Call(times=4)),
        models=(Model(layers=(Layer("SAGEConv", (("bias", False),), 1, lazy=True),)),),
        width=2,
    ),
    "relu in place on what attention gave out": Program(
        steps=(Call(), Backward()),
        models=(
            Model(
                layers=(Layer("TransformerConv", (("root_weight", False),)), Layer("GATConv")),
                between="relu in place",
            ),
        ),
    ),
    "relu in place on what AGNNConv gave out": Program(
        steps=(Call(), Backward()),
        models=(Model(layers=(Layer("AGNNConv"), Layer("GCNConv")), between="relu in place"),),
    ),
    "relu in place on what GATConv gave out": Program(
        steps=(Call(), Backward()),
        models=(
            Model(layers=(Layer("GATConv", (("bias", False),)), Layer("GCNConv")), between="relu in place"),
        ),
    ),
    "an output of attention is detached in place": Program(
        steps=(Call(), WriteOutput(how="detach")), models=_of("AGNNConv"), tight=False
    ),
    "what attention weights do not depend on has no gradient": Program(
        steps=(Call(attention=True), Gradient()), models=_of("TransformerConv"), tight=False
    ),
    "what attention weights do not depend on has no gradient that could be differentiated": Program(
        steps=(Call(attention=True), Gradient(how="twice")), models=_of("TransformerConv"), tight=False
    ),
    "checkpointing the first call of a lazy layer": Program(
        steps=(Checkpoint(), Backward()),
        models=(Model(layers=(Layer("SAGEConv", out=2, lazy=True),)),),
        tight=False,
    ),
    # Edges of PyG's own type.
    **{
        f"an EdgeIndex is written to for {layer}": Program(
            steps=(Call(), WriteEdges(), Call()),
            models=_of(layer),
            graphs=(Graph(form="EdgeIndex"),),
            tight=False,
        )
        for layer in ("GraphConv", "SAGEConv", "GINConv", "TransformerConv", "Plain")
    },
    "an EdgeIndex with numbers out of range": Program(
        steps=(Call(), WriteEdges(how="out of range"), Call()),
        models=_of("GraphConv"),
        graphs=(Graph(form="EdgeIndex"),),
        tight=False,
    ),
    # Dtypes.
    "coarse features meet fine weights in a layer that widens": Program(
        steps=(Call(weighted=True),),
        models=_of("GCNConv", out=8),
        graphs=(Graph(weight="float32"),),
        width=1,
        dtype="bfloat16",
        tight=False,
    ),
    "coarse features meet fine weights in GraphConv": Program(
        steps=(Call(weighted=True),),
        models=_of("GraphConv", out=2),
        graphs=(Graph(weight="float32"),),
        width=5,
        dtype="float16",
        tight=False,
    ),
    "coarse features meet fine weights in TAGConv": Program(
        steps=(Call(weighted=True),),
        models=_of("TAGConv", out=1),
        graphs=(Graph(weight="float32"),),
        dtype="bfloat16",
        tight=False,
    ),
    # What is remembered is lent in the mode that asks for it.
    "edges that attention returns in inference mode are inference tensors": Program(
        steps=(Call(context="inference", attention=True),), models=_of("GATConv")
    ),
    # Attention weights are the asker's.
    "attention weights that are written to, and then a backward pass": Program(
        steps=(Call(attention=True), WriteOutput(), Checkpoint(), Backward(age=1)), models=_of("GATConv")
    ),
    # No gradient comes back for one that never came.
    "attention weights alone have a gradient": Program(
        steps=(Call(attention=True), Gradient()), models=_of("TransformerConv"), dtype="float32"
    ),
    # What comes out is no view, which autograd would refuse after a write.
    "one batch is written to after a reentrant checkpoint": Program(
        steps=(Checkpoint(reentrant=True), WriteOutput(how="times two quietly")),
        models=_of("Plain"),
        features=(Features(grad="leaf", leading=(1,)),),
    ),
    "one batch after a linear step, which is a view without the patch too": Program(
        steps=(Checkpoint(reentrant=True), WriteOutput(how="times two quietly")),
        models=_of("SGConv"),
        features=(Features(grad="leaf", leading=(1,)),),
    ),
    # PyG stumbles over the edges of the first layer, and over the weights of the second.
    "an EdgeIndex in inference mode, and a layer that refuses weights": Program(
        steps=(Call(weighted=True, context="inference"),),
        models=(Model(layers=(Layer("Plain"), Layer("FAConv"))),),
        graphs=(Graph(form="EdgeIndex", weight="plain"),),
    ),
    # PyG's graph holds the parameters, whatever becomes of them.
    "parameters of a message are frozen before a backward pass": Program(
        steps=(Call(), Change(how="freeze"), Backward()),
        models=(Model(layers=(Layer(), Layer("GINEConv"))),),
        graphs=(Graph(edges=120, weight="strided", seed=824),),
        dtype="float16",
    ),
    # Such an EdgeIndex has no version.
    "an EdgeIndex gets self loops in inference mode": Program(
        steps=(Call(context="inference"),),
        models=_of("SimpleConv", combine_root="self_loop"),
        graphs=(Graph(edges=120, form="EdgeIndex"),),
        nodes=40,
        tight=False,
    ),
    # Inside a transform, a sparse matrix does not say how many entries it has.
    "a sparse matrix and a turned flow inside a transform": Program(
        steps=(Transform(),),
        models=_of("SAGEConv", flow="target_to_source"),
        graphs=(Graph(form="csr"),),
    ),
    # Checkpoints detach what is saved, in their second pass, while the message is traced.
    **{
        f"a message of several operands is traced under a checkpoint, {aggr}": Program(
            steps=(Checkpoint(), Gradient()),
            models=_of("FiLMConv", aggr=aggr),
            graphs=(Graph(edges=120),),
        )
        for aggr in ("mean", "max")
    },
    # Two products of an infinite number may add up to no number; one with the sum of the matrices does not.
    "a difference beside one of its ends, of infinite numbers": Program(
        steps=(Call(times=2),),
        models=_of("PointNetConv", out=1),
        graphs=(Graph(edges=5, seed=824),),
        features=(Features(values="infinite", grad="parameter", seed=472),),
        seed=50425,
    ),
    # The gradient of a concatenation is cut into views of one tensor.
    "factors of several relations have gradients of their own": Program(
        steps=(Call(), Backward()),
        models=_of("HGTConv"),
        graphs=(Graph(edges=40),),
    ),
    # Torch does not watch what is saved with hooks: PyG reads the edges, or the largest messages, of now.
    "edges overwritten where torch does not watch them": Program(
        steps=(Call(context="saved on cpu"), WriteEdges(how="negative"), Backward()),
        models=_of("Plain"),
        graphs=(Graph(seed=589),),
        features=(Features(grad="computed", seed=196),),
        nodes=13,
    ),
    "largest messages overwritten where torch does not watch them": Program(
        steps=(Checkpoint(), Gradient()),
        models=(Model(layers=(Layer("Remembering", (("aggr", "max"),)), Layer("Plain")), early=False),),
        graphs=(Graph(kind="sorted", weight="leaf", seed=228),),
        features=(Features(grad="computed", seed=702),),
        dtype="float32",
        seed=21273,
    ),
    "bounds of types without numbers": Program(
        steps=(Call(context="device meta"),), models=_of("HGTConv"), tight=False
    ),
    # One edge, whose destination became -1: edges that ascend from there were dropped.
    "edges that ascend from minus one": Program(
        steps=(WriteEdges(how="negative"), Checkpoint()),
        models=_of("HGTConv"),
        graphs=(Graph(edges=1),),
    ),
}
