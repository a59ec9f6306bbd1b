"""Values for the length of a block: left in any order, in several threads and tasks."""

import asyncio
import contextvars
import threading
from collections.abc import Iterator

import pytest

from onehop import thresholds
from onehop.integrations import reports
from onehop.integrations.rows import counted, counting
from onehop.ops.contexts import as_in_program, as_program
from onehop.reference.independent import independent, runs_specification
from onehop.scopes import Scoped
from onehop.tuner import products


def test_blocks_may_end_in_the_order_in_which_they_began() -> None:
    scoped = Scoped("test", 0)
    first, second, third = scoped.set(1), scoped.set(2), scoped.set(3)
    seen = [scoped.get()]
    for each in (first, second, third):
        each.__enter__()
        seen.append(scoped.get())
    for each in (second, first, third):
        each.__exit__(None, None, None)
        seen.append(scoped.get())
    assert seen == [0, 1, 2, 3, 3, 3, 0]
    assert scoped.live == []


def test_a_thread_sees_its_own_value_and_those_for_all() -> None:
    scoped = Scoped("test", 0)
    seen: list[int] = []

    def look() -> None:
        seen.append(scoped.get())
        with scoped.set(5):
            seen.append(scoped.get())

    def run() -> None:
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()

    with scoped.set(1):
        run()
        with scoped.set(2, everywhere=True):
            assert scoped.get() == 2
            run()
            with scoped.set(3):
                assert scoped.get() == 3
                run()
    assert seen == [0, 5, 2, 5, 2, 5]


def test_a_block_that_another_thread_ends_is_over_where_it_began() -> None:
    scoped = Scoped("test", 0)
    block = scoped.set(1)
    block.__enter__()
    thread = threading.Thread(target=block.__exit__, args=(None, None, None))
    thread.start()
    thread.join()
    assert (scoped.get(), scoped.live) == (0, [])


def test_a_task_forgets_a_block_that_ended_around_it() -> None:
    scoped = Scoped("test", 0)

    async def run() -> list[int]:
        seen = []
        go = asyncio.Event()

        async def task() -> None:
            seen.append(scoped.get())
            await go.wait()
            seen.append(scoped.get())

        with scoped.set(1):
            made = asyncio.create_task(task())
            await asyncio.sleep(0)
        go.set()
        await made
        return seen

    assert asyncio.run(run()) == [1, 0]


def test_an_error_ends_a_block() -> None:
    scoped = Scoped("test", 0)
    with pytest.raises(KeyError), scoped.set(1):
        raise KeyError
    assert scoped.get() == 0


# Those of the package

BLOCKS = {
    "recorded": (reports.recorded, reports.recording),
    "counted": (counted, lambda: counting.get() is not None),
    "as in a program": (as_in_program, as_program.get),
    "a specification": (independent, runs_specification.get),
    "a library for products": (lambda: products.forced("none"), lambda: products._forced.get() is not None),
    "thresholds": (thresholds.lifted, lambda: thresholds.now is thresholds.NONE),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_generators_leave_nothing_behind(name: str) -> None:
    make, is_on = BLOCKS[name]
    before = is_on()

    def inside() -> Iterator[None]:
        with make():
            yield

    generators = [inside() for _ in range(3)]
    for each in generators:
        next(each)
        assert is_on()
    for each in generators:
        each.close()
    assert is_on() == before


@pytest.mark.parametrize("name", sorted(set(BLOCKS) - {"thresholds"}))
def test_another_thread_does_not_notice(name: str) -> None:
    make, is_on = BLOCKS[name]
    with make():
        assert is_on()
        assert not contextvars.Context().run(is_on)
        seen: list[bool] = []
        thread = threading.Thread(target=lambda: seen.append(is_on()))
        thread.start()
        thread.join()
    assert seen == [False]
