"""``python -m tests.differential``: random programs of PyG, with and without the patch."""

import argparse
import os
import sys
import tempfile
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["TRITON_INTERPRET"] = "1"


def main() -> int:
    """Runs what the command line asks for; 1 if a program differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
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
        from tests.differential.generate import generate
        from tests.differential.isolated import isolated, warm_up
        from tests.differential.runner import fuzz
        from tests.differential.shrink import shrunk

        warm_up()
        if options.seed is not None:
            program = generate(options.seed)
            print(program.listed())
            found = isolated(program)
            if found is None:
                print("Both runs are the same.")
                return 0
            print(f"\n{found}\n\nMade small:\n")
            program, found = shrunk(program, found, isolated, options.shrink)
            print(f"{program.listed()}\n\n{found}")
            return 1

        def tell(line: str) -> None:
            print(line, flush=True)

        seeds = range(options.first, options.first + options.programs)
        if options.without or options.only:
            seeds = [seed for seed in seeds if _wanted(repr(generate(seed)), options.only, options.without)]
        summary = fuzz(seeds, options.seconds, options.processes, options.shrink, tell)
        print(summary.line())
        return 1 if summary.found else 0


def _wanted(text: str, only: list[str], without: list[str]) -> bool:
    return all(word in text for word in only) and not any(word in text for word in without)


if __name__ == "__main__":
    sys.exit(main())
