"""MACE's symmetric contraction as the polynomial that it is.

For each node and channel, each output is a polynomial of the node's components, of degree 3 in published
models. MACE multiplies by dense tables of all triples: 4,096 for 16 components. Most entries are 0, and the
factors commute, so that 77 products remain for scalars and 290 for vectors. They are computed with torch's
operators, which can be differentiated any number of times. The formula is equation 10 of I. Batatia et al.,
NeurIPS 2022.
"""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from mace.modules.symmetric_contraction import Contraction, SymmetricContraction
from torch import Tensor
from torch.nn import Parameter
from torch.nn.functional import one_hot

from onehop.integrations import reports
from onehop.integrations.equivariant.products import check_context, is_plain_float
from onehop.integrations.rows import Function, Leave
from onehop.ops.contexts import is_numbers

NAME = "symmetric contraction"


class Terms(NamedTuple):
    """The products of one degree that have a coefficient, ordered by output component.

    Attributes:
        factors: The input components of the products: for each factor, [T].
        coefficients: For each contraction of the module, [T of its outputs, paths].
        sizes: The number of products of each output component.
    """

    factors: tuple[Tensor, ...]
    coefficients: tuple[Tensor, ...]
    sizes: tuple[int, ...]


class _Kept(NamedTuple):
    # The tables that the terms were made from, each with its version.
    tables: list[tuple[Tensor, int]]
    degrees: list[Terms]


_kept: "WeakKeyDictionary[torch.nn.Module, _Kept]" = WeakKeyDictionary()


def contracted(theirs: Function, module: Any, x: Any, y: Any) -> Tensor:
    """Return MACE's contraction of features x [N, C, components], of nodes whose elements y [N, E] names.

    Raises:
        Leave: MACE's code has to run.
    """
    try:
        return _contracted(module, x, y)
    except Leave as why:
        reports.refuse(module, why.sentence)
        raise


def _contracted(module: Any, x: Any, y: Any) -> Tensor:
    check_context(module, SymmetricContraction, NAME)
    contractions = list(module.contractions)
    for each in contractions:
        check_context(each, Contraction, NAME)
    if not is_plain_float(x) or not is_plain_float(y) or x.dtype is not y.dtype:
        raise Leave("its features and elements are not dense float32 or float64 tensors on the CPU")
    weights = [(*reversed(list(each.weights)), each.weights_max) for each in contractions]
    degrees = _degrees_of(module, contractions)
    _check_shapes(x, y, weights, contractions)
    element = y.argmax(1)
    if y.requires_grad or not torch.equal(one_hot(element, y.size(1)).to(y.dtype), y):
        raise Leave("its nodes are mixtures of elements")
    if reports.recording():
        reports.record(reports.Call(module, None, NAME, "sum", "torch"))
    total = _polynomial(x.permute(2, 0, 1).contiguous(), element, degrees, weights)
    outputs = total.split([_tables_of(each)[0].size(0) for each in contractions])
    return torch.cat([each.permute(1, 2, 0).flatten(1) for each in outputs], 1)


def _check_shapes(x: Tensor, y: Tensor, weights: list[tuple[Tensor, ...]], contractions: list[Any]) -> None:
    """Raises :class:`Leave` unless the operands fit the weights [E, paths, C] and the tables."""
    components = {_tables_of(each)[0].size(1) for each in contractions}
    fits = x.dim() == 3 and y.dim() == 2 and x.size(0) == y.size(0) and y.numel() > 0
    fits = fits and components == {x.shape[-1]}
    for weight in itertools.chain.from_iterable(weights):
        # MACE has a class of parameters for weights of tables without entries.
        is_plain = is_numbers(weight) if isinstance(weight, Parameter) else is_plain_float(weight)
        fits = fits and is_plain and weight.dtype is x.dtype
        fits = fits and weight.shape[::2] == (y.size(1), x.size(1))
    if not fits:
        raise Leave("MACE is left to report what does not fit")


def _polynomial(
    x: Tensor, element: Tensor, degrees: list[Terms], weights: list[tuple[Tensor, ...]]
) -> Tensor:
    """Return the outputs, [components of all outputs, N, C], for features [components of the input, N, C]."""
    channels = x.size(2)
    total: Tensor | None = None
    for degree, terms in enumerate(degrees):
        # [T, E, C]: the coefficient of each product, for each element and channel.
        coefficients = torch.cat(
            [
                torch.tensordot(table, weight[degree], ([1], [1]))
                for table, weight in zip(terms.coefficients, weights, strict=True)
            ]
        )
        count, elements = coefficients.shape[:2]
        rows = (elements * torch.arange(count, device="cpu")[:, None] + element).flatten()
        products = coefficients.flatten(0, 1).index_select(0, rows).view(count, -1, channels)
        for components in terms.factors:
            products = products * x.index_select(0, components)
        sums = torch.stack([each.sum(0) for each in products.split(terms.sizes)])
        total = sums if total is None else total + sums
    assert total is not None
    return total


def _tables_of(contraction: Any) -> list[Tensor]:
    """Return the tables of a contraction by degree: [outputs, components, ..., components, paths]."""
    buffers = contraction._buffers
    tables = [buffers[f"U_matrix_{degree}"] for degree in range(1, contraction.correlation + 1)]
    # A scalar's table has no dimension of outputs.
    return [
        table if table.dim() == degree + 2 else table.unsqueeze(0) for degree, table in enumerate(tables, 1)
    ]


def _degrees_of(module: Any, contractions: list[Any]) -> list[Terms]:
    """Return the terms of each degree, kept while the module has the same tables."""
    buffers = [
        each._buffers[f"U_matrix_{degree}"]
        for each in contractions
        for degree in range(1, each.correlation + 1)
    ]
    if any(table.is_inference() for table in buffers):
        raise Leave("its tables were made in inference mode, so a change of them would not be noticed")
    kept = _kept.get(module)
    if kept is None or [(id(each), each._version) for each in buffers] != [
        (id(each), version) for each, version in kept.tables
    ]:
        if len({each.correlation for each in contractions}) != 1:
            raise Leave("its outputs differ in degree")
        # Tensors of inference mode could not be used outside of it.
        with torch.inference_mode(False), torch.no_grad():
            by_degree = zip(*map(_tables_of, contractions), strict=True)
            degrees = [_terms(tables) for tables in by_degree]
        kept = _kept[module] = _Kept([(each, each._version) for each in buffers], degrees)
    return kept.degrees


def _terms(tables: Sequence[Tensor]) -> Terms:
    """Return the products of one degree of all contractions, whose tables are given."""
    factors, coefficients, sizes = [], [], []
    for table in tables:
        size = table.abs().amax(-1)
        # MACE computes tables by sums, so that some zeros are not exact.
        places = (size > torch.finfo(table.dtype).eps * size.max()).nonzero()
        # Products of the same components, in any order, are one.
        keys = torch.cat([places[:, :1], places[:, 1:].sort(1).values], 1)
        distinct, which = keys.unique(dim=0, return_inverse=True)
        summed = table.new_zeros(distinct.size(0), table.size(-1))
        coefficients.append(summed.index_add(0, which, table[places.unbind(1)]))
        factors.append(distinct[:, 1:])
        sizes += torch.bincount(distinct[:, 0], minlength=table.size(0)).tolist()
    return Terms(tuple(torch.cat(factors).t().contiguous().unbind()), tuple(coefficients), tuple(sizes))
