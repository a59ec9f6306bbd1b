"""The command line: ``onehop demo``, ``onehop bench``, ``onehop info``, and others."""

import importlib

from onehop.cli import interrupts


def main() -> None:
    """Run the command line and end the process; Ctrl-C ends it with one sentence from here on."""
    interrupts.end_at_once()
    importlib.import_module("onehop.cli.entry").run()
