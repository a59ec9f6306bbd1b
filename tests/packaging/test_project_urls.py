"""What a released package links to: the repository whose workflow built it."""

import tomllib
from pathlib import Path

import pytest

from tests import scripts

urls = scripts.load("project_urls")
ROOT = Path(__file__).resolve().parents[2]
HOME = "https://github.com/somebody/onehop"


def test_addresses_are_added_and_nothing_else_changes() -> None:
    before = (ROOT / "pyproject.toml").read_text()
    after = tomllib.loads(urls.with_urls(before, HOME))
    added = after["project"].pop("urls")
    assert after == tomllib.loads(before)
    assert added["Source"] == HOME
    assert added["Issues"] == f"{HOME}/issues"
    assert all(address.startswith(HOME) for address in added.values())


def test_pages_that_addresses_name_exist() -> None:
    pages = [place.removeprefix("/blob/main/") for place in urls.PLACES.values() if "/blob/" in place]
    assert pages
    for page in pages:
        assert (ROOT / page).is_file(), page


@pytest.mark.parametrize("home", ["", "onehop", "http://github.com/a/b", f"{HOME}/", f'{HOME}"'])
def test_what_is_no_address_is_refused(home: str) -> None:
    with pytest.raises(SystemExit, match="Expected a repository's address"):
        urls.with_urls((ROOT / "pyproject.toml").read_text(), home)


def test_addresses_are_not_written_twice() -> None:
    once = urls.with_urls((ROOT / "pyproject.toml").read_text(), HOME)
    with pytest.raises(SystemExit, match="already"):
        urls.with_urls(once, HOME)


def test_the_release_workflow_writes_them_before_it_builds() -> None:
    workflow = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    call = 'python scripts/project_urls.py "$GITHUB_SERVER_URL/$GITHUB_REPOSITORY"'
    for build in ("pipx run build", "uses: pypa/cibuildwheel"):
        assert (
            0
            <= workflow.find(call, workflow.rfind("actions/checkout", 0, workflow.find(build)))
            < workflow.find(build)
        )
