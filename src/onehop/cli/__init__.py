"""The command line: ``onehop demo``, ``onehop bench``, ``onehop info``, ``onehop tune``."""

from onehop.cli.app import app, main

__all__ = ["app", "main"]
