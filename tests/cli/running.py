"""Runs the command line inside the test's process."""

import json
from itertools import chain

from typer.testing import CliRunner

from onehop.cli.app import app


def onehop(*arguments):
    """The result of ``onehop ARGUMENTS``; a string may hold several of them.

    Exceptions that the command did not expect are raised here.
    """
    words = [each.split() if isinstance(each, str) else [str(each)] for each in arguments]
    result = CliRunner().invoke(app, list(chain.from_iterable(words)), prog_name="onehop")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def written(path, *arguments):
    """The JSON that ``onehop ARGUMENTS --json PATH`` writes, and what it prints."""
    result = onehop(*arguments, "--json", path)
    assert result.exit_code == 0, result.output
    return json.loads(path.read_text()), result.stdout
