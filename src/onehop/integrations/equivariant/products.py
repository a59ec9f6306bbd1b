"""e3nn's tensor product of every edge, and its sum over each destination, in one step.

MACE and NequIP call e3nn's ``TensorProduct`` with a row of features for each edge, and add the results up.
:func:`onehop.tensor_product` computes the same without the rows of edges.
"""

from typing import Any
from weakref import WeakKeyDictionary

import torch
from e3nn.o3 import TensorProduct
from torch import Tensor
from torch.nn.modules import module as torch_module

from onehop.backends import backend_for
from onehop.compiler.modules import MODULE_HOOKS, global_hooks
from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.graph.identity import remembered
from onehop.graph.lending import readable
from onehop.integrations import reports
from onehop.integrations.rows import Leave
from onehop.irreps import TensorPaths
from onehop.irreps.paths import MODES
from onehop.ops.contexts import context_reason, is_memory
from onehop.ops.tensor_product import tensor_product

FLOATS = (torch.float32, torch.float64)
NAME = "tensor product"
# Of the largest entry: what two computations of the same coefficients may differ by in float32.
_ROOM = 1e-4

# By module: its paths, or why onehop has none for it.
_paths: "WeakKeyDictionary[torch.nn.Module, TensorPaths | str]" = WeakKeyDictionary()


def summed(
    layer: Any,
    product: Any,
    x: Tensor,
    harmonics: Tensor,
    weights: Tensor | None,
    source: Tensor,
    target: Tensor,
) -> Tensor:
    """Return e3nn's product of every edge, summed over each destination: [N, irreps_out.dim].

    Args:
        layer: The module that reports name.
        product: A ``TensorProduct`` of e3nn.
        x: [N, irreps_in1.dim], float32 or float64.
        harmonics: [E, irreps_in2.dim], of the dtype of ``x``.
        weights: [E, weight_numel], of the dtype of ``x``.
        source: [E], the node that each edge comes from.
        target: [E], the node that each edge goes to.

    Raises:
        Leave: The modules' own code has to run.
    """
    check_context(product, TensorProduct, NAME)
    _check_operands(x, harmonics, weights, source, target)
    paths = _paths_of(product, x.dtype)
    sizes = x.shape, harmonics.shape, weights.shape  # type: ignore[union-attr]
    nodes, edges = x.size(0), source.numel()
    expected = (nodes, paths.dim_x), (edges, paths.dim_harmonics), (edges, paths.weight_numel)
    if sizes != expected or source.shape != (edges,) or target.shape != (edges,):
        raise Leave("e3nn is left to report what does not fit")
    graph = _graph_of(source, target, nodes)
    if graph is None:
        raise Leave("its edges name nodes that do not exist, and torch is left to report them")
    if reports.recording():
        backend = backend_for(x.device, x.dtype)
        reports.record(reports.Call(layer, None, NAME, "sum", backend.name))
    return tensor_product(graph, x, harmonics, weights, paths)  # type: ignore[arg-type]


def check_context(module: Any, kind: type, name: str) -> None:
    """Raises :class:`Leave` if torch, or a hook, has to see what a module computes in its own way.

    Args:
        module: The module that onehop would run.
        kind: Its class; an object of a derived class is left to its own code.
        name: What the sentence calls it.
    """
    reason = context_reason()
    if reason is not None:
        raise Leave(reason)
    if torch._C._is_any_autocast_enabled():
        raise Leave("autocast decides on the dtypes of its operands")
    if type(module) is not kind:
        raise Leave(f"its {name} is of the class {type(module).__name__}")
    state = module.__dict__
    if any(map(state.get, MODULE_HOOKS)) or any(global_hooks(torch_module)):
        raise Leave(f"hooks are registered on its {name}")
    if "forward" in state:
        raise Leave(f"the forward of its {name} is overridden")


def is_plain_float(tensor: Any) -> bool:
    """Return whether an operand is a dense float32 or float64 tensor on the CPU, and of torch's own class."""
    return isinstance(tensor, Tensor) and is_memory(tensor) and tensor.dtype in FLOATS


