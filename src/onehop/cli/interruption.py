"""Ctrl-C on the command line."""

import signal

# Exit code of a command that SIGINT ended, as shells have it.
INTERRUPTED = 128 + signal.SIGINT
