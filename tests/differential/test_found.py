"""What the fuzzer found once stays mended."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest

from tests.differential.compare import Difference
from tests.differential.found import FOUND
from tests.differential.isolated import verdicts


@pytest.fixture(scope="module")
def found() -> dict[str, Difference | None]:
    """How each of the programs differs, from a process of their own: some of them once crashed it."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return dict(zip(FOUND, pool.submit(verdicts, list(FOUND.values())).result(), strict=True))


@pytest.mark.parametrize("name", FOUND)
def test_program_does_the_same_with_and_without_the_patch(name, found):
    assert found[name] is None, f"{found[name]}\n{FOUND[name].listed()}"
