"""The controller clock by clock, as its description says and no faster: the oracle of the command level."""

from onehop.machines.dram import Command, rules
from onehop.machines.dram.rules import _Clocks


class NaiveController:
    """Serves requests one clock after another, trying every command against every rule."""

    def __init__(self, memory, requests):
        self.memory, self.timing = memory, memory.dram.timing
        fields = memory.address_layout.map(requests.bursts).T.tolist()
        self.coming = [
            {"write": bool(w), "bank": tuple(f[:3]), "row": f[3], "column": f[4], "arrival": None}
            for w, f in zip(requests.writes.tolist(), fields, strict=True)
        ]
        self.queues = {False: [], True: []}
        self.opened = []
        self.refreshes = []
        self.rows = {}
        self.rules = _Clocks(rules(self.timing))
        self.log = []
        self.writing = False
        self.clock = 0

    def run(self):
        """Every command, in order."""
        while self.coming or self.queues[False] or self.queues[True] or self.opened:
            self._arrive()
            self.clock += 1
            if self.memory.refresh and self.clock % self.timing.refi == 0:
                self.refreshes += range(self.memory.ranks)
            self._tick()
        return self.log

    def _arrive(self):
        if not self.coming:
            return
        request = self.coming[0]
        same = ("bank", "row", "column")
        if any(all(r[k] == request[k] for k in same) for r in self.queues[True]):
            self.coming.pop(0)
        elif len(self.queues[request["write"]]) < self.memory.queue:
            request["arrival"] = self.clock
            self.queues[request["write"]].append(self.coming.pop(0))

    def _tick(self):
        for request in sorted(self.opened, key=lambda r: r["arrival"]):
            if self._issue("WR" if request["write"] else "RD", request):
                self.opened.remove(request)
                return
        if self.refreshes:
            self._refresh(self.refreshes[0])
            return
        self._turn()
        queue = self.queues[self.writing]
        for request in queue:
            row = self.rows.get(request["bank"])
            if row == request["row"]:
                if self._issue("WR" if request["write"] else "RD", request):
                    queue.remove(request)
                    return
            elif row is None:
                if self._issue("ACT", request):
                    queue.remove(request)
                    self.opened.append(request)
                    self.rows[request["bank"]] = request["row"]
                    return
            elif self._may_close(request, row, queue) and self._issue("PRE", request):
                del self.rows[request["bank"]]
                return

    def _may_close(self, request, row, queue):
        if any(other["bank"] == request["bank"] for other in self.opened):
            return False
        older = queue[: queue.index(request)]
        keep = self.memory.scheduler == "fr_fcfs_rows"
        return not (keep and any(r["bank"] == request["bank"] and r["row"] == row for r in older))

    def _refresh(self, rank):
        if not any(bank[0] == rank for bank in self.rows):
            if self._send(Command(self.clock, "REF", rank)):
                self.refreshes.pop(0)
        elif not any(request["bank"][0] == rank for request in self.opened) and self._send(
            Command(self.clock, "PREA", rank)
        ):
            self.rows = {bank: row for bank, row in self.rows.items() if bank[0] != rank}

    def _turn(self):
        reads, writes = len(self.queues[False]), len(self.queues[True])
        if self.writing:
            self.writing = not (writes < 0.2 * self.memory.queue and reads)
        else:
            self.writing = writes > 0.8 * self.memory.queue or not reads

    def _issue(self, name, request):
        row = -1 if name == "PRE" else request["row"]
        column = request["column"] if name in ("RD", "WR") else -1
        return self._send(Command(self.clock, name, *request["bank"], row, column))

    def _send(self, command):
        if self.rules.too_early(command):
            return False
        self.rules.remember(command)
        self.log.append(command)
        return True
