"""A graph on disk from a file of edges larger than memory, sorted by DuckDB (extra ``ingest``)."""

from onehop.streaming.from_file.run import ingest as ingest
