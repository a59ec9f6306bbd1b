"""e3nn's product of every edge and its sum, as MACE and NequIP compute them."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.nn.modules import module as torch_module

o3 = pytest.importorskip("e3nn.o3")

from onehop.integrations import reports  # noqa: E402
from onehop.integrations.equivariant.products import summed  # noqa: E402
from onehop.integrations.rows import Leave  # noqa: E402

# e3nn 0.4 annotates empty lists in constructors.
pytestmark = pytest.mark.filterwarnings("ignore:The TorchScript type system")
NODES, EDGES = 7, 40


@pytest.fixture
def _in_double() -> Iterator[None]:
    """e3nn rounds its coefficients to the default dtype of torch at the time that a module is made."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def product_of(irreps="4x0e+3x1o+2x2e", degree=2, mode="uvu", **options):
    """A product with sorted outputs, as in NequIP, so that paths and outputs have different places."""
    x, harmonics = o3.Irreps(irreps), o3.Irreps.spherical_harmonics(degree)
    out, steps = [], []
    for i, (channels, left) in enumerate(x):
        for j, (_, right) in enumerate(harmonics):
            for irrep in left * right:
                steps.append((i, j, len(out), mode, True))
                out.append((channels if mode == "uvu" else 3, irrep))
    ordered, places, _ = o3.Irreps(out).sort()
    steps = [(i, j, places[k], *rest) for i, j, k, *rest in steps]
    options = {"shared_weights": False, "internal_weights": False} | options
    return o3.TensorProduct(x, harmonics, ordered, steps, **options)


def operands(product, nodes=NODES, edges=EDGES, dtype=torch.float64):
    torch.manual_seed(1)
    ends = torch.randint(max(nodes, 1), (2, edges))
    rows = (nodes, product.irreps_in1.dim), (edges, product.irreps_in2.dim), (edges, product.weight_numel)
    return [torch.randn(each, dtype=dtype, requires_grad=True) for each in rows], ends


def naive(product, x, harmonics, weights, source, target):
    messages = product(x[source], harmonics, weights)
    return messages.new_zeros(x.size(0), messages.size(1)).index_add(0, target, messages)


def with_gradients(compute, leaves: list[Tensor]) -> Iterator[Tensor]:
    """The result, its gradients, and the gradients of a function of these."""
    out = compute(*leaves)
    yield out.detach()
    first = torch.autograd.grad(out.square().sum(), leaves, create_graph=True)
    yield from (each.detach() for each in first)
    yield from torch.autograd.grad(sum(each.square().sum() for each in first), leaves)


@pytest.mark.usefixtures("_in_double")
@pytest.mark.parametrize(
    ("nodes", "edges"),
    [(NODES, EDGES), (NODES, 0), (1, 5), (0, 0)],
    ids=["some", "no edges", "loops", "none"],
)
@pytest.mark.parametrize("mode", ["uvu", "uvw"])
def test_results_and_derivatives_equal_those_of_e3nn(mode, nodes, edges):
    product = product_of(mode=mode)
    leaves, (source, target) = operands(product, nodes, edges)
    expected = with_gradients(lambda *args: naive(product, *args, source, target), leaves)
    found = with_gradients(lambda *args: summed(product, product, *args, source, target), leaves)
    for got, want in zip(found, expected, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)


@pytest.mark.usefixtures("_in_double")
@pytest.mark.parametrize("normalization", ["component", "norm"])
@pytest.mark.parametrize("path_normalization", ["element", "path"])
def test_normalisations_and_weights_of_paths_are_those_of_the_module(normalization, path_normalization):
    steps = [(0, 0, 0, "uvu", True, 0.3), (1, 1, 0, "uvu", True, 2.0), (0, 1, 1, "uvu", True)]
    product = o3.TensorProduct(
        "4x0e+4x1o", "0e+1o", "4x0e+4x1o", steps, shared_weights=False, internal_weights=False,
        irrep_normalization=normalization, path_normalization=path_normalization,
    )  # fmt: skip
    leaves, (source, target) = operands(product)
    got, want = summed(product, product, *leaves, source, target), naive(product, *leaves, source, target)
    torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)


@pytest.mark.usefixtures("_in_double")
def test_the_graph_follows_a_write_to_the_edges():
    product = product_of()
    leaves, ends = operands(product)
    for _ in range(2):
        got = summed(product, product, *leaves, ends[0], ends[1])
        torch.testing.assert_close(got, naive(product, *leaves, *ends), rtol=1e-10, atol=1e-10)
        ends[1, 3:9] = ends[1, 3:9].flip(0)
        ends[0, 0] = (ends[0, 0] + 1) % NODES


