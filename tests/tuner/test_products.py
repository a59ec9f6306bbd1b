"""The library of a product: measured before its first use, then the same; kept on disk."""

import json
import logging
import math

import pytest
import torch
from hypothesis import given, strategies as st

from onehop.errors import ArgumentError
from onehop.kernels import products as kernels
from onehop.kernels.products import FORWARD, KINDS, ONEDNN, TO_INPUT, TO_WEIGHT, TORCH, libraries
from onehop.plans import store
from onehop.tuner import products
from onehop.tuner.products import Chosen, Outcome, ShapeClass

ROWS, INPUTS, OUTPUTS = 300, 20, 12


@pytest.fixture
def new_process(own_cache, monkeypatch):
    """Forgets what this process has chosen; calling it again does so again."""

    def begin() -> None:
        monkeypatch.setattr(products, "_chosen", {})
        monkeypatch.setattr(products, "_loaded", False)

    begin()
    return begin


@pytest.fixture
def wins(monkeypatch):
    """Names the library that trials find from here on, and counts them."""
    trials = []

    def set_winner(name: str, decided: bool = True) -> list[ShapeClass]:
        def measured(case):
            trials.append(case)
            return Outcome(name, decided, {"oneDNN": (1.0, 1.5, 2.0)})

        monkeypatch.setattr(products, "measured", measured)
        return trials

    return set_winner


def chosen(kind=FORWARD, rows=ROWS):
    run = products.library(kind, rows, INPUTS, OUTPUTS)
    return next(name for name, each in libraries(kind).items() if each is run)


def test_a_class_is_measured_once(new_process, wins):
    trials = wins(ONEDNN)
    assert chosen() == ONEDNN
    wins(TORCH)
    assert chosen() == ONEDNN
    assert len(trials) == 1


@pytest.mark.usefixtures("new_process")
def test_products_and_threads_have_choices_of_their_own(wins):
    trials = wins(ONEDNN)
    for count in (1, 2):
        torch.set_num_threads(count)
        for kind in KINDS:
            chosen(kind)
    assert [(case.kind, case.threads) for case in trials] == [(k, count) for count in (1, 2) for k in KINDS]


def test_a_choice_is_kept_for_the_next_process(new_process, wins):
    trials = wins(ONEDNN)
    chosen()
    new_process()
    wins(TORCH)
    assert chosen() == ONEDNN
    assert len(trials) == 1
    assert [each.library for each in products.known()] == [ONEDNN]


def test_what_noise_left_open_lasts_for_the_process_alone(new_process, wins):
    trials = wins(TORCH, decided=False)
    assert chosen() == chosen() == TORCH
    assert len(trials) == 1
    new_process()
    wins(ONEDNN)
    assert chosen() == ONEDNN


def test_earlier_choices_are_left_alone_where_tuned_plans_are(new_process, wins, monkeypatch):
    wins(ONEDNN)
    chosen()
    new_process()
    monkeypatch.setenv("ONEHOP_TUNED", "0")
    wins(TORCH)
    assert chosen() == TORCH
    new_process()
    monkeypatch.setenv("ONEHOP_TUNED", "1")
    assert chosen() == ONEDNN


def forget(monkeypatch):
    products.forget()
    assert products.known() == []


@pytest.mark.parametrize("change", [lambda patch: patch.setattr(torch, "__version__", "99.0"), forget])
def test_another_torch_and_forget_measure_anew(change, new_process, wins, monkeypatch):
    wins(ONEDNN)
    chosen()
    change(monkeypatch)
    new_process()
    wins(TORCH)
    assert chosen() == TORCH


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: text.replace("oneDNN", "twoDNN"),
        lambda text: text.replace('"rows": ', '"rows": 1'),
        lambda text: json.dumps(json.loads(text) | {"plans": 3}),
    ],
    ids=["half of it", "empty", "another library", "another number", "no list"],
)
def test_a_damaged_file_stops_nothing(damage, new_process, wins, caplog):
    wins(ONEDNN)
    chosen()
    file = products.store_path()
    file.write_text(damage(file.read_text()))
    new_process()
    wins(TORCH)
    with caplog.at_level(logging.WARNING, "onehop"):
        assert chosen() == TORCH
    assert "is damaged" in caplog.text
    new_process()
    assert chosen() == TORCH  # and the file is a good one again


@pytest.mark.parametrize(
    "entry",
    [
        3,
        {"library": "oneDNN"},
        {"case": {"kind": FORWARD}, "library": "oneDNN", "gains": {}},
        {"case": {}, "library": "oneDNN", "gains": {"oneDNN": [1.0, 2.0]}},
        {"case": {}, "library": "oneDNN", "gains": {"oneDNN": [1.0, 2.0, math.inf]}},
        {"case": ShapeClass("other", 1, 1, 1, 1)._asdict(), "library": "oneDNN", "gains": {}},
        {"case": ShapeClass(FORWARD, 0, 1, 1, 1)._asdict(), "library": "oneDNN", "gains": {}},
        {"case": ShapeClass(FORWARD, 1, 1, 1, 1, "float16")._asdict(), "library": "oneDNN", "gains": {}},
        {"case": ShapeClass(FORWARD, 1.5, 1, 1, 1)._asdict(), "library": "oneDNN", "gains": {}},
    ],
)
def test_entries_that_were_never_written_are_refused(entry, new_process, wins):
    with pytest.raises(ArgumentError, match="product: "):
        Chosen.from_dict(entry)
    store.save([entry] if isinstance(entry, dict) else [{"case": entry}], products._machine())
    wins(TORCH)
    assert chosen() == TORCH


