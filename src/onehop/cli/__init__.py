"""The command line: ``onehop demo``, ``onehop bench``, ``onehop info``, and others.

This file imports nothing that the extra ``cli`` brings, so that it can say when the extra is missing.
"""

import sys

from onehop import extras
from onehop.cli.exit_codes import BAD_REQUEST, INTERRUPTED
from onehop.cli.script import Handover
from onehop.errors import ConfigurationError


def main() -> None:
    """Runs the command line and ends the process."""
    hook = sys.excepthook
    try:
        with extras.needed("the command onehop", "cli"):
            from onehop.cli.app import app
    except ConfigurationError as error:
        sys.stderr.write(f"onehop: {error}\n")
        sys.exit(BAD_REQUEST)
    except KeyboardInterrupt:
        sys.stderr.write("onehop: interrupted.\n")
        sys.exit(INTERRUPTED)
    try:
        app(prog_name="onehop")
    except Handover as handover:
        program = handover.program
    sys.excepthook = hook  # Typer has set its own.
    # Outside of the handler above: there, errors of the program would have a context.
    program.run()
