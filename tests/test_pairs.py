"""The forms that tests/pairs.py chooses."""

from itertools import combinations, product

import pytest

from tests.pairs import cover, spread

pytest_plugins = ["pytester"]

TESTS = """
    import pytest
    from tests.pairs import pairwise

    @pytest.fixture(params=["plain", "lifted"])
    def bounds(request):
        return request.param

    def exists(dtype, width):
        return (dtype, width) != ("half", 3)

    @pairwise(dtype=["half", "single"], width=[1, 2, 3], where=exists)
    @pytest.mark.parametrize(("heads", "layout"), [(1, "rows"), (2, "rows"), (1, "columns")])
    def test_pairs(bounds, dtype, width, heads, layout, request):
        print("form:", request.node.name, bounds, dtype, width, f"{heads}/{layout}")

    @pytest.mark.parametrize("one", [0, 1])
    @pytest.mark.parametrize("two", [0, 1])
    @pytest.mark.parametrize("three", [0, 1])
    def test_without_the_mark(one, two, three):
        pass
"""


def pairs_of(forms):
    return {
        (axes, form[axes[0]], form[axes[1]]) for form in forms for axes in combinations(range(len(form)), 2)
    }


@pytest.mark.parametrize(
    ("sizes", "most"),
    [
        ((4, 3), 12),
        ((91, 4, 3), 364),
        ((3, 4, 91), 364),
        ((3, 3, 3, 3), 9),
        ((2, 2, 2, 2), 6),
        ((5, 1, 1), 5),
        ((6, 5, 3, 2), 30),
    ],
)
def test_all_pairs_are_in_few_forms(sizes, most):
    forms = list(product(*map(range, sizes)))
    chosen = [forms[place] for place in sorted(cover(forms))]
    assert chosen[0] == forms[0]
    assert pairs_of(chosen) == pairs_of(forms)
    assert len(chosen) <= most


def test_pairs_of_forms_that_do_not_exist_are_not_wanted():
    forms = [form for form in product(range(5), range(4), range(3)) if form[0] != 2 or form[1:] == (1, 1)]
    chosen = [forms[place] for place in cover(forms)]
    assert (2, 1, 1) in chosen
    assert pairs_of(chosen) == pairs_of(forms)
    assert len(chosen) < len(forms) / 2


@pytest.fixture
def run(pytester, monkeypatch):
    """Runs the tests above, and returns the result and `test_pairs`: parameters by name of the form."""

    def run(kind, selected=""):
        monkeypatch.setenv("ONEHOP_TESTS", kind)
        pytester.makeini("[pytest]\nmarkers = pairwise")
        result = pytester.runpytest_inprocess(
            "-p", "tests.pairs", "-s", f"{pytester.makepyfile(TESTS)}{selected}"
        )
        lines = [line.partition("form: ")[2].split() for line in result.outlines if "form: " in line]
        return result, {name: tuple(parameters) for name, *parameters in lines}

    return run


def test_parameters_of_fixtures_and_other_decorators_join_in(run):
    (pairs, few), (full, every) = run("pairs"), run("all")
    full.assert_outcomes(passed=30 + 8, deselected=6)
    pairs.assert_outcomes(passed=len(few) + 8, deselected=36 - len(few))
    assert pairs_of(few.values()) == pairs_of(every.values())
    assert len(few) <= 10
    assert len(every) == 30
    assert not any(form[1:3] == ("half", "3") for form in every.values())


def test_a_form_that_is_named_runs(run):
    unchosen = next(iter(run("all")[1].keys() - run("pairs")[1]))
    assert list(run("pairs", f"::{unchosen}")[1]) == [unchosen]


def test_another_kind_is_refused(run):
    result, _ = run("some")
    result.stderr.fnmatch_lines("*ONEHOP_TESTS must be 'pairs' (the default) or 'all'; it is 'some'")


def test_values_are_spread_evenly_over_the_rows_of_a_name():
    rows = [(name, number) for name in "ab" for number in range(6)]
    forms = list(spread(rows, [1, 2, 3], ["x", "y"]))
    assert [form[:2] for form in forms] == rows
    assert forms == list(spread(rows, [1, 2, 3], ["x", "y"]))
    for name in "ab":
        values = [form[2:] for form in forms if form[0] == name]
        assert sorted(first for first, _ in values) == [1, 1, 2, 2, 3, 3]
        assert sorted(second for _, second in values) == ["x"] * 3 + ["y"] * 3
