"""PyG's own example scripts, unmodified, with and without the patch: same, faster, slower or refused.

    python -m benchmarks.examples --source CHECKOUT [--scripts gcn.py,gat.py] [--rounds 7] [--budget 20]
                                  [--threads N] [--limit 300] [--json FILE] [--resume]

CHECKOUT is a checkout of PyG's sources, of the release that is installed: the folder that has ``examples`` in
it. Each script runs in two processes, one of them under ``onehop.patch()``, which take turns, some epochs
each, so that a slow moment of the machine meets both. Where a script downloads a data set, it gets a seeded
one of the same shape instead, or of a fraction of it. After some turns its loops over epochs end, and it goes
on to its own end. The loss of every backward pass is compared; a script whose losses differ, or that fails
under the patch alone, makes the exit code 1.

``--json`` is written after every script; ``--resume`` goes on with those that the file does not have yet.

Memory is the peak of a process from its first epoch on, Python, torch and the data included: the median of
three processes a way, which run apart from those whose time is measured.
"""

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.examples.peaks import peaks
from benchmarks.examples.running import OURS, PYG, Effort
from benchmarks.examples.scripts import EXAMPLES, Example
from benchmarks.examples.turns import measured
from benchmarks.examples.verdicts import BROKEN, DIFFERENT, reason, verdict
from onehop.bench import command
from onehop.bench.stamp import machine_line, stamp
from onehop.sizes import mebibytes


def chosen(names: str | None) -> list[Example]:
    """The scripts of a list with commas; all of them for None.

    Raises:
        SystemExit: One is not known.
    """
    known = {example.name: example for example in EXAMPLES}
    if names is None:
        return list(known.values())
    wanted = command.names(names)
    if unknown := [name for name in wanted if name not in known]:
        raise SystemExit(f"--scripts: unknown {', '.join(unknown)}; there are {', '.join(known)}.")
    return [known[name] for name in wanted]


def line(result: dict[str, Any]) -> str:
    """A script's line."""
    begin = f"{result['script']:42} {result['verdict']:18}"
    if words := reason(result):
        return f"{begin} {words}"
    memory = " to ".join(mebibytes(result["peak_bytes"][way]) for way in (PYG, OURS))
    deviation = (
        f"first loss within {result['deviation']['first']:.0e}, gradients {result['gradients']:.0e}, "
        f"all losses {result['deviation']['largest']:.0e}"
    )
    if "speedup" not in result:
        return f"{begin} {memory} MiB, {deviation}"
    speedup, times = result["speedup"], result["times"]
    spread = f"{speedup['lower_quartile']:.2f} to {speedup['upper_quartile']:.2f}"
    return (
        f"{begin} {speedup['median']:6.2f}x ({spread})"
        f"  {1e3 * times[PYG]['median_s']:8.1f} to {1e3 * times[OURS]['median_s']:8.1f} ms"
        f"  {memory} MiB, {deviation}"
    )


def found_before(options: argparse.Namespace, parser: argparse.ArgumentParser) -> list[dict[str, Any]]:
    """What ``--json`` holds of an earlier run that ``--resume`` goes on with; else nothing.

    Raises:
        SystemExit: There is no ``--json``, or it is of another machine, other versions or other options.
    """
    if not options.resume:
        return []
    if options.json is None:
        parser.error("--resume: expected --json FILE, the file of the run to go on with; there is none.")
    if not options.json.exists():
        return []
    document, now = json.loads(options.json.read_text()), stamp()
    same = {**{key: now[key] for key in ("machine", "isa", "threads", "versions")}, "effort": effort(options)}
    before = {**document["stamp"], **document}
    if differing := [key for key, value in same.items() if before.get(key) != value]:
        parser.error(
            f"--resume: {options.json} is of another run, whose {' and '.join(differing)} differ; "
            "name another file, or leave --resume out."
        )
    scripts: list[dict[str, Any]] = document["scripts"]
    return scripts


def effort(options: argparse.Namespace) -> dict[str, Any]:
    """The options that what is measured depends on, as JSON has them."""
    return {"rounds": options.rounds, "budget_s": options.budget, "threads": options.threads}


def main() -> None:
    """Prints a line a script, then how many there are of each kind."""
    parser = command.parser(__doc__, rounds=7, threads=True)
    parser.add_argument("--source", type=Path, required=True, metavar="CHECKOUT", help="of PyG's sources")
    parser.add_argument("--scripts", help="paths within examples, separated by commas; all by default")
    parser.add_argument(
        "--budget", type=float, default=20.0, help="seconds of a script, after which loops end early (20)"
    )
    parser.add_argument("--resume", action="store_true", help="run only what --json lacks")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds that a turn may take (300)")
    options = command.read(parser)
    source = options.source.resolve()
    if not (source / "examples" / "gcn.py").is_file():
        parser.error(f"--source: expected a checkout of PyG, which has examples/gcn.py; {source} has not.")
    scripts = chosen(options.scripts)
    found = found_before(options, parser)
    print(machine_line())
    amount = Effort(options.rounds, options.budget, options.threads, options.limit)
    known = {result["script"] for result in found}
    for example in scripts:
        if example.name in known:
            continue
        result = measured(example, source, amount)
        if not result["failed"]:
            result.update(peaks(example, source, amount))
        result["verdict"] = verdict(result)
        found.append(result)
        print(line(result), flush=True)
        # So that an interruption loses little.
        command.write(options, "python -m benchmarks.examples", {"effort": effort(options), "scripts": found})
    counts = Counter(result["verdict"] for result in found)
    print(", ".join(f"{count} {kind}" for kind, count in counts.most_common()))
    if counts[BROKEN] or counts[DIFFERENT]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
