"""The recurrence over execution windows once more, as plainly as can be: the oracle of the native one."""

import math
from collections import deque


def finish(times, channels, order="after"):
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
    reduced, finals, begins, read_at_last, is_read, scanned = {}, {}, {}, {}, {}, {}
    left = {c: deque() for c in range(channels)}
    # When a channel's last tile list was written; the lists that are merged, and when, with channels to go.
    listed, merging = [0.0] * channels, {}

    def reduce(window, share, rank, source, ready):
        if times.edges[window, source] == 0:
            rank_free[rank] = max(rank_free[rank], ready)
            return
        read = share * times.reads[window, source] * times.read_ns[rank]
        unit = share * times.edges[window, source] * times.unit_ns[rank]
        fill = times.fill_ns if times.read_ns[rank] > 0 else 0.0
        rank_free[rank] = max(rank_free[rank], ready) + max(read, unit) + fill

    def bundles(window, share, ready):
        """Step by step: a bundle on the channels of each pod, side by side in the groups of channels."""
        group = max(times.pod, per_channel)
        for turn in range(in_channel):
            for number in range(group // times.pod):
                pods = [start + number * times.pod for start in range(0, ranks, group)]
                read_at = {}
                for pod in pods:
                    for source in range(pod + turn, pod + times.pod, in_channel):
                        c, ns = source // per_channel, share * times.bundle_out[window, source]
                        if order == "early":
                            begin_early(c, ready[source])
                        poll = times.poll_ns if ns > 0 else 0.0
                        host_free[c] = max(host_free[c], ready[source]) + poll + ns
                        read_at[source] = host_free[c]
                for lane in range(span):
                    for pod in pods:
                        write(window, share, pod, pod + lane * in_channel + turn, read_at)
                    yield

    def is_listed(window):
        return times.listing is not None and window < windows and times.listing.tiles[window] > 0

    def scan(window):
        if is_listed(window):
            for rank in range(ranks):
                rank_free[rank] += times.listing.scan[window, rank]
            for c in range(channels):
                scanned[window, c] = max(rank_free[c * per_channel : (c + 1) * per_channel])

    def read_lists(window):
        if is_listed(window):
            for c in range(channels):
                host_free[c] = max(host_free[c], scanned[window, c]) + times.listing.lists[window, c]
            merged = max(host_free) + times.listing.merge[window]
            merging.update((c, (merged, times.listing.tiles[window])) for c in range(channels))

    def send_list(c, wait):
        if c in merging and (wait or merging[c][0] <= host_free[c]):
            merged, ns = merging.pop(c)
            host_free[c] = listed[c] = max(host_free[c], merged) + ns

    def send_lists(wait):
        for c in range(channels):
            send_list(c, wait)

    def begin_early(c, until):
        """Parts that the channel can begin before the rank has its bundle; polls do not count."""
        while next_begin(c) is not None:
            is_first = left[c][0][0] == "Q"
            if (host_free[c] if is_first else next_begin(c)) >= until:
                return
            do_part(c)

    def write(window, share, pod, source, read_at):
        for first in range(pod, pod + times.pod, in_channel):
            c, ns = first // per_channel, share * times.bundle_in[window, source]
            buffer = buffers[first].popleft()
            host_free[c] = max(host_free[c], read_at[source], buffer) + ns
            for rank in range(first, first + in_channel):
                reduce(window, share, rank, source, host_free[c])
            buffers[first].append(max(rank_free[first : first + in_channel]))

    def begin_work(window, of_outputs, of_finals):
        """The host's work on a window's outputs, as a list of parts for each channel."""
        for c in range(channels):
            left[c] = deque(("Q", window, part, of_outputs) for part in range(of_outputs))
            left[c].extend(("Z", window, part, of_finals) for part in range(of_finals))

    def begin_work_in_parts(window, steps):
        """As many parts as bundles, of each kind as many as it takes of the time."""
        outputs, end = sum(times.outputs[window]), sum(times.finals[window])
        share = outputs / (outputs + end) if outputs + end > 0 else 0.0
        of_outputs = min(max(math.floor(steps * share + 0.5), 1), steps - 1)
        begin_work(window, of_outputs, steps - of_outputs)

    def next_begin(c):
        """When a channel can begin its next part; None without one, or while it needs others' outputs."""
        if not left[c]:
            return None
        kind, window, part, _ = left[c][0]
        if kind == "Q":
            own = slice(c * per_channel, (c + 1) * per_channel)
            return max(host_free[c], *reduced[window][own]) + (times.poll_ns if part == 0 else 0.0)
        if any(queue and queue[0][0] == "Q" for queue in left.values()):
            return None
        first = min(begins[window, c] for c in range(channels))
        ready = max(*(read_at_last[window, c] for c in range(channels)), first + times.reduce[window])
        return max(host_free[c], ready)

    def do_part(c):
        send_list(c, False)
        begin = next_begin(c)
        kind, window, part, parts = left[c].popleft()
        ns = (times.outputs if kind == "Q" else times.finals)[window, c]
        host_free[c] = begin + ns / parts + (times.again_ns if part > 0 and ns > 0 else 0.0)
        if kind == "Q":
            begins.setdefault((window, c), begin)
            read_at_last[window, c] = host_free[c]
        else:
            finals.setdefault(window, {})[c] = host_free[c]

    def keep_up(bundles, steps):
        """A part a bundle, for channels that are behind."""
        for c in range(channels):
            while steps - len(left[c]) < bundles and next_begin(c) is not None:
                do_part(c)

    def finish_work():
        for _ in ("outputs", "finals"):
            for c in range(channels):
                while next_begin(c) is not None:
                    do_part(c)

    def post(window):
        begin_work(window, 1, 1)
        finish_work()

    def read_adjacency(window, piece):
        for rank in range(ranks):
            begin = max(rank_free[rank], listed[rank // per_channel])
            rank_free[rank] = begin + times.adjacency[window, rank] / times.pieces[window]
        is_read[window, piece] = list(rank_free)

    def write_back(window):
        for rank in range(ranks):
            begin = max(rank_free[rank], finals[window][rank // per_channel])
            rank_free[rank] = begin + times.write_back[window, rank]

    scan(0)
    read_lists(0)
    send_lists(True)
    for window in range(windows):
        share = 1.0 / times.pieces[window]
        steps = int(times.pieces[window]) * max(times.pod, per_channel)
        moved = 0
        if order in ("between", "early") and window > 0:
            begin_work_in_parts(window - 1, steps)
        for piece in range(times.pieces[window]):
            if (window, piece) not in is_read:
                read_adjacency(window, piece)
            ready = is_read[window, piece]
            if piece == 0:
                scan(window + 1)
                if times.transfer != "host":
                    read_lists(window + 1)
            if times.transfer != "none":
                for pod in range(0, ranks, times.pod):
                    ready[pod : pod + times.pod] = [max(ready[pod : pod + times.pod])] * times.pod
            if times.transfer == "host":
                for _ in bundles(window, share, ready):
                    moved += 1
                    keep_up(moved, steps)
                    if moved == 1:
                        read_lists(window + 1)
                    send_lists(False)
            else:
                for rank in range(ranks):
                    first = rank // times.pod * times.pod
                    for source in range(first, first + times.pod):
                        reduce(window, share, rank, source, ready[rank])
        reduced[window] = list(rank_free)
        finish_work()
        if order in ("after", "ahead") and window > 0:
            post(window - 1)
        send_lists(True)
        if order != "after" and window + 1 < windows:
            read_adjacency(window + 1, 0)
        if window >= times.lag:
            write_back(window - times.lag)
    post(windows - 1)
    for window in range(max(0, windows - times.lag), windows):
        write_back(window)
    return max(rank_free)
