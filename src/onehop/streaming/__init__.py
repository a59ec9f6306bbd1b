"""Work on graphs larger than memory: from a file of edges to a graph on disk."""

from onehop.streaming.from_file import ingest as ingest
