"""The run of a command line, from its first word to the end of the process.

This file imports no package of the extra ``cli``, so that it can report that the extra is missing.
"""

import sys

from onehop import extras
from onehop.cli.exit_codes import BAD_REQUEST
from onehop.cli.script import Handover
from onehop.errors import ConfigurationError


def run() -> None:
    """Run the command line and end the process."""
    hook = sys.excepthook
    try:
        with extras.needed("the command onehop", "cli"):
            from onehop.cli.app import app
    except ConfigurationError as error:
        sys.stderr.write(f"onehop: {error}\n")
        sys.exit(BAD_REQUEST)
    try:
        app(prog_name="onehop")
    except Handover as handover:
        program = handover.program
    sys.excepthook = hook  # Typer has set its own hook.
    # This runs outside of the handler above, where errors of the program would have a context.
    program.run()