def _check_operands(x: Any, harmonics: Any, weights: Any, *ends: Any) -> None:
    """Raises :class:`Leave` unless all are plain tensors on the CPU, of one dtype, with integer ends."""
    for name, tensor in (("features", x), ("harmonics", harmonics), ("weights", weights)):
        if not is_plain_float(tensor):
            raise Leave(f"its {name} are not a dense float32 or float64 tensor on the CPU")
        if tensor.dtype is not x.dtype:
            raise Leave("its features, harmonics and weights differ in dtype")
    for tensor in ends:
        if not isinstance(tensor, Tensor) or not is_memory(tensor) or tensor.dtype is not torch.int64:
            raise Leave("its edges are not dense tensors of int64 on the CPU")


def _paths_of(product: Any, dtype: torch.dtype) -> TensorPaths:
    """Return the paths of a ``TensorProduct``; raises :class:`Leave` if onehop has none of its kind."""
    if product not in _paths:
        _paths[product] = _converted(product, dtype)
    paths = _paths[product]
    if isinstance(paths, str):
        raise Leave(paths)
    return paths


def _converted(product: Any, dtype: torch.dtype) -> TensorPaths | str:
    if product.shared_weights or product.internal_weights:
        return "its weights are not those of each edge"
    steps = product.instructions
    if not steps or any(step.connection_mode not in MODES or not step.has_weight for step in steps):
        return "its paths are not all uvu or uvw with weights"
    irreps = product.irreps_in1, product.irreps_in2, product.irreps_out
    try:
        paths = TensorPaths.with_factors(*irreps, map(_instruction, steps))
    except ArgumentError as error:
        return f"onehop has no such paths ({error})"
    signs = _signs(product, paths, dtype)
    if 0 in signs:
        return "its coefficients are not those of onehop"
    signed = (
        _instruction(step, sign * float(step.path_weight)) for step, sign in zip(steps, signs, strict=True)
    )
    return TensorPaths.with_factors(*irreps, signed)


def _instruction(step: Any, factor: float | None = None) -> tuple[int, int, int, str, float]:
    """Return e3nn's instruction as :class:`TensorPaths` takes it; None means the factor of e3nn."""
    factor = float(step.path_weight) if factor is None else factor
    return step.i_in1, step.i_in2, step.i_out, step.connection_mode, factor


def _signs(product: Any, paths: TensorPaths, dtype: torch.dtype) -> list[int]:
    """Return the sign of the module's coefficients for each path, relative to onehop's; 0 if they differ.

    e3nn 0.4 has other signs for some triples of degrees than e3nn 0.6, and a module that was loaded from a
    file computes with the coefficients of the release that made it. So the module computes each path once,
    and the results are compared.
    """
    count = len(paths.paths)
    generator = torch.Generator(device="cpu").manual_seed(0)

    def drawn(columns: int) -> Tensor:
        return torch.randn(count, columns, generator=generator, dtype=dtype, device="cpu")

    x, harmonics, weights = drawn(paths.dim_x), drawn(paths.dim_harmonics), drawn(paths.weight_numel)
    # Row number p has the weights of path p alone.
    path_of = torch.arange(count, device="cpu").repeat_interleave(
        torch.tensor([shape.numel() for shape in paths.weight_shapes], device="cpu")
    )
    weights = weights * (path_of == torch.arange(count, device="cpu")[:, None])
    each = torch.arange(count, device="cpu")
    with torch.no_grad():
        theirs = product(x, harmonics, weights)
        ours = tensor_product(Graph.from_edge_index(torch.stack([each, each])), x, harmonics, weights, paths)
    room = _ROOM * ours.abs().amax(1)
    return [
        next((sign for sign in (1, -1) if bool(((got - sign * want).abs() <= most).all())), 0)
        for got, want, most in zip(theirs, ours, room, strict=True)
    ]


def _graph_of(source: Tensor, target: Tensor, nodes: int) -> Graph | None:
    """Return the graph of these edges, cached or new; None if an edge names a node that does not exist."""

    def make() -> Graph | None:
        ends = torch.stack([readable(source), readable(target)])
        try:
            return Graph.from_edge_index(ends, size=(nodes, nodes))
        except ArgumentError:
            return None

    return remembered(source, target, key=("graph of two rows", nodes), make=make)
