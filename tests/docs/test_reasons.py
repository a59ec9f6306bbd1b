"""The page of reasons has every sentence that explain can print."""

import ast

import pytest

from tests import scripts

script = scripts.load("reasons")


def test_every_sentence_has_an_entry_and_every_entry_a_sentence() -> None:
    script.main()


def test_no_anchor_has_two_entries() -> None:
    found = script.entries()
    assert len(found) > 150
    assert len(set(found.values())) == len(found)


def test_a_sentence_without_an_entry_and_one_that_is_gone_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = script.entries()
    lost = found.pop("the features are sparse")
    monkeypatch.setattr(script, "entries", lambda: {**found, "it is Monday": lost})
    with pytest.raises(SystemExit, match="no entry: the features are sparse\nno sentence: it is Monday"):
        script.main()


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ('raise Leave("it is odd")', ["it is odd"]),
        ('need(x, f"{IT} on {x.device}")', ["edge_index on …"]),
        ('refuse(layer, "one" if x else "two")', ["one", "two"]),
        ('def reason(x) -> str | None:\n    return x or "it is odd"', ["it is odd"]),
        ('def other(x) -> str:\n    return "no sentence"', []),
        ("need(x)", []),
    ],
)
def test_sentences_are_found(code: str, expected: list[str]) -> None:
    names = {"IT": ast.Constant("edge_index")}
    tree = ast.parse(code)
    assert [text for node in script.said(tree) for text in script.texts(node, names)] == expected
