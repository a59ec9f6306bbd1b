"""Exit codes of commands that failed."""

import signal

# For an impossible request, such as an unknown option.
BAD_REQUEST = 2
# For a run ended by Ctrl-C (SIGINT), with the number that shells use.
INTERRUPTED = 128 + signal.SIGINT
