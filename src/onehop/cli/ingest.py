"""``onehop ingest``: a graph on disk from a file of edges that may be larger than memory."""

from onehop.bench.results import write_json
from onehop.cli.arguments.ingest import Options, read_memory, read_nodes
from onehop.cli.console import output, progress, set_threads
from onehop.streaming import ingest as make


def ingest(options: Options) -> None:
    """Make the graph of ``onehop ingest``; see :class:`Options`."""
    set_threads(options.threads)
    given = vars(options).copy()
    for name in ("path", "out", "threads", "json", "quiet"):
        del given[name]
    given["nodes"] = None if options.nodes is None else read_nodes("nodes", options.nodes)
    given["memory"] = None if options.memory is None else read_memory("memory", options.memory)
    with progress() as bar:
        graph = make(options.path, options.out, **given, progress=bar.share)
    files = sorted(file.name for file in options.out.iterdir())
    output().print(f"{graph}\nfiles: {', '.join(files)}", markup=False, soft_wrap=True)
    counts = {"num_src": graph.num_src, "num_dst": graph.num_dst, "num_edges": graph.num_edges}
    write_json(options.json, "ingest", {"folder": str(options.out), **counts, "files": files})
