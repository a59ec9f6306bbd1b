"""NequIP under the patch (``make test-potentials``)."""

from collections.abc import Iterator

import pytest
import torch

pytest.importorskip("nequip.nn")

from nequip.nn._tp_scatter_base import TensorProductScatter

import onehop
from benchmarks.equivariant.potentials import POTENTIALS, results
from onehop.integrations import reports
from tests.integrations.equivariant.potential_checks import check_forces, check_same, drawn


@pytest.fixture(autouse=True)
def _in_double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("training", [False, True], ids=["forces", "training"])
@pytest.mark.parametrize(("name", "blocks"), [("nequip-small", 2), ("nequip-medium", 4)])
def test_energy_forces_and_gradients(name, blocks, training):
    check_same(POTENTIALS[name], ["tensor product"] * blocks, training, tolerance=1e-10)


def test_forces_are_differences_of_energies_and_turn():
    check_forces(POTENTIALS["nequip-small"])


def test_a_hooked_product_sees_every_edge():
    potential, atoms = drawn(POTENTIALS["nequip-small"])
    products = [each for each in potential.module.modules() if isinstance(each, TensorProductScatter)]
    seen = []
    products[0].tp.register_forward_hook(lambda module, inputs, out: seen.append(out.size(0)))
    expected = results(potential, atoms, False)
    with onehop.patch(), reports.recorded() as calls:
        found = results(potential, atoms, False)
    assert seen == [atoms.edge_index.size(1)] * 2
    assert [call.reason for call in calls] == ["hooks are registered on its tensor product", None]
    torch.testing.assert_close(found, expected)


def test_nothing_is_left_behind():
    forward = TensorProductScatter.forward
    with onehop.patch(only="nequip"):
        assert TensorProductScatter.forward is not forward
    assert TensorProductScatter.forward is forward
