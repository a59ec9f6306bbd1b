"""Downloads what ``make gpu`` may need on a machine without network, into build/gpu-wheels.

These are the packages that onehop needs to be built, to run and to be tested with PyG, in the versions of
this environment. Torch, triton and what torch brings are the machine's own. Arguments are pip's, such as
``--python-version 3.12``.
"""

import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WHEELS = ROOT / "build" / "gpu-wheels"
# Where the way down from a package starts, and what it does not enter.
ROOTS = ("platformdirs", "scikit-build-core", "nanobind", "pytest", "hypothesis", "torch-geometric")
OF_THE_MACHINE = ("torch", "triton", "numpy", "scipy")


def packages() -> dict[str, str]:
    """The versions of the packages above and of all that they need here, by name."""
    found: dict[str, str] = {}
    wanted = list(ROOTS)
    while wanted:
        name = re.sub(r"[-_.]+", "-", wanted.pop()).lower()
        if name in found or name in OF_THE_MACHINE:
            continue
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # for another system or Python
        found[name] = distribution.version
        needs = [line for line in distribution.requires or () if "extra ==" not in line]
        wanted += [re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in needs]
    return found


def main(options: list[str]) -> int:
    """Downloads wheels; returns pip's code."""
    shutil.rmtree(WHEELS, ignore_errors=True)
    names = [f"{name}=={version}" for name, version in sorted(packages().items())]
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q", "--no-deps")
    command = (*pip, "--only-binary=:all:", "--dest", str(WHEELS), *options, *names)
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
