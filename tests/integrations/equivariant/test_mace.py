"""MACE under the patch (``make test-potentials``)."""

import copy
import io
from collections.abc import Iterator
from functools import partial

import pytest
import torch

pytest.importorskip("mace.modules")

from e3nn.o3 import TensorProduct
from e3nn.util import jit
from mace.modules.blocks import InteractionBlock
from mace.modules.symmetric_contraction import EmptyParam

import onehop
from benchmarks.equivariant.potentials import Potential, mace, results
from onehop.integrations import reports
from tests.integrations.equivariant.potential_checks import check_forces, check_same, drawn

# e3nn 0.4 annotates empty lists in constructors.
pytestmark = pytest.mark.filterwarnings("ignore:The TorchScript type system")


FORMS = ["tensor product", "symmetric contraction"] * 2
CHANNELS, DEGREE = 4, 2
SCALARS, VECTORS = (partial(mace, irreps, degree=DEGREE) for irreps in ("4x0e", "4x0e+4x1o"))


@pytest.fixture
def _in_double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("_in_double")
@pytest.mark.parametrize("training", [False, True], ids=["forces", "training"])
@pytest.mark.parametrize("make", [SCALARS, VECTORS], ids=["scalars", "vectors"])
def test_energy_forces_and_gradients_in_float64(make, training):
    check_same(make, FORMS, training, tolerance=1e-10)


def test_energy_forces_and_gradients_in_float32():
    check_same(VECTORS, FORMS, True, tolerance=2e-4)


@pytest.mark.usefixtures("_in_double")
def test_forces_are_differences_of_energies_and_turn():
    check_forces(SCALARS)


def test_models_made_before_or_under_the_patch_copied_and_loaded_take_the_fast_path():
    before, atoms = drawn(SCALARS)
    expected = results(before, atoms, False)
    with onehop.patch():
        under, _ = drawn(SCALARS)
        file = io.BytesIO()
        torch.save(before.module, file)
        file.seek(0)
        loaded = Potential(torch.load(file, weights_only=False), before.evaluate)
        copied = Potential(copy.deepcopy(before.module), before.evaluate)
        for potential in (before, under, loaded, copied):
            with reports.recorded() as calls:
                found = results(potential, atoms, False)
            assert [call.reason for call in calls] == [None] * 4
            torch.testing.assert_close(found[1], expected[1], rtol=1e-4, atol=1e-5)


def test_scripted_models_keep_maces_code():
    potential, atoms = drawn(SCALARS)
    expected = results(potential, atoms, False)
    with onehop.patch(), reports.recorded() as calls:
        scripted = jit.script(copy.deepcopy(potential.module))
        found = results(Potential(scripted, potential.evaluate), atoms, False)
    assert not calls
    assert torch.equal(found[1], expected[1])


def _block():
    potential, atoms = drawn(SCALARS)
    edges = atoms.edge_index.size(1)
    nodes, attributes = torch.randn(8, CHANNELS), torch.eye(10)[:8]
    return potential.module.interactions[1], (
        attributes, nodes, torch.randn(edges, (DEGREE + 1) ** 2), torch.randn(edges, 10), atoms.edge_index
    )  # fmt: skip


def test_a_hooked_product_sees_every_edge():
    block, args = _block()
    seen = []
    block.conv_tp.register_forward_hook(lambda module, inputs, out: seen.append(out.size(0)))
    expected = block(*args)[0]
    with onehop.patch(), reports.recorded() as calls:
        found = block(*args)[0]
    assert seen == [args[-1].size(1)] * 2
    assert [call.reason for call in calls] == ["hooks are registered on its tensor product"]
    assert torch.equal(found, expected)


def test_what_is_refused_late_runs_maces_code():
    class Named(torch.Tensor):
        pass

    block, (attributes, nodes, harmonics, lengths, edges) = _block()
    args = attributes, nodes, harmonics.as_subclass(Named), lengths, edges
    expected = block(*args)[0]
    with onehop.patch(), reports.recorded() as calls:
        found = block(*args)[0]
    assert [call.reason for call in calls] == [
        "its harmonics are not a dense float32 or float64 tensor on the CPU"
    ]
    torch.testing.assert_close(found, expected)


def test_a_block_of_other_kernels_keeps_its_own_attribute():
    block, args = _block()
    block.conv_fusion = "theirs"

    def fused(*inputs):
        assert len(inputs) == 4
        return torch.zeros(8, block.conv_tp.irreps_out.dim)

    block.conv_tp.forward = fused
    expected = block(*args)[0]
    with onehop.patch(), reports.recorded() as calls:
        assert block.conv_fusion == "theirs"
        assert torch.equal(block(*args)[0], expected)
    assert not calls


def test_nothing_is_left_behind():
    forward = TensorProduct.forward
    with onehop.patch(only="mace") as patch:
        assert "conv_fusion" in vars(InteractionBlock)
        assert any("InteractionBlock.conv_fusion" in name for name in onehop.patched())
        with patch.paused():
            assert not hasattr(InteractionBlock, "conv_fusion")
    assert not hasattr(InteractionBlock, "conv_fusion")
    assert TensorProduct.forward is forward


