"""Exit codes of commands that failed."""

import signal

# An impossible request, such as an unknown option.
BAD_REQUEST = 2
# Ended by Ctrl-C (SIGINT), as shells number it.
INTERRUPTED = 128 + signal.SIGINT
