"""Ctrl-C: one sentence and the code 130, at any moment.

While torch is imported, a KeyboardInterrupt can pass through C++ code that aborts the process. So a handler
ends the process at once, except while a verb works, when the interrupt is raised as usual.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

from onehop.cli.exit_codes import INTERRUPTED

SENTENCE = "onehop: interrupted."


def _leave(number: int, frame: Any) -> None:
    """End the process at once; nothing has been written that must be finished."""
    with contextlib.suppress(OSError):
        os.write(sys.__stderr__.fileno() if sys.__stderr__ is not None else 2, f"{SENTENCE}\n".encode())
    os._exit(INTERRUPTED)


def end_at_once() -> None:
    """Make Ctrl-C end the process at once, unless whoever started it has set another way."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


@contextlib.contextmanager
def raised() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt inside the block, where a verb works and cleans up.

    After an interrupt, further ones are ignored, because the process is ending.
    """
    if signal.getsignal(signal.SIGINT) is not _leave:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise
    finally:
        end_at_once()  # has no effect after an interrupt
