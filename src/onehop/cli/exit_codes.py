"""Exit codes of commands that did not do what they were asked for."""

import signal

# Asked for something impossible, as for unknown options.
BAD_REQUEST = 2
# Ended by Ctrl-C (SIGINT), as shells have it.
INTERRUPTED = 128 + signal.SIGINT
