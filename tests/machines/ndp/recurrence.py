"""The recurrence over execution windows once more, as plainly as can be: the oracle of the native one."""

from collections import deque


def finish(times, channels):
    """When the last write-back ends.

    Every rank and every channel is a clock; whoever needs two things waits for the later of them.
    """
    windows, ranks = times.adjacency.shape
    per_channel = ranks // channels
    rank_free, host_free = [0.0] * ranks, [0.0] * channels
    # For each pod in each channel: when its two bundle buffers are free again, the next one first.
    span = max(1, times.pod // per_channel)
    in_channel = times.pod // span
    buffers = {first: deque([0.0, 0.0]) for first in range(0, ranks, in_channel)}
    reduced, finals = {}, {}

    def reduce(window, share, rank, source, ready):
        if times.edges[window, source] == 0:
            rank_free[rank] = max(rank_free[rank], ready)
            return
        read = share * times.reads[window, source] * times.read_ns[rank]
        unit = share * times.edges[window, source] * times.unit_ns[rank]
        fill = times.fill_ns if times.read_ns[rank] > 0 else 0.0
        rank_free[rank] = max(rank_free[rank], ready) + max(read, unit) + fill

    def bundles(window, share, ready):
        """One after another, in each group of channels that share pods."""
        group = max(times.pod, per_channel)
        for start in range(0, ranks, group):
            for turn in range(in_channel):
                for pod in range(start, start + group, times.pod):
                    sources = [pod + c * in_channel + turn for c in range(span)]
                    read_at = {}
                    for source in sources:
                        c, ns = source // per_channel, share * times.bundle_out[window, source]
                        poll = times.poll_ns if ns > 0 else 0.0
                        host_free[c] = max(host_free[c], ready[source]) + poll + ns
                        read_at[source] = host_free[c]
                    for source in sources:
                        for first in range(pod, pod + times.pod, in_channel):
                            c, ns = first // per_channel, share * times.bundle_in[window, source]
                            buffer = buffers[first].popleft()
                            host_free[c] = max(host_free[c], read_at[source], buffer) + ns
                            for rank in range(first, first + in_channel):
                                reduce(window, share, rank, source, host_free[c])
                            buffers[first].append(max(rank_free[first : first + in_channel]))

    def post(window):
        outputs = []
        begins = []
        for c in range(channels):
            own = slice(c * per_channel, (c + 1) * per_channel)
            begin = max(host_free[c], *reduced[window][own]) + times.poll_ns
            begins.append(begin)
            host_free[c] = begin + times.outputs[window, c]
            outputs.append(host_free[c])
        ready = max(*outputs, min(begins) + times.reduce[window])
        for c in range(channels):
            host_free[c] = max(host_free[c], ready) + times.finals[window, c]
        finals[window] = list(host_free)

    def write_back(window):
        for rank in range(ranks):
            begin = max(rank_free[rank], finals[window][rank // per_channel])
            rank_free[rank] = begin + times.write_back[window, rank]

    for window in range(windows):
        share = 1.0 / times.pieces[window]
        for _ in range(times.pieces[window]):
            ready = []
            for rank in range(ranks):
                rank_free[rank] += share * times.adjacency[window, rank]
                ready.append(rank_free[rank])
            if times.transfer != "none":
                for pod in range(0, ranks, times.pod):
                    ready[pod : pod + times.pod] = [max(ready[pod : pod + times.pod])] * times.pod
            if times.transfer == "host":
                bundles(window, share, ready)
            else:
                for rank in range(ranks):
                    first = rank // times.pod * times.pod
                    for source in range(first, first + times.pod):
                        reduce(window, share, rank, source, ready[rank])
        reduced[window] = list(rank_free)
        if window > 0:
            post(window - 1)
        if window >= times.lag:
            write_back(window - times.lag)
    post(windows - 1)
    for window in range(max(0, windows - times.lag), windows):
        write_back(window)
    return max(rank_free)
