"""The controller clock by clock, as its description says and no faster: the oracle of the command level."""

from onehop.machines.dram import Command, rules
from onehop.machines.dram.rules import _Clocks


class NaiveController:
    """Serves requests one clock after another, trying every command against every rule."""

    def __init__(self, memory, requests):
        self.memory, self.timing = memory, memory.dram.timing.in_full()
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
        # The bank whose ACT lacks its second half and when that is due; accesses of each bank's open row.
        self.half = None
        self.accesses = {}

    def run(self):
        """Every command, in order."""
        while self.coming or self.queues[False] or self.queues[True] or self.opened:
            self._arrive()
            self.clock += 1
            self._refreshes_fall_due()
            if self.timing.command_buses == 2:
                self._tick(("RD", "WR"))
                self._tick(("ACT", "PRE", "PREA", "REF", "REFSB"))
            elif self.half and self.clock == self.half[1]:
                self._second_half()
            else:
                issued = self._tick(("RD", "WR", "ACT", "PRE", "PREA", "REF", "REFSB"))
                if self.half and not issued:
                    self._second_half()
        return self.log

    def _refreshes_fall_due(self):
        shape = self.memory.dram.organisation
        if not self.memory.refresh:
            return
        if self.memory.refresh_mode == "all_bank":
            if self.clock % self.timing.refi == 0:
                self.refreshes += range(self.memory.ranks)
        elif self.clock % self.timing.refi_sb == 0:
            number = self.clock // self.timing.refi_sb - 1
            if shape.refresh_set == 1:
                group, bank = divmod(number % shape.banks, shape.banks_per_group)
            else:
                group, bank = -1, number % shape.banks_per_group
            self.refreshes += [(rank, group, bank) for rank in range(self.memory.ranks)]

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

    def _tick(self, names):
        """At most one command among these kinds; returns whether one went out."""
        for request in sorted(self.opened, key=lambda r: r["arrival"]):
            if self._access(request, names):
                self.opened.remove(request)
                return True
        if self.refreshes:
            return self._refresh(self.refreshes[0], names)
        if self._row_used_up():
            return self._close_used_up(names)
        self._turn()
        queue = self.queues[self.writing]
        for request in queue:
            row = self.rows.get(request["bank"])
            if row == request["row"]:
                if self._access(request, names):
                    queue.remove(request)
                    return True
            elif row is None:
                if self.half is None and self._issue("ACT", request, names):
                    queue.remove(request)
                    self.opened.append(request)
                    self.rows[request["bank"]] = request["row"]
                    if self.timing.aad:
                        self.half = (request, self.clock + self.timing.aad)
                    return True
            elif self._may_close(request, row, queue) and self._issue("PRE", request, names):
                self._closed(request["bank"])
                return True
        return False

    def _second_half(self):
        request = self.half[0]
        self.log.append(Command(self.clock, "ACT2", *request["bank"], request["row"]))
        self.half = None

    def _access(self, request, names):
        bank = request["bank"]
        held = any(other["bank"] == bank and other is not request for other in self.opened)
        full = bool(self.memory.close_after) and self.accesses.get(bank, 0) >= self.memory.close_after
        full = full and not held
        name = ("WR" if request["write"] else "RD") + ("A" if full else "")
        if not self._issue(name, request, names):
            return False
        self.accesses[bank] = self.accesses.get(bank, 0) + 1
        if full:
            self._closed(bank)
        return True

    def _closed(self, bank):
        del self.rows[bank]
        self.accesses.pop(bank, None)

    def _used_up(self):
        """PRE of every row that had all its accesses, by number of the bank."""
        held = [request["bank"] for request in self.opened]
        least = self.memory.close_after or 1 << 30
        full = [bank for bank, count in self.accesses.items() if count >= least and bank not in held]
        return [Command(self.clock, "PRE", *bank) for bank in sorted(full)]

    def _row_used_up(self):
        # A PRE that could go out on its bus keeps the requests' commands from either bus.
        return any(not self.rules.too_early(command) for command in self._used_up())

    def _close_used_up(self, names):
        for command in self._used_up():
            if "PRE" in names and self._send(command):
                self._closed(command[2:5])
                return True
        return False

    def _may_close(self, request, row, queue):
        if any(other["bank"] == request["bank"] for other in self.opened):
            return False
        older = queue[: queue.index(request)]
        keep = self.memory.scheduler == "fr_fcfs_rows"
        return not (keep and any(r["bank"] == request["bank"] and r["row"] == row for r in older))

    def _refresh(self, due, names):
        if isinstance(due, tuple):
            return self._refresh_banks(due, names)
        held = any(request["bank"][0] == due for request in self.opened)
        if not any(bank[0] == due for bank in self.rows):
            if "REF" in names and self._send(Command(self.clock, "REF", due)):
                self.refreshes.pop(0)
                return True
        elif not held and "PREA" in names and self._send(Command(self.clock, "PREA", due)):
            for bank in [bank for bank in self.rows if bank[0] == due]:
                self._closed(bank)
            return True
        return False

    def _refresh_banks(self, due, names):
        groups = range(self.memory.dram.organisation.bank_groups) if due[1] < 0 else [due[1]]
        banks = [(due[0], group, due[2]) for group in groups]
        held = [request["bank"] for request in self.opened]
        for bank in banks:
            if bank in self.rows and bank not in held:
                if "PRE" in names and self._send(Command(self.clock, "PRE", *bank)):
                    self._closed(bank)
                    return True
                return False
        if any(bank in self.rows for bank in banks) or "REFSB" not in names:
            return False
        if self._send(Command(self.clock, "REFSB", *due)):
            self.refreshes.pop(0)
            return True
        return False

    def _turn(self):
        reads, writes = len(self.queues[False]), len(self.queues[True])
        if self.writing:
            self.writing = not (writes < 0.2 * self.memory.queue and reads)
        else:
            self.writing = writes > 0.8 * self.memory.queue or not reads

    def _issue(self, name, request, names):
        if name[:2] not in names and name not in names:
            return False
        row = -1 if name == "PRE" else request["row"]
        column = request["column"] if name[:2] in ("RD", "WR") else -1
        return self._send(Command(self.clock, name, *request["bank"], row, column))

    def _send(self, command):
        on_edge = command.name in ("PRE", "PREA") or self.clock % self.timing.command_edges == (
            1 % self.timing.command_edges
        )
        if not on_edge or self.rules.too_early(command):
            return False
        self.rules.remember(command)
        self.log.append(command)
        return True
