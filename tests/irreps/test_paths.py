import copy
import pickle

import pytest
import torch

from onehop import ArgumentError, TensorPaths, reference
from onehop.irreps import Irrep, tables_of
from onehop.irreps.paths import of_text

MIXED = TensorPaths("5x0e+3x1o", "0e+1o", "5x0e+7x0e+3x1o", [(0, 0, 0), (1, 1, 1, "uvw", 0.3), (1, 0, 2)])


def test_sizes():
    assert (MIXED.dim_x, MIXED.dim_harmonics, MIXED.dim_out) == (14, 4, 21)
    assert MIXED.weight_shapes == ((5,), (3, 7), (3,))
    assert MIXED.weight_numel == 29
    assert MIXED.x == (Irrep(5, 0, 1), Irrep(3, 1, -1))
    assert (MIXED.x_irreps, MIXED.harmonics_irreps, MIXED.out_irreps) == (
        "5x0e+3x1o", "1x0e+1x1o", "5x0e+7x0e+3x1o",
    )  # fmt: skip


def test_all_paths_between():
    paths = TensorPaths.between("4x0e + 2x1o", "0e+1o", up_to=1)
    assert paths.out_irreps == "4x0e+4x1o+2x1o+2x0e+2x1e"
    assert [path[:3] for path in paths.paths] == [(0, 0, 0), (0, 1, 1), (1, 0, 2), (1, 1, 3), (1, 1, 4)]


@pytest.mark.parametrize("up_to", [0, 2, 4])
def test_each_entry_has_variance_one(up_to):
    paths = TensorPaths.between("1x0e+1x1o+1x2e", "0e+1o+2e", up_to=up_to)
    numbers = torch.Generator().manual_seed(0)
    x, y, w = (
        torch.randn(40_000, size, generator=numbers)
        for size in (paths.dim_x, paths.dim_harmonics, paths.weight_numel)
    )
    edges = torch.arange(40_000).expand(2, -1)
    out = reference.tensor_product(edges, x, y, w, paths, x.size(0))
    torch.testing.assert_close(out.var(0), torch.ones(paths.dim_out), rtol=0.15, atol=0)


def test_factors_by_hand():
    """The components of the output times the weight, by the number of products that are added up."""
    paths = TensorPaths("2x0e+3x1o", "0e+1o", "4x1o", [(0, 1, 0, "uvw"), (1, 0, 0, "uvw", 0.25)]).paths
    assert [path.factor**2 for path in paths] == pytest.approx([3 / 5, 3 * 0.25 / 5])


def test_factors_beside_e3nn():
    o3 = pytest.importorskip("e3nn.o3")
    places = [(0, 0, 0, "uvu"), (0, 1, 2, "uvw"), (1, 0, 2, "uvw"), (1, 1, 1, "uvw"), (1, 1, 3, "uvu")]
    irreps = "4x0e+3x1o", "0e+1o", "4x0e+5x0e+6x1o+3x1e"
    weights = [1.0, 0.5, 2.0, 0.0, 3.0]
    theirs = o3.TensorProduct(*irreps, [(*at, True, w) for at, w in zip(places, weights, strict=True)])
    ours = TensorPaths(*irreps, [(*at, w) for at, w in zip(places, weights, strict=True)])
    assert [path.factor for path in ours.paths] == pytest.approx([i.path_weight for i in theirs.instructions])
    assert ours.weight_numel == theirs.weight_numel
    assert TensorPaths(*map(o3.Irreps, irreps), places) == TensorPaths(*irreps, places)


def test_paths_are_equal_if_they_compute_the_same():
    again = TensorPaths(
        " 5x0e+3x1o", "1x0e+1x1o", "5x0e+7x0e+3x1o", [[0, 0, 0], [1, 1, 1, "uvw", 0.3], [1, 0, 2]]
    )
    assert again == MIXED
    assert hash(again) == hash(MIXED)
    assert again is not MIXED
    other = TensorPaths("5x0e+3x1o", "0e+1o", "5x0e+7x0e+3x1o", [(0, 0, 0), (1, 1, 1, "uvw", 0.3)])
    assert other != MIXED
    assert MIXED.text != MIXED
    for same in (copy.deepcopy(MIXED), pickle.loads(pickle.dumps(MIXED)), of_text(MIXED.text)):
        assert same == MIXED
        assert same.paths == MIXED.paths
    assert repr(MIXED) == "TensorPaths('5x0e+3x1o', '1x0e+1x1o', '5x0e+7x0e+3x1o', 3 paths)"


def test_paths_cannot_be_changed():
    with pytest.raises(AttributeError, match="cannot be changed"):
        MIXED.dim_x = 3
    with pytest.raises(AttributeError, match="cannot be changed"):
        del MIXED.paths
    assert MIXED.dim_x == 14


def test_paths_of_nothing():
    nothing = TensorPaths("", "", "", [])
    assert (nothing.dim_x, nothing.dim_out, nothing.weight_numel) == (0, 0, 0)
    assert of_text(nothing.text) == nothing
    assert tables_of(nothing.text, False).paths.shape == (0, 7)
    without = TensorPaths("0x1o", "1o", "0x0e", [(0, 0, 0)])
    assert without.weight_numel == 0
    assert not tables_of(without.text, True).paths.numel()


