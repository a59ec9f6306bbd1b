"""Rows of the patch table: functions, methods and static methods that are replaced, and restored."""

import importlib.util
import inspect
import pickle
import sys
import types

import pytest

from onehop.integrations.rows import everywhere, replaced, replacing, replacing_in
from onehop.ops.contexts import as_in_program


def plus(x, y=1, *, times=1):
    """Adds."""
    return (x + y) * times


class Base:
    def method(self, x):
        return x + 1

    @staticmethod
    def static(x):
        return x + 2


class Derived(Base):
    pass


def even(theirs, *args, **kwargs):
    """Negates the result of the function that it replaces, if the last argument is even."""
    return -theirs(*args, **kwargs) if args[-1] % 2 == 0 else None


@pytest.fixture
def module():
    made = types.ModuleType("made")
    made.plus = plus
    return made


def test_a_function_passes_for_the_one_that_it_replaces(module):
    row = replacing(module, "plus", even)
    row.install()
    assert module.plus is row.ours is not plus
    assert (module.plus(2, y=5, times=2), module.plus(3, times=4)) == (-14, 16)
    assert inspect.signature(module.plus) == inspect.signature(plus)
    assert (module.plus.__name__, module.plus.__doc__, row.name) == ("plus", "Adds.", "made.plus")
    assert replaced(module.plus) is plus
    row.restore()
    assert module.plus is plus


def test_modules_that_imported_a_function_have_rows_too(module, monkeypatch):
    """By any name, but for packages that PyG is built on; what is loaded lazily stays unloaded."""
    spec = importlib.util.find_spec("xml.sax.expatreader")
    lazy = importlib.util.module_from_spec(spec)
    importlib.util.LazyLoader(spec.loader).exec_module(lazy)
    user, below = types.ModuleType("user"), types.ModuleType("torch.below")
    user.added, user.others, below.plus = plus, [plus], plus
    for each in (module, user, below):
        monkeypatch.setitem(sys.modules, each.__name__, each)
    monkeypatch.setitem(sys.modules, "lazily", lazy)
    monkeypatch.setitem(sys.modules, "no.module", object())
    rows = everywhere([replacing(module, "plus", even)])
    # This module has it too.
    assert {row.name for row in rows} == {"made.plus", "user.added", f"{__name__}.plus"}
    assert len({row.ours for row in rows}) == 1
    for row in rows:
        row.install()
    assert (user.added(1, 2), user.others[0](1, 2), below.plus(1, 2)) == (-3, 3, 3)
    for row in rows:
        row.restore()
    assert user.added is module.plus is plus
    del user.added
    assert "user.later" not in {row.name for row in everywhere(rows)}
    # As many names as before.
    del user.others
    user.later = plus
    assert "user.later" in {row.name for row in everywhere(rows)}
    user.later, below.plus = None, None
    assert "user.later" not in {row.name for row in everywhere(rows)}
    user.later = plus
    assert "user.later" in {row.name for row in everywhere(rows)}
    assert type(lazy) is not types.ModuleType


def test_an_inherited_method_is_deleted_again():
    row = replacing(Derived, "method", even)
    row.install()
    assert (Derived().method(4), Derived().method(5), Base().method(4)) == (-5, 6, 5)
    assert pickle.loads(pickle.dumps(Derived().method))(4) == -5
    row.restore()
    assert "method" not in vars(Derived)
    assert Derived().method(4) == 5


def test_a_static_method_stays_static():
    before = vars(Base)["static"]
    row = replacing(Base, "static", even)
    row.install()
    assert (Base.static(4), Base().static(4), Base.static(5)) == (-6, -6, 7)
    row.restore()
    assert vars(Base)["static"] is before


def test_a_later_replacement_stays(module):
    row = replacing(module, "plus", even)
    row.install()
    module.plus = later = lambda x: x
    row.restore()
    assert module.plus is later


@pytest.mark.parametrize(
    ("traced", "expected"), [(None, 3), (lambda theirs, x: None, 3), (lambda theirs, x: 7, 7)]
)
def test_another_body_runs_in_programs(module, traced, expected):
    function = replacing(module, "plus", even, traced).ours
    assert function(2) == -3
    with as_in_program():
        assert function(2) == expected


def test_a_condition_holds_in_programs_too(module):
    holds = True
    function = replacing(module, "plus", even, where=lambda: holds).ours
    with as_in_program():
        assert (function(2), function(3)) == (-3, 4)
    holds = False
    assert function(2) == 3


def test_modules_share_one_function(module):
    same, other = types.ModuleType("same"), types.ModuleType("other")
    same.plus, other.plus = plus, lambda x: x
    rows = replacing_in((module, other, same), "plus", even)
    assert [row.owner for row in rows] == [module, same]
    assert rows[0].ours is rows[1].ours
