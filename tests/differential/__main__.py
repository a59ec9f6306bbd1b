"""``python -m tests.differential``: random programs of PyG, with and without the patch."""

import argparse
import os
import sys
import tempfile
import warnings
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["TRITON_INTERPRET"] = "1"


def main() -> int:
    """Runs what the command line asks for; 1 if a program differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument(
        "--kind",
        action="append",
        choices=("models", "messages"),
        help="models of layers, or layers with messages of their own; both if it is not given",
    )
    parser.add_argument("--seed", type=int, help="show and run the program of one seed, and make it small")
    parser.add_argument("--programs", type=int, default=10_000, help="how many programs run")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seconds", type=float, default=1800.0, help="stop after so long")
    parser.add_argument("--processes", type=int, default=2, help="on how many processes")
    parser.add_argument(
        "--shrink", type=float, default=30.0, help="seconds for making a difference small; 0: none"
    )
    parser.add_argument(
        "--without", action="append", default=[], help="leave out programs that hold this text"
    )
    parser.add_argument("--only", action="append", default=[], help="run programs alone that hold this text")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ONEHOP_CACHE_DIR"] = folder
        warnings.simplefilter("ignore")
        # Late, for the environment counts when they are imported.
        from tests.differential.isolated import warm_up
        from tests.differential.kinds import BY_NAME
        from tests.differential.runner import fuzz

        warm_up()
        kinds = options.kind or list(BY_NAME)
        if options.seed is not None:
            return max(_shown(BY_NAME[name], options.seed, options.shrink) for name in kinds)
        found = 0
        for name in kinds:
            kind, seeds = BY_NAME[name], range(options.first, options.first + options.programs)
            if options.without or options.only:
                texts = {seed: repr(kind.generate(seed)) for seed in seeds}
                seeds = [seed for seed in seeds if _wanted(texts[seed], options.only, options.without)]
            seconds = options.seconds / len(kinds)
            summary = fuzz(seeds, seconds, options.processes, options.shrink, _tell, kind)
            print(f"{name}: {summary.line()}")
            found += len(summary.found)
        return 1 if found else 0


def _tell(line: str) -> None:
    print(line, flush=True)


def _shown(kind: Any, seed: int, seconds: float) -> int:
    """Prints the program of a seed, and how it differs; 1 if it does."""
    from tests.differential.isolated import isolated
    from tests.differential.runner import small

    program = kind.generate(seed)
    print(program.listed())
    found = isolated(program, kind)
    if found is None:
        print("Both runs are the same.")
        return 0
    print(f"\n{found}\n\nMade small:\n")
    program, found = small(program, found, kind, seconds)
    print(f"{program.listed()}\n\n{found}")
    return 1


def _wanted(text: str, only: list[str], without: list[str]) -> bool:
    return all(word in text for word in only) and not any(word in text for word in without)


if __name__ == "__main__":
    sys.exit(main())