def test_mixing_paths_get_irreps_of_their_own():
    alone = MIXED.unmixed
    assert alone.out_irreps == "5x0e+0x0e+3x1o+3x0e"
    assert [path.mode for path in alone.paths] == ["uvu"] * 3
    assert alone.unmixed is alone
    spread = MIXED.spread
    assert (spread.x_irreps, spread.out_irreps) == ("5x0e+3x1o+21x1o", "5x0e+0x0e+3x1o+21x0e")
    assert spread.weight_numel == MIXED.weight_numel


def test_turned_tables_have_the_same_terms():
    text = TensorPaths.between("2x0e+2x1o", "0e+1o+2e", up_to=2).text

    def terms(turned: bool) -> set[tuple[float, ...]]:
        tables, found = tables_of(text, turned), set()
        for x, out, weight, channels, _, begin, end in tables.paths.tolist():
            for k, first, last in tables.groups[begin:end].tolist():
                for i, *span in tables.pairs[first:last].tolist():
                    for t in range(*span):
                        ends = x + i * channels, out + k * channels
                        found.add(
                            (
                                *(ends[::-1] if turned else ends),
                                weight,
                                tables.columns[t].item(),
                                tables.factors[t].item(),
                            )
                        )
        return found

    assert terms(False) == terms(True)
    assert len(terms(False)) == tables_of(text, False).factors.numel() == 59


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("8y0e", "0e", "8x0e", []), "x: expected irreps such as \"32x0e.16x1o\", got '8y0e'"),
        (("8x0e+", "0e", "8x0e", []), "x: expected irreps"),
        (("8x0e", "5e", "8x0e", []), "harmonics: expected degrees l up to 4, got '5e'"),
        (("8x0e", "2x0e", "8x0e", []), "harmonics: expected irreps of multiplicity 1, got '2x0e'"),
        (("8x0e", "0e", None, []), "out: expected irreps"),
        (("8x0e", "0e", "8x0e", [(0, 0)]), "instructions: expected tuples"),
        (("8x0e", "0e", "8x0e", [3]), "instructions: expected tuples"),
        (("8x0e", "0e", "8x0e", [(0, 0, 0, "uvu", 1.0, 1)]), "instructions: expected tuples"),
        (("8x0e", "0e", "8x0e", [(0, 0, 1)]), r"\(0, 0, 1\) names irrep 1 of out, which has 1: '8x0e'"),
        (("8x0e", "0e", "8x0e", [(-1, 0, 0)]), "names irrep -1 of x"),
        (("8x0e", "0e", "8x0e", [(0, True, 0)]), "names irrep True of harmonics"),
        (("8x0e", "0e", "8x0e", [(0, 0, 0, "uuu")]), "expected one of uvu, uvw, got 'uuu'"),
        (("8x0e", "0e", "8x0e", [(0, 0, 0, "uvu", True)]), "expected a finite weight, got True"),
        (("8x0e", "0e", "8x0e", [(0, 0, 0, "uvu", float("nan"))]), "expected a finite weight"),
        (("8x0e", "0e", "8x0e", [(0, 0, 0, "uvu", -1.0)]), "expected weights of 0 or more, got -1.0"),
        (("8x0e", "1o", "8x0o", [(0, 0, 0)]), "no product of 8x0e and 1x1o has degree 0, as 8x0o of"),
        (("8x1o", "1o", "8x3e", [(0, 0, 0)]), "degrees go from 0 to 2"),
        (("8x1o", "1o", "8x1o", [(0, 0, 0)]), "a product of 8x1o and 1x1o has parity e, and 8x1o"),
        (("8x1o", "1o", "4x1e", [(0, 0, 0)]), '"uvu" keeps the channels, but 8x1o has 8 and 4x1e'),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        TensorPaths(*arguments)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "8x0e|0e|8x0e",
        "8x0e|0e|8x0e|0,0,0,uvu",
        "8x0e|0e|8x0e|a,0,0,uvu,0x1p+0",
        "8x0e|0e|8x1o|0,0,0,uvu,0x1p+0",
        "8x0e|2x0e|8x0e|0,0,0,uvu,0x1p+0",
        "8x0e|0e|8x0e|0,0,3,uvu,0x1p+0",
    ],
)
def test_bad_texts(text):
    with pytest.raises(ArgumentError):
        of_text(text)


def test_kernels_have_no_tables_of_mixing_paths():
    with pytest.raises(ArgumentError, match='kernels take paths of mode "uvu"'):
        tables_of(MIXED.text, False)


@pytest.mark.parametrize("up_to", [-1, 5, 1.0, True, None])
def test_bad_degrees(up_to):
    with pytest.raises(ArgumentError, match="up_to: expected a degree from 0 to 4"):
        TensorPaths.between("8x1o", "1o", up_to=up_to)


def test_factors_as_they_are():
    steps = [(0, 0, 0, "uvu", -2.5), (1, 1, 1, "uvw"), (1, 0, 2, "uvu", 0)]
    paths = TensorPaths.with_factors("5x0e+3x1o", "0e+1o", "5x0e+7x0e+3x1o", steps)
    assert [path.factor for path in paths.paths] == [-2.5, 1.0, 0.0]
    assert of_text(paths.text) == paths
    assert TensorPaths.with_factors(*irreps_of(MIXED), MIXED.paths) == MIXED
    with pytest.raises(ArgumentError, match="names irrep 3 of out"):
        TensorPaths.with_factors(*irreps_of(MIXED), [(0, 0, 3)])


def irreps_of(paths: TensorPaths) -> tuple[str, str, str]:
    return paths.x_irreps, paths.harmonics_irreps, paths.out_irreps
