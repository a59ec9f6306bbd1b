"""MACE under the patch (``make test-potentials``)."""

import copy
import io
from collections.abc import Iterator

import pytest
import torch

pytest.importorskip("mace.modules")

from e3nn.o3 import TensorProduct
from e3nn.util import jit
from mace.modules.blocks import InteractionBlock

import onehop
from benchmarks.equivariant.potentials import Potential, results
from onehop.integrations import reports
from tests.integrations.equivariant.potential_checks import check_forces, check_same, made

# e3nn 0.4 annotates empty lists in constructors.
pytestmark = pytest.mark.filterwarnings("ignore:The TorchScript type system")


@pytest.fixture
def _in_double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("_in_double")
@pytest.mark.parametrize("training", [False, True], ids=["forces", "training"])
@pytest.mark.parametrize("name", ["mace-small", "mace-medium"])
def test_energy_forces_and_gradients_in_float64(name, training):
    check_same(name, blocks=2, training=training, tolerance=1e-10)


def test_energy_forces_and_gradients_in_float32():
    check_same("mace-medium", blocks=2, training=True, tolerance=2e-4)


@pytest.mark.usefixtures("_in_double")
def test_forces_are_differences_of_energies_and_turn():
    check_forces("mace-small")


def test_models_made_before_or_under_the_patch_copied_and_loaded_take_the_fast_path():
    before, atoms = made("mace-small")
    expected = results(before, atoms, False)
    with onehop.patch():
        under, _ = made("mace-small")
        file = io.BytesIO()
        torch.save(before.module, file)
        file.seek(0)
        loaded = Potential(torch.load(file, weights_only=False), before.evaluate)
        copied = Potential(copy.deepcopy(before.module), before.evaluate)
        for potential in (before, under, loaded, copied):
            with reports.recorded() as calls:
                found = results(potential, atoms, False)
            assert [call.reason for call in calls] == [None, None]
            torch.testing.assert_close(found[1], expected[1], rtol=1e-4, atol=1e-5)


def test_scripted_models_keep_maces_code():
    potential, atoms = made("mace-small")
    expected = results(potential, atoms, False)
    with onehop.patch(), reports.recorded() as calls:
        scripted = jit.script(copy.deepcopy(potential.module))
        found = results(Potential(scripted, potential.evaluate), atoms, False)
    assert not calls
    assert torch.equal(found[1], expected[1])


def _block():
    potential, atoms = made("mace-small")
    edges = atoms.edge_index.size(1)
    nodes, attributes = torch.randn(8, 128), torch.eye(10)[:8]
    return potential.module.interactions[1], (
        attributes, nodes, torch.randn(edges, 16), torch.randn(edges, 10), atoms.edge_index
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
    assert [call.reason for call in calls] == ["its harmonics are not a dense tensor on the CPU"]
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
