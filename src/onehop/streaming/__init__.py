"""Work on graphs larger than memory: from an edge-list file to a graph on disk, and from disk to disk."""

from onehop.streaming.from_file import ingest as ingest
from onehop.streaming.several_hops import hops as hops