def test_a_choice_survives_its_file():
    kept = Chosen(ShapeClass.of(TO_WEIGHT, 5000, 128, 40, 2), ONEDNN, {ONEDNN: (1.1, 1.25, 1.5)})
    assert Chosen.from_dict(json.loads(json.dumps(kept.to_dict()))) == kept


def test_a_library_that_is_gone_is_measured_anew(new_process, wins, monkeypatch):
    wins(ONEDNN)
    chosen()
    new_process()
    wins(TORCH)
    monkeypatch.setattr(kernels, "_onednn", lambda: None)
    libraries.cache_clear()
    try:
        assert list(libraries(FORWARD)) == [TORCH]
        assert chosen() == TORCH
    finally:
        libraries.cache_clear()


@pytest.mark.parametrize("kind", KINDS)
def test_a_library_can_be_forced(kind):
    for name, run in libraries(kind).items():
        with products.forced(name):
            assert products.library(kind, ROWS, INPUTS, OUTPUTS) is run
    with products.forced("none of them"):
        assert products.library(kind, ROWS, INPUTS, OUTPUTS) is libraries(kind)[TORCH]


def test_a_library_wins_by_more_than_the_spread():
    ours = [10.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0]
    clear = products.judged({TORCH: ours, "a": [8.0] * 7, "b": [5.0] * 7})
    assert (clear.library, clear.decided) == ("b", True)
    assert clear.gains["a"] == (1.25, 1.25, 1.25)
    noisy = products.judged({TORCH: ours, "a": [5.0, 15.0, 5.0, 15.0, 5.0, 15.0, 5.0]})
    assert (noisy.library, noisy.decided) == (TORCH, False)
    close = products.judged({TORCH: ours, "a": [9.9] * 7})
    assert (close.library, close.decided) == (TORCH, True)
    # One quiet round in torch's favour does not count against a clear winner.
    assert products.judged({TORCH: [1.0, *ours[1:]], "a": [5.0] * 7}).library == "a"
    assert products.judged({TORCH: ours}) == Outcome(TORCH, True, {})


def _clock(seconds):
    """A clock by which libraries, in their order, take these times, round after round."""
    calls = iter(range(10**6))

    def clock(call):
        call()
        return seconds[next(calls) % len(seconds)]

    return clock


@pytest.mark.parametrize("kind", KINDS)
def test_trials(kind):
    case = ShapeClass.of(kind, ROWS, INPUTS, OUTPUTS, 1)
    names = list(libraries(kind))
    last = products.measured(case, _clock([2.0] * (len(names) - 1) + [1.0]))
    assert last.library == names[-1]
    assert products.measured(case, _clock([1.0] * len(names))).library == TORCH


def test_a_noisy_trial_is_repeated(monkeypatch):
    case = ShapeClass.of(FORWARD, ROWS, INPUTS, OUTPUTS, 1)
    rounds = []
    outcomes = [Outcome(TORCH, False, {}), Outcome(ONEDNN, True, {})]
    monkeypatch.setattr(products, "judged", lambda times: rounds.append(times) or outcomes[len(rounds) - 1])
    assert products.measured(case, _clock([1.0])).library == ONEDNN
    assert len(rounds) == 2


def test_a_library_that_computes_something_else_is_not_used(monkeypatch):
    right = libraries(FORWARD)[TORCH]
    wrong = {TORCH: right, "wrong": lambda *of: right(*of) * 1.01, "short": lambda *of: right(*of)[1:]}
    monkeypatch.setattr(products, "libraries", lambda kind: wrong)
    case = ShapeClass.of(FORWARD, ROWS, INPUTS, OUTPUTS, 1)
    assert list(products._runs(case)) == [TORCH]


@pytest.mark.parametrize("kind", KINDS)
def test_trials_leave_the_random_numbers_alone(kind):
    state = torch.get_rng_state()
    products.measured(ShapeClass.of(kind, ROWS, INPUTS, OUTPUTS, 1))
    assert torch.equal(torch.get_rng_state(), state)


@given(st.integers(1, 1 << 40), st.integers(1, 1 << 20), st.integers(1, 1 << 20), st.integers(1, 64))
def test_a_class_is_no_larger_than_its_members(rows, inputs, outputs, threads):
    case = ShapeClass.of(FORWARD, rows, inputs, outputs, threads)
    assert 1 <= case.rows <= rows
    assert inputs / 1.25 < case.inputs <= inputs
    assert outputs / 1.25 < case.outputs <= outputs
    assert ShapeClass.of(FORWARD, *case[1:5]) == case
    assert ShapeClass.of(FORWARD, rows + 1, inputs, outputs, threads).rows >= case.rows


def test_many_rows_are_one_class():
    few, many = (ShapeClass.of(TO_INPUT, rows, 256, 256, 2) for rows in (169_343, 10**8))
    assert few == many == ShapeClass(TO_INPUT, 4096, 256, 256, 2)
    assert ShapeClass.of(TO_INPUT, 1000, 256, 256, 2).rows == 512
    assert str(many) == "gradient to the input, 256 to 256 columns, from 4096 rows on, 2 threads"
