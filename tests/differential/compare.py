"""Two runs of one program, side by side."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tests.differential.calls import SECOND_DERIVATIVES, Checkpoint, Threads, Transform
from tests.differential.layers import REORDERED, SOFTMAX
from tests.differential.lives import Hook, ResetCaches
from tests.differential.observe import Observation, Seen
from tests.differential.program import Layer, Program, Spec, specs_in
from tests.differential.tensors import SPARSE_TENSOR
from tests.differential.writes import WRITES_OPERANDS, WriteEdges

# Of the largest number of a tensor. Past it, the program itself is asked how far rounding carries it.
_RELATIVE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}
# Smaller tensors count as this large: what should be 0 is what differences of such numbers leave.
_SMALLEST = {torch.float64: 1e-3, torch.float32: 1e-2, torch.float16: 1e-1, torch.bfloat16: 1e-1}
# How many times as far as rounding carried it without the patch a number may be off.
_TIMES = 16.0

# Errors that PyG's code raises and the patch need not: what it stumbles over is not needed, and the result is
# what was asked for. The comparison ends there.
_WRITTEN = "has been modified by an inplace operation"
_NARROW_EDGES = "expected scalar type Long but found Int"
_HELD = "Expected use_count of t1"
_SWAP = "_apply(): Couldn't swap"
_RECOMPUTED = "Recomputed values for the following tensors have different metadata"
_LAZY = "has no attribute 'cls_to_become'"
_OUTSIDE = "is out of bounds for dimension"
_EQUAL = ("few", "sparse", "not a number", "infinite")
_NO_STORAGE = "Cannot access data pointer of Tensor that doesn't have storage"
_NEEDLESS = (
    "Trying to backward through the graph a second time",  # edges times width that PyG keeps, and we do not
    _WRITTEN,  # likewise
    "A different number of tensors was saved",  # checkpoints of what needs no gradient by now
    _HELD,  # swap_tensors, while what PyG keeps holds the tensor
    _SWAP,  # the same, of a module's parameters
    "Inference tensors cannot be saved for backward",  # cached=True, and the first call in inference mode
    "Cannot set version_counter for inference tensor",  # an EdgeIndex in inference mode
    "is_coalesced expected sparse coordinate tensor",  # second derivatives of a product with CSR
    _LAZY,  # threads that make one lazy parameter at the same time
    "'Linear' object has no attribute '_hook'",  # likewise
    "Tensor.item() cannot be called on meta tensors",  # RGCNConv, with "meta" as default device
)
# Layers whose message reads a parameter.
_OF_PARAMETERS = {"Composed", "Unannotated", "Returning", "Asking"}
# What torch and torch_sparse cannot do with their products with sparse matrices: differentiate them twice,
# take a batch of gradients, mix types of 16 bits, run without data. The patch may do it, or fail elsewhere.
_UNABLE = (
    "derivative for aten::_sparse_mm_reduce_impl_backward is not implemented",
    "derivative for aten::_segment_reduce_backward is not implemented",
    "derivative for aten::_coalesced_ is not implemented",
    "expand is unsupported for Sparse",
    "tensors do not have strides",
    "tensors do not have is_contiguous",
    "Unexpected floating ScalarType in at::autocast::prioritize",
    _NO_STORAGE,
    "'SparseCsrMeta' backend",
)


@dataclass(frozen=True)
class Difference:
    """Where the two runs part."""

    number: int  # of the step; 0 is the start
    step: str
    what: tuple[str, ...]  # what differs, a line each

    def __str__(self) -> str:
        """Several lines."""
        lines = "\n".join(f"  {line}" for line in self.what)
        return f"after step {self.number}, {self.step}:\n{lines}"

    @property
    def sort(self) -> str:
        """What sort of difference it is, so that one is not taken for another while a program shrinks."""
        return self.what[0].split(":")[0]


def precision(program: Program) -> torch.dtype:
    """The coarsest dtype that takes part in a program."""
    for spec in specs_in(program):
        if getattr(spec, "context", "") == "autocast" or getattr(spec, "how", "") == "bfloat16":
            return torch.bfloat16
    dtype: torch.dtype = getattr(torch, program.dtype)
    coarse = any(
        getattr(spec, "weight", "") == "float32"
        or getattr(spec, "how", "") in ("float and double", "swapped conversion")
        or getattr(spec, "context", "") == "default dtype"
        for spec in specs_in(program)
    )
    return torch.float32 if coarse and dtype is torch.float64 else dtype


# Hooks that a layer has to run PyG's own code for.
_OF_PYGS_CODE = {"every module", "aggregation", "message", "propagate", "aggregate"}


def _excused(
    program: Program, plain: Observation, patched: Observation, number: int, numbers: frozenset[str]
) -> bool:
    """Whether the runs may part here."""
    if _twice_through_sparse_tensors(program, number):
        return True
    if plain.error is not None and any(each in plain.message for each in _UNABLE):
        return True
    if plain.error is not None and any(each in plain.message for each in _NEEDLESS):
        # If both raise, then perhaps not at the same place: the patch may come to a later error of PyG's.
        return patched.error in (None, plain.error) or not patched.ours
    raised, other = (patched, plain) if plain.error is None else (plain, patched)
    if (
        raised.error is not None
        and other.error is None
        and any(each in raised.message for each in (_NARROW_EDGES, _HELD))
    ):
        # PyG's code ran, as it should, and got wider edges in the other run, and held those; or ours ran,
        # which takes edges of 32 bits.
        return any(graph.dtype == "int32" for graph in program.graphs)
    if patched.error is not None and _WRITTEN in patched.message:
        # We keep the operands, where PyG keeps copies of them, one row an edge.
        writes = any(isinstance(step, WRITES_OPERANDS) for step in program.steps[:number])
        return writes or _keeps_parameters(program)
    if patched.error is not None and _SWAP in patched.message:
        return _keeps_parameters(program)
    if raised.error == "AssertionError" and isinstance(program.steps[number - 1], Threads):
        # RGATConv passes its attention through an attribute of the layer, which threads take from each other.
        return any(spec.name.startswith("RGAT") for spec in specs_in(program) if isinstance(spec, Layer))
    if plain.error is None and patched.error is not None and _RECOMPUTED in patched.message:
        # PyG's code alone calls such a hook: the pass that is repeated is PyG's then.
        steps = iter(program.steps[:number])
        return any(isinstance(step, Checkpoint) for step in steps) and any(
            isinstance(step, Hook) and step.kind in _OF_PYGS_CODE for step in steps
        )
    if plain.error is None and patched.error is not None and _LAZY in patched.message:
        return any(isinstance(step, Threads) for step in program.steps[:number])
    if patched.error is not None and _NO_STORAGE in patched.message:
        # A SparseTensor computes its rows when PyG first asks for them, which torch_sparse cannot inside a
        # transform. Without the patch an earlier call had asked.
        return any(isinstance(step, Transform) for step in program.steps[:number])
    if plain.error is not None and patched.error is None and _OUTSIDE in plain.message:
        # PyG's backward pass looks up the edges of now; ours goes over those of the forward pass.
        return _unwatched(program) and _rewrites_edges(program)
    return bool(numbers) and _excused_numbers(program, plain, patched, numbers)


def _excused_numbers(
    program: Program, plain: Observation, patched: Observation, numbers: frozenset[str]
) -> bool:
    """Whether the runs may part where nothing but these numbers differs."""
    rewrites = _rewrites_edges(program) or _rewrites_largest(program) or _rewrites_parameters(program)
    unwatched = _unwatched(program) and rewrites
    if (unwatched or _redraws_recomputed(program)) and all(map(_of_gradient, numbers)):
        return True
    finite = {name: (_finite(plain.tensors[name]), _finite(patched.tensors[name])) for name in numbers}
    if program.dtype == "float16" and (False, True) in finite.values():
        # PyG adds up in 16 bits, where sums overflow that do not in 32.
        return True
    equal = any(each.values in _EQUAL for each in program.features)
    if equal and "median" in repr(program.models) and all(map(_of_gradient, numbers)):
        # Which of several equal numbers or NaN has a median's gradient, torch's sort leaves open: it depends
        # on the order of the edges, in PyG too.
        return True
    if not _finite_features(program):
        # (A X) W and A (X W) multiply other numbers by 0, and so do other ways to the same gradient.
        return all(
            found != (True, True)
            and (_reorders(program) or _follows_gradients(name) or _softmax_of_matrices(program))
            for name, found in finite.items()
        )
    # NaN times 0, for nodes without edges, which are not multiplied at all where the weight comes first.
    return _reorders(program) and all(
        found == (False, True) and _of_gradient(name) for name, found in finite.items()
    )


def _keeps_parameters(program: Program) -> bool:
    """Whether a compiled message keeps parameters. PyG keeps what it made of them where it needs no more."""
    return any(spec.name in _OF_PARAMETERS for spec in specs_in(program) if isinstance(spec, Layer))


def _twice_through_sparse_tensors(program: Program, number: int) -> bool:
    """Whether a step takes second derivatives, and a graph is a ``SparseTensor``.

    torch_sparse takes the first ones for constants, without a word. Those of the patch are PyG's with an
    ``edge_index`` (tests/integrations/pyg/test_sparse_tensors.py).
    """
    step = program.steps[number - 1] if number else None
    twice = getattr(step, "how", None) == "twice" or getattr(step, "name", None) in SECOND_DERIVATIVES
    return twice and any(graph.form == SPARSE_TENSOR for graph in program.graphs)


def _unwatched(program: Program) -> bool:
    """Whether a pass saves its tensors with hooks that hold the tensors themselves.

    Torch does not notice then that one of them is written to before the backward pass. PyG's gradients are of
    what is written there by now; those of the patch may be of what the result was made of.
    """
    return any(map(_saves_unwatched, program.steps))


def _saves_unwatched(step: Spec) -> bool:
    return isinstance(step, Checkpoint) or getattr(step, "context", None) == "saved on cpu"


def _rewrites_edges(program: Program) -> bool:
    return any(isinstance(step, WriteEdges) for step in program.steps)


def _rewrites_parameters(program: Program) -> bool:
    """Whether layers draw their parameters anew after a pass that saved those of before, unwatched."""
    steps = iter(program.steps)
    return any(map(_saves_unwatched, steps)) and any(isinstance(step, ResetCaches) for step in steps)


def _redraws_recomputed(program: Program) -> bool:
    """Whether a layer whose rows are computed again in the backward pass draws its parameters anew.

    PyG draws them through ``data``, which torch does not notice. Its own gradients are then of products with
    the old parameters and of the new parameters.
    """
    redraws = any(isinstance(step, ResetCaches) for step in program.steps)
    return redraws and any(
        spec.name.startswith("RGAT") for spec in specs_in(program) if isinstance(spec, Layer)
    )


def _rewrites_largest(program: Program) -> bool:
    """Whether a layer writes to the largest of its messages, which the backward pass looks for among them."""
    return any(
        isinstance(spec, Layer)
        and spec.name == "Remembering"
        and dict(spec.options).get("aggr") in ("max", "min")
        for spec in specs_in(program)
    )


def _of_gradient(name: str) -> bool:
    """Whether a tensor is a gradient, or what a step found, which is one or made of them."""
    return name.startswith("gradient") or name.endswith(")")


def _follows_gradients(name: str) -> bool:
    """Whether a tensor is a gradient or a parameter, which training changes by gradients."""
    return _of_gradient(name) or name.startswith("model ")


def _reorders(program: Program) -> bool:
    """Whether it has layers whose linear step may change places with the aggregation."""
    return any(isinstance(spec, Layer) and spec.name in REORDERED for spec in specs_in(program))


def _softmax_of_matrices(program: Program) -> bool:
    """Whether there is a softmax over the rows of a sparse matrix.

    Over scores that are all -inf PyG's is 0 there, and NaN over edges that are listed, as the patch's is.
    """
    return any(graph.form not in ("tensor", "EdgeIndex") for graph in program.graphs) and any(
        isinstance(spec, Layer) and spec.name in SOFTMAX for spec in specs_in(program)
    )


def _finite_features(program: Program) -> bool:
    return all(each.values not in ("not a number", "infinite") for each in program.features)


def _finite(seen: Seen) -> bool:
    return seen.value is None or bool(seen.value.isfinite().all())


def first_difference(
    program: Program,
    plain: Sequence[Observation],
    patched: Sequence[Observation],
    shaken: Iterable[Sequence[Observation]] = (),
) -> Difference | None:
    """The first step after which the runs differ; None if they never do.

    ``shaken`` are further runs without the patch, whose operands were a few roundings off.
    """
    shaken = tuple(shaken)
    dtype = precision(program)
    for number, (one, other) in enumerate(zip(plain, patched, strict=False)):
        what, numbers = _differences(one, other, dtype, [run[number] for run in shaken if number < len(run)])
        if what:
            if _excused(program, one, other, number, numbers):
                return None
            return Difference(number, one.step, tuple(what))
        if one.step == "build":
            return None
    return None


def _differences(
    plain: Observation, patched: Observation, dtype: torch.dtype, shaken: list[Observation]
) -> tuple[list[str], frozenset[str]]:
    if plain.error != patched.error:
        told = f"without the patch {_told(plain)}; with it {_told(patched)}"
        return [f"error: {told}"], frozenset()
    found = []
    for here, there, which in ((plain, patched, "without"), (patched, plain, "with")):
        alone = sorted(here.tensors.keys() - there.tensors.keys())
        found += [f"there {which} the patch alone: {name}" for name in alone]
    off: set[str] = set()
    for name in (each for each in plain.tensors if each in patched.tensors):
        one, other = plain.tensors[name], patched.tensors[name]
        facts = [
            fact for fact in one.facts if one.facts[fact] != other.facts[fact] and _counts(name, fact, other)
        ]
        found += [
            f"{fact}: of {name} {one.facts[fact]} without the patch, {other.facts[fact]} with it"
            for fact in facts
        ]
        if not facts:
            near = [run.tensors[name] for run in shaken if name in run.tensors]
            distance = _distance(one, other, dtype, near)
            if distance is not None:
                off.add(name)
                found.append(f"numbers: of {name}, {distance}")
    found += [
        f"memory: shared with the patch alone by {' and '.join(pair)}"
        for pair in sorted(patched.shared - plain.shared)
    ]
    found += [
        f"memory: shared without the patch alone by {' and '.join(pair)}"
        for pair in sorted(plain.shared - patched.shared)
        if not any(map(_of_gradient, pair))
    ]
    if plain.chance != patched.chance:
        found.append("chance: the generator's state differs")
    return found, frozenset(off) if len(off) == len(found) else frozenset()


def _told(seen: Observation) -> str:
    if seen.error is None:
        return "nothing is raised"
    lines = seen.message.strip().splitlines()
    return f"{seen.error}({lines[0][:160] if lines else ''})"


def _counts(name: str, fact: str, patched: Seen) -> bool:
    """Whether a fact is promised: how a gradient lies in memory is not, nor that an output is a view."""
    if fact == "is_view":
        return bool(patched.facts[fact]) and name.startswith("output")
    return fact != "is_contiguous" or not _of_gradient(name)


def _distance(one: Seen, other: Seen, dtype: torch.dtype, near: list[Seen]) -> str | None:
    """How far the numbers are apart, if too far."""
    if one.value is None or other.value is None or not one.value.numel():
        return None
    if not one.value.is_floating_point():
        return None if torch.equal(one.value, other.value) else "whole numbers differ"
    want, got = one.value.double(), other.value.double()
    same = (want == got) | (want.isnan() & got.isnan())
    if bool(same.all()):
        return None
    finite = want.isfinite() & got.isfinite()
    odd = not bool((same | finite).all())
    error = _largest((want - got)[finite])
    scale = max(_largest(want[want.isfinite()]), _SMALLEST[dtype])
    allowed = _RELATIVE[dtype] * scale
    for each in near:
        if each.value is None or each.value.shape != one.value.shape:
            continue
        moved = each.value.double()
        if not torch.equal(moved.isfinite(), want.isfinite()):
            return None
        allowed = max(allowed, _TIMES * _largest((moved - want)[want.isfinite()]))
    if odd:
        return f"not finite in one run alone: {_few(want)} without the patch, {_few(got)} with it"
    if error <= allowed:
        return None
    return f"off by {error:.3g} where {allowed:.3g} is allowed and the largest is {scale:.3g}"


def _largest(numbers: Tensor) -> float:
    return float(numbers.abs().max()) if numbers.numel() else 0.0


def _few(numbers: Tensor) -> str:
    return "[" + ", ".join(f"{float(each):.4g}" for each in numbers.flatten()[:6]) + "]"
