"""``onehop reproduce``: the figures of four published works, compared with the published values."""

from pathlib import Path

from rich.console import Console

from onehop.bench.results import write_json
from onehop.bench.stamp import commit
from onehop.cli.arguments.reproduce import Options
from onehop.cli.console import output, progress, set_threads
from onehop.reproduce import WORKS, fit as fitted, on_a_gpu, reproduce as computed
from onehop.reproduce.pictures import draw, draw_fit
from onehop.reproduce.tables import headlines, table


def reproduce(options: Options) -> None:
    """Compute the figures of ``onehop reproduce``; see :class:`Options`."""
    work, quick, gpu, plot = options.work, options.quick, options.gpu, options.plot
    set_threads(options.threads)
    commit()  # results name the commit that the run began with
    console = output()
    if options.fit:
        _fit(console, work, quick, options.json, plot)
        return
    works = []
    for name in WORKS if work == "all" else (work,):
        with progress(100, name) as bar:
            works.append(computed(name, quick, bar.share) if gpu is None else on_a_gpu(gpu))
    if work == "all" or gpu is not None:
        known = [{"work": each.work, **row.as_dict()} for each in works for row in each.rows if row.headline]
        console.print(headlines(known))
    else:
        console.print(works[0].source, markup=False)
        console.print(table([row.as_dict() for row in works[0].rows]))
    content = {"works": [each.as_dict() for each in works]} if work == "all" else works[0].as_dict()
    how = "".join([" --quick" if quick else "", "" if gpu is None else f" --gpu {gpu}"])
    write_json(options.json, f"reproduce {work}{how}", {"quick": quick, **content})
    if plot is not None:
        for file in [file for each in works for file in draw(each, plot)]:
            console.print(f"wrote {file}", markup=False)


def _fit(console: Console, work: str, quick: bool, json: Path | None, plot: Path | None) -> None:
    """Show the nearest configuration of a work."""
    with progress(100, f"{work}: nearest configuration") as bar:
        nearest = fitted(work, quick, bar.share)
    console.print(nearest.summary, markup=False)
    for each in nearest.tables():
        console.print(each)
    write_json(
        json, f"reproduce {work}{' --quick' if quick else ''} --fit", {"quick": quick, **nearest.as_dict()}
    )
    if plot is not None:
        path = plot / f"{work}_fit.png"
        draw_fit(nearest, path)
        console.print(f"wrote {path}", markup=False)
