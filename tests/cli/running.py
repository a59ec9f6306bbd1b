"""Runs the command line inside the test's process."""

from typer.testing import CliRunner

from onehop.cli.app import app


def onehop(*arguments):
    """The result of ``onehop ARGUMENTS``; whatever it did not expect is raised here."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result
