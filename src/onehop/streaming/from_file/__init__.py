"""A graph on disk from a file of edges that need not fit into memory, sorted by DuckDB (extra ``ingest``)."""

from onehop.streaming.from_file.run import ingest as ingest