@pytest.mark.usefixtures("_in_double")
@pytest.mark.parametrize("change", ["sign", "size"])
def test_coefficients_are_those_that_the_module_computes_with(change, monkeypatch):
    # As releases of e3nn have other signs, and a file may hold a module of another release.
    product = product_of()
    compiled, at = product._compiled_main_left_right, product.irreps_out.slices()[3]

    def other(x, harmonics, weights):
        out = compiled(x, harmonics, weights)
        return torch.cat(
            [out[:, : at.start], -out[:, at] * (1 if change == "sign" else 2), out[:, at.stop :]], 1
        )

    monkeypatch.setitem(product._modules, "_compiled_main_left_right", None)
    monkeypatch.setattr(type(product), "_compiled_main_left_right", staticmethod(other), raising=False)
    del product._modules["_compiled_main_left_right"]
    leaves, ends = operands(product)
    if change == "size":
        assert _left(product, *leaves, *ends) == "its coefficients are not those of onehop"
    else:
        got, want = summed(product, product, *leaves, *ends), naive(product, *leaves, *ends)
        torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)


def test_calls_are_recorded_with_their_backend():
    product = product_of()
    leaves, ends = operands(product, dtype=torch.float32)
    with reports.recorded() as calls:
        summed("the layer", product, *leaves, *ends)
    assert [(call.layer, call.reason, call.backend) for call in calls] == [("the layer", None, "cpu")]


def _left(product, *args) -> str:
    with pytest.raises(Leave) as why:
        summed(product, product, *args)
    return why.value.sentence


def test_other_products_are_left_to_e3nn():
    class Other(o3.TensorProduct):
        pass

    shared = product_of(shared_weights=True)
    inner = product_of(shared_weights=True, internal_weights=True)
    apart = o3.TensorProduct(
        "1x0e", "1x0e", "1x0e", [(0, 0, 0, "uuu", True)], shared_weights=False, internal_weights=False
    )
    other = Other(
        "1x0e", "0e", "1x0e", [(0, 0, 0, "uvu", True)], shared_weights=False, internal_weights=False
    )
    high = o3.TensorProduct(
        "1x5o", "0e", "1x5o", [(0, 0, 0, "uvu", True)], shared_weights=False, internal_weights=False
    )
    sentences = {
        "its weights are not those of each edge": (shared, inner),
        "its paths are not all uvu or uvw with weights": (apart,),
        "its tensor product is of the class Other": (other,),
        "onehop has no such paths": (high,),
    }
    for sentence, products in sentences.items():
        for product in products:
            leaves, ends = operands(product, dtype=torch.float32)
            assert _left(product, *leaves, *ends).startswith(sentence)


def test_hooks_and_overridden_functions_are_left_to_e3nn():
    product = product_of()
    leaves, ends = operands(product, dtype=torch.float32)
    handle = product.register_forward_hook(lambda *args: None)
    assert "hooks" in _left(product, *leaves, *ends)
    handle.remove()
    handle = torch_module.register_module_forward_hook(lambda *args: None)
    assert "hooks" in _left(product, *leaves, *ends)
    handle.remove()
    product.forward = product.forward
    assert "overridden" in _left(product, *leaves, *ends)
    del product.forward
    summed(product, product, *leaves, *ends)


def test_contexts_that_see_every_edge_are_left_to_e3nn():
    product = product_of()
    leaves, ends = operands(product, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        assert "autocast" in _left(product, *leaves, *ends)
    with torch.autograd.forward_ad.dual_level():
        assert "forward-mode" in _left(product, *leaves, *ends)
    sentences = []
    torch.func.vmap(lambda x: (sentences.append(_left(product, x, *leaves[1:], *ends)), x)[1])(
        leaves[0][None]
    )
    assert "functorch" in sentences[0]


def test_operands_that_do_not_fit_are_left_to_e3nn():
    product = product_of()
    (x, harmonics, weights), (source, target) = operands(product, dtype=torch.float32)

    class Named(Tensor):
        pass

    beyond = source.clone()
    beyond[-1] = NODES
    wrong = {
        "its features are not a dense": (x.as_subclass(Named), harmonics, weights, source, target),
        "its weights are not a dense": (x, harmonics, None, source, target),
        "its features, harmonics and weights differ": (x, harmonics.double(), weights, source, target),
        "its edges are not dense": (x, harmonics, weights, source.int(), target),
        "e3nn is left to report": (x, harmonics[1:], weights, source, target),
        "its edges name nodes": (x, harmonics, weights, beyond, target),
    }
    for sentence, args in wrong.items():
        assert _left(product, *args).startswith(sentence)
    assert _left(product, x[:, 1:], harmonics, weights, source, target).startswith("e3nn is left")
    assert _left(product, x, harmonics, weights[None], source, target).startswith("e3nn is left")
    assert _left(product, x.half(), harmonics.half(), weights.half(), source, target).startswith(
        "its features are not"
    )


def test_a_module_that_was_made_in_float32_keeps_its_rounded_coefficients():
    product = product_of().double()
    leaves, ends = operands(product)
    got, want = summed(product, product, *leaves, *ends), naive(product, *leaves, *ends)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