def test_other_callers_of_the_product_are_e3nns():
    product = TensorProduct(
        "2x0e", "0e", "2x0e", [(0, 0, 0, "uvu", True)], shared_weights=False, internal_weights=False
    )
    x, y, weights = torch.randn(5, 2), torch.randn(5, 1), torch.randn(5, 2)
    expected = product(x, y, weights)
    with onehop.patch(), reports.recorded() as calls:
        assert torch.equal(product(x, y, weights), expected)
    assert not calls


def test_the_report_names_the_products_of_each_block():
    block, args = _block()
    report = onehop.explain(block, *args)
    assert [(row.name, row.fast, row.framework) for row in report.layers] == [("conv_tp", True, "e3nn")]


def _contraction(make=VECTORS, nodes=6):
    potential, _ = drawn(make)
    contraction = potential.module.products[0].symmetric_contractions
    elements = torch.nn.functional.one_hot(torch.arange(nodes) % 4, 10).to(torch.get_default_dtype())
    return contraction, torch.randn(nodes, CHANNELS, (DEGREE + 1) ** 2, requires_grad=True), elements


def _with_gradients(contraction, x, elements):
    parameters = [each for each in contraction.parameters() if each.requires_grad]
    out = contraction(x, elements)
    first = torch.autograd.grad(out.square().sum(), [x, *parameters], create_graph=True)
    second = torch.autograd.grad(sum(each.square().sum() for each in first), [x, *parameters])
    return [out, *first, *second]


@pytest.mark.usefixtures("_in_double")
@pytest.mark.parametrize("nodes", [6, 1])
def test_contractions_and_two_derivatives(nodes):
    contraction, x, elements = _contraction(nodes=nodes)
    expected = _with_gradients(contraction, x, elements)
    with onehop.patch(), reports.recorded() as calls:
        found = _with_gradients(contraction, x, elements)
    assert [(call.reason, call.form) for call in calls] == [(None, "symmetric contraction")]
    for got, want in zip(found, expected, strict=True):
        torch.testing.assert_close(
            got, want, rtol=1e-10, atol=1e-10 * max(1.0, float(want.detach().abs().sum()))
        )


@pytest.mark.usefixtures("_in_double")
def test_a_contraction_follows_its_tables_and_weights():
    contraction, x, elements = _contraction(SCALARS)
    with onehop.patch() as patch:
        for change in ("nothing", "tables", "weights", "other tables"):
            with torch.no_grad():
                if change == "tables":
                    contraction.contractions[0].U_matrix_3[0, 1] += 0.5
                elif change == "weights":
                    contraction.contractions[0].weights_max.mul_(3)
                elif change == "other tables":
                    contraction.contractions[0].U_matrix_2 = contraction.contractions[0].U_matrix_2 * 2
            with patch.paused():
                expected = contraction(x, elements)
            with reports.recorded() as calls:
                found = contraction(x, elements)
            assert [call.reason for call in calls] == [None]
            torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_a_model_that_first_ran_in_inference_mode_can_be_trained():
    potential, atoms = drawn(VECTORS)
    expected = results(potential, atoms, True)
    block = potential.module.products[0].symmetric_contractions
    x, elements = torch.randn(8, CHANNELS, (DEGREE + 1) ** 2), torch.eye(10)[:8]
    with onehop.patch():
        with torch.inference_mode(), reports.recorded() as calls:
            block(x, elements)
        found = results(potential, atoms, True)
    assert [call.reason for call in calls] == [None]
    for got, want in zip(found, expected, strict=True):
        torch.testing.assert_close(got, want, rtol=2e-4, atol=2e-4 * float(want.abs().max()))


def test_weights_of_a_degree_without_entries():
    contraction, x, elements = _contraction(SCALARS)
    (inner,) = contraction.contractions
    inner.weights[0] = EmptyParam(inner.weights[0])
    expected = contraction(x, elements)
    with onehop.patch(), reports.recorded() as calls:
        torch.testing.assert_close(contraction(x, elements), expected)
    assert [call.reason for call in calls] == [None]


def test_contractions_that_are_left_to_mace():
    contraction, x, elements = _contraction(SCALARS)

    def reason(*args):
        with patch.paused():
            expected = contraction(*args)
        with reports.recorded() as calls:
            assert torch.equal(contraction(*args), expected)
        return calls[0].reason

    empty = x[:0], elements[:0]
    with pytest.raises(RuntimeError, match="cannot reshape"):
        contraction(*empty)
    with onehop.patch() as patch:
        with pytest.raises(RuntimeError, match="cannot reshape"):
            contraction(*empty)
        assert reason(x, elements * 0.5) == "its nodes are mixtures of elements"
        assert reason(x, elements.clone().requires_grad_()) == "its nodes are mixtures of elements"
        handle = contraction.contractions[0].register_forward_hook(lambda *args: None)
        assert reason(x, elements) == "hooks are registered on its symmetric contraction"
        handle.remove()
        with pytest.raises(RuntimeError, match=r"size|shape|subscript"):
            contraction(x[:, :, :5], elements)
