"""The C library's memory policy: asked for at the first gain, given back when nobody wants it."""

import json
import os
import subprocess
import sys

import pytest

PROGRAM = """
import json, torch
from onehop import native
from onehop.integrations import memory, session
from onehop.integrations.settings import Settings

class Extension:
    asked = []
    def keep_freed_memory(self, keep):
        self.asked.append(keep)

def allow(keep):
    kept = memory.after(keep)
    session.enter(session.Session(settings=Settings(keep_memory=keep), memory_kept=kept))

native.extension = Extension()
small, large = torch.ones(1, 4), torch.ones(1 << 18)  # exactly as large as is asked for
memory.gained(large)  # nobody allowed it
allow(True)
memory.gained(small)
memory.gained(large)
memory.gained(large)
allow(True)
allow(False)
memory.gained(large)
allow(False)
print(json.dumps(Extension.asked))
"""


@pytest.mark.parametrize("bounds", ["ordinary", "none"])
def test_freed_memory_is_kept_from_the_first_gain_until_it_is_forbidden(bounds):
    environment = {key: value for key, value in os.environ.items() if key != "ONEHOP_THRESHOLDS"}
    if bounds == "none":
        environment["ONEHOP_THRESHOLDS"] = "none"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == [True, False]
