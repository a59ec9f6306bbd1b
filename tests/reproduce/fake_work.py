"""A work of two rows and a picture, for tests of the command."""

from onehop.reproduce import Chart, Reproduction, Row, Series


def reproduce(quick, progress):
    progress("half", 0.5)
    rows = (
        Row(
            figure="speed [best]",
            paper=4.0,
            ours=3.0,
            low=2.0,
            high=4.0,
            low_by="a slow clock",
            high_by="a fast clock",
            unit="x",
            note="On twins.",
            headline=True,
        ),
        Row(figure="on a GPU", paper=8.0, unit="x", note="Needs a GPU."),
    )
    chart = Chart(
        name="bars",
        title="A graph, width 64" + (", quick" if quick else ""),
        machine="a machine",
        unit="ms",
        groups=("g",),
        series=(Series(label="baseline", values=(2.0,)), Series(label="ours", values=(1.0,))),
    )
    return Reproduction(work="isplib", source="Somebody, somewhere.", rows=rows, charts=(chart,))
