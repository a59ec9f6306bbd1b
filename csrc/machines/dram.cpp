// The controller: first ready, first come first served, event by event.
//
// Its clock-by-clock behaviour, which the choice of events preserves: before a clock one request arrives, if its queue
// has room. Then one command may be issued, the first of these that is ready: the read or write of a request whose row
// was opened for it; else the refresh that is due; else, if none is due, the oldest ready command of the waiting
// requests. A request leaves the queue when the row is opened for it, or when it reads or writes an open row. A bank
// with a row opened for a request is not closed before that request is served. Writes are served if no read waits or 80
// % of their queue is full, until it is drained to 20 %.
//
// With two command buses, first RD and WR, then the other commands are looked at, and each bus may take one a clock.
// Where an ACT is two commands, the second goes out in a clock in which nothing else can, at the latest AAD clocks
// after the first; no other ACT begins before it. Where rows are closed after so many accesses, their PRE comes before
// the commands of waiting requests, and an access beyond that number closes its row itself.
#include "dram.hpp"

#include "dram_device.hpp"
#include "dram_waiting.hpp"

namespace onehop::dram {
namespace {

// The next command and its clock: for a request, or, if place is kNone, to refresh the rank whose turn it is.
struct Choice {
  int64_t clock = kNever;
  Command command = kRefresh;
  int32_t place = kNone;
  int64_t bank = -1;  // that a PRE closes if it is for no request

  // If several are ready in one clock, the one with the oldest request comes first.
  void offer(int64_t ready, int32_t at, Command what) {
    if (ready < clock || (ready == clock && at < place)) *this = {ready, what, at, -1};
  }
};

// one_rank: nothing depends on the rank, so the search can ignore it.
template <bool one_rank>
class Simulation {
 public:
  Simulation(const Timing& timing, const Layout& layout, const Controller& controller, std::vector<Issued>* log)
      : timing_(timing),
        layout_(layout),
        controller_(controller),
        log_(log),
        device_owner_(std::make_unique<Device>(timing, controller)),
        device_(*device_owner_),
        waiting_(device_, controller.queue),
        same_bank_(controller.refresh == kSameBank),
        refresh_every_(same_bank_ ? timing.refi_sb : timing.refi),
        refresh_sets_(same_bank_ ? device_.banks / controller.refresh_set : 1),
        edge_(timing.command_edges - 1),
        next_refresh_(controller.refresh != kNoRefresh ? refresh_every_ : kNever) {}

  Counts run(const int64_t* bursts, const uint8_t* writes, int64_t count) {
    int64_t arrived = 0;
    Arrival next = {};
    if (count > 0) next = take_next(bursts, writes, 0, count);
    while (arrived < count || !waiting_.empty()) {
      const int64_t clock = clock_ + 1;
      if (arrived < count && arrive(next)) {
        if (++arrived < count) {
          next = take_next(bursts, writes, arrived, count);
        } else {
          counts_.accepted_cycles = clock_;
          counts_.accepted_served = counts_.reads + counts_.writes;
        }
      }
      if (clock == next_refresh_) {
        refreshes_due_ += controller_.ranks;
        next_refresh_ += refresh_every_;
      }
      // Until then no request arrives that could change the choice.
      int64_t until = next_refresh_ - 1;
      if (arrived < count && takes(next)) until = clock;
      if (device_.one_bus) {
        const Choice choice = choose(clock);
        clock_ = std::min(choice.clock, until);
        if (choice.clock <= until) issue(choice);
      } else {
        step_both_buses(clock, until);
      }
    }
    counts_.cycles = last_data_;
    return counts_;
  }

 private:
  struct Arrival {
    int64_t bank, row, column;
    int kind;
    bool may_merge;  // whether a write to the same burst waited when it became the next to come
  };

  // The place of a block of bursts, field by field, which is several times as fast as burst by burst.
  void decode(const int64_t* __restrict bursts, int64_t count) {
    for (int64_t f = 0; f < 5; ++f) std::fill(fields_[f], fields_[f] + count, 0);
    for (int64_t i = 0; i < layout_.count; ++i) {
      const Slice s = layout_.slices[i];
      int64_t* __restrict field = fields_[s.field];
      const int64_t mask = (int64_t{1} << s.bits) - 1;
      for (int64_t at = 0; at < count; ++at) field[at] |= ((bursts[at] >> s.shift) & mask) << s.place;
    }
    if (!layout_.xor_column) return;
    for (int64_t f = 0, used = 0; f < 4; used += layout_.widths[f++]) {
      const int64_t mask = (int64_t{1} << layout_.widths[f]) - 1;
      for (int64_t at = 0; at < count; ++at) fields_[f][at] ^= (fields_[4][at] >> used) & mask;
    }
  }

  Arrival take_next(const int64_t* bursts, const uint8_t* writes, int64_t number, int64_t count) {
    const int64_t at = number % kBlock;
    if (at == 0) decode(bursts + number, std::min(kBlock, count - number));
    const int64_t bank = fields_[0][at] * kMostBanks + fields_[1][at] * controller_.banks_per_group + fields_[2][at];
    const int64_t row = fields_[3][at], column = fields_[4][at];
    const bool may_merge = waiting_.size[kWrites] > 0 && waiting_.holds(kWrites, bank, row, column);
    return {bank, row, column, writes[number] ? kWrites : kReads, may_merge};
  }

  bool merges(const Arrival& it) const { return it.may_merge && waiting_.holds(kWrites, it.bank, it.row, it.column); }
  bool takes(const Arrival& it) const { return waiting_.size[it.kind] < controller_.queue || merges(it); }

  // Accepts a request if its queue has room.
  bool arrive(const Arrival& it) {
    if (merges(it)) {
      ++(it.kind == kReads ? counts_.forwarded : counts_.coalesced);
      return true;
    }
    if (waiting_.size[it.kind] >= controller_.queue) return false;
    waiting_.push(clock_, it.bank, it.row, it.column, it.kind);
    return true;
  }

  // The next command if no request arrives: not before `from`.
  Choice choose(int64_t from) {
    const Choice choice = choose_whole(from);
    if (half_open_ == kNone || (choice.clock == from && from < half_open_until_)) return choice;
    return {from, kActivate2, waiting_.opened_for(half_open_)};
  }

  Choice choose_whole(int64_t from) {
    const int64_t soonest = later(from, device_.bus[kRowBus]);
    const Choice opened = choose_opened(soonest);
    if (refreshes_due_ > 0) {
      const Choice refresh = choose_refresh(soonest);
      return refresh.clock < opened.clock ? refresh : opened;
    }
    if (opened.clock == from) return opened;
    const Choice closing = choose_closing(soonest);
    turn_to_writes_or_reads();
    Choice other{std::min(opened.clock, closing.clock), kRefresh, kNone};
    offer_hits(other, soonest);
    offer_rows(other, soonest);
    if (other.place != kNone) return other;
    return closing.clock < opened.clock ? closing : opened;
  }

  // The same for the two buses of a device that has two.
  Choice choose_column(int64_t from) {
    const int64_t soonest = later(from, device_.bus[kColumnBus]);
    const Choice opened = choose_opened(soonest);
    if (refreshes_due_ > 0 || opened.clock == from) return opened;
    const Choice closing = choose_closing(later(from, device_.bus[kRowBus]));
    turn_to_writes_or_reads();
    Choice other{std::min(opened.clock, closing.clock), kRefresh, kNone};
    offer_hits(other, soonest);
    return other.place != kNone ? other : opened;
  }

  Choice choose_row(int64_t from) {
    const int64_t soonest = later(from, device_.bus[kRowBus]);
    if (refreshes_due_ > 0) return choose_refresh(soonest);
    const Choice closing = choose_closing(soonest);
    turn_to_writes_or_reads();
    Choice other{closing.clock, kRefresh, kNone};
    offer_rows(other, soonest);
    return other.place != kNone ? other : closing;
  }

  void step_both_buses(int64_t from, int64_t until) {
    const Choice column = choose_column(from);
    const int64_t row_clock = choose_row(from).clock;
    const int64_t next = std::min(column.clock, row_clock);
    clock_ = std::min(next, until);
    if (next > until) return;
    if (column.clock == next) issue(column);
    const Choice row = choose_row(next);  // the access may have changed it
    if (row.clock == next) issue(row);
  }

  Choice choose_opened(int64_t soonest) {
    Choice opened;
    for (int kind = waiting_.begin_kind; kind < waiting_.end_kind; ++kind) {
      if (waiting_.opened[kind].count > 0) offer_accesses(opened, waiting_.opened[kind], soonest, kind);
    }
    return opened;
  }

  // The PRE of a row that had all its accesses.
  Choice choose_closing(int64_t soonest) const {
    Choice closing;
    if (controller_.close_after == 0) return closing;
    for (int64_t rank = 0; rank < controller_.ranks; ++rank) {
      for (uint64_t left = used_up_[rank]; left != 0; left &= left - 1) {
        const int64_t bank = rank * kMostBanks + __builtin_ctzll(left);
        if (waiting_.opened_for(bank) != kNone) continue;
        const int64_t ready = std::max({soonest, device_.rank_pre[rank], device_.pre[bank]});
        if (ready < closing.clock) closing = {ready, kPrecharge, kNone, bank};
      }
    }
    return closing;
  }

  void offer_hits(Choice& choice, int64_t soonest) {
    const int kind = writing_ ? kWrites : kReads;
    if (waiting_.hits[kind].count > 0) offer_accesses(choice, waiting_.hits[kind], soonest, kind);
  }

  void offer_rows(Choice& choice, int64_t soonest) {
    const int kind = writing_ ? kWrites : kReads;
    if (waiting_.closers[kind].count > 0) offer_precharges(choice, waiting_.closers[kind], soonest);
    if (waiting_.openers[kind].count > 0 && half_open_ == kNone) {
      offer_activations(choice, waiting_.openers[kind], soonest);
    }
  }

  // Offers the first of some requests' next commands. `soonest`: none can be ready before it.
  template <class ReadyAt>
  void offer(Choice& choice, Places& places, int64_t soonest, Command command, ReadyAt ready_at) {
    if (later(soonest, places.floor) > choice.clock) return;
    if (!places.known || soonest > places.first_ready) {
      find_first(places, soonest, ready_at);
    } else if (places.added != kNone) {
      const int64_t ready = later(soonest, ready_at(waiting_.bank_of(places.added), places.added));
      if (ready < places.first_ready || (ready == places.first_ready && places.added < places.first)) {
        places.first = places.added;
        places.first_ready = ready;
      }
    }
    places.added = kNone;
    if (places.first != kNone) choice.offer(places.first_ready, places.first, command);
  }

  // Oldest first, so that of those ready in one clock the oldest is found.
  template <class ReadyAt>
  void find_first(Places& places, int64_t soonest, ReadyAt ready_at) {
    int64_t first_ready = kNever;
    int32_t first = kNone;
    bool at_once = false;
    for (int32_t word = waiting_.first_word; word < waiting_.end_word && !at_once; ++word) {
      for (uint64_t left = places.words[word]; left != 0; left &= left - 1) {
        const int32_t place = word * 64 + __builtin_ctzll(left);
        const int64_t ready = later(soonest, ready_at(waiting_.bank_of(place), place));
        const bool before = ready < first_ready;
        first = before ? place : first;
        first_ready = before ? ready : first_ready;
        at_once = ready == soonest;
        if (at_once) break;  // the rest is younger, and not ready sooner
      }
    }
    places.first = first;
    places.first_ready = first_ready;
    places.known = true;
    if (!at_once) places.floor = first_ready;
  }

  // What holds in all ranks at least, and what holds in a bank's beyond it.
  int64_t least(const int64_t* by_rank) const {
    int64_t clock = by_rank[0];
    if (one_rank) return clock;
    for (int64_t rank = 1; rank < controller_.ranks; ++rank) clock = std::min(clock, by_rank[rank]);
    return clock;
  }
  static int64_t in_rank_of(int64_t bank, const int64_t* by_rank) {
    return one_rank ? 0 : by_rank[Device::rank_of(bank)];
  }

  void offer_accesses(Choice& choice, Places& places, int64_t soonest, int kind) {
    const Device& d = device_;
    const int64_t* in_rank = d.rank_cas[kind];
    const int64_t* in_group = d.group_cas[kind];
    soonest = on_edge(later(soonest, later(d.bus_cas[kind], least(in_rank))));
    offer(choice, places, soonest, kind == kReads ? kRead : kWrite, [&](int64_t bank, int32_t) {
      return on_edge(later(in_rank_of(bank, in_rank), later(d.cas[kind][bank], in_group[d.group_of(bank)])));
    });
  }

  void offer_precharges(Choice& choice, Places& places, int64_t soonest) {
    const Device& d = device_;
    soonest = later(soonest, least(d.rank_pre));
    offer(choice, places, soonest, kPrecharge, [&](int64_t bank, int32_t place) {
      if (controller_.rows_first && waiting_.has_older_hit(waiting_[place])) return kNever;
      return later(in_rank_of(bank, d.rank_pre), d.pre[bank]);
    });
  }

  void offer_activations(Choice& choice, Places& places, int64_t soonest) {
    const Device& d = device_;
    soonest = on_edge(later(soonest, least(d.rank_act)));
    offer(choice, places, soonest, kActivate, [&](int64_t bank, int32_t) {
      return on_edge(later(in_rank_of(bank, d.rank_act), later(d.act[bank], d.group_act[d.group_of(bank)])));
    });
  }

  // Ranks are refreshed one after another: rows closed, then REF. Rows that were opened for a request stay for it.
  Choice choose_refresh(int64_t soonest) const {
    if (same_bank_) return choose_same_bank(soonest);
    const int64_t rank = refreshing_;
    if (device_.open[rank] == 0) return {on_edge(std::max(soonest, device_.rank_ref[rank])), kRefresh, kNone};
    if (opened_in_[rank] == 0) return {std::max(soonest, device_.rank_pre_all[rank]), kPrechargeAll, kNone};
    return {};
  }

  // The same with one bank after another, or with the same bank of every bank group. The first row that may be closed
  // is closed first.
  Choice choose_same_bank(int64_t soonest) const {
    const int64_t rank = refreshing_ % controller_.ranks;
    int64_t ready = std::max(soonest, device_.rank_refsb[rank]);
    bool held = false;
    for (int64_t i = 0; i < controller_.refresh_set; ++i) {
      const int64_t bank = refreshed_bank(i);
      ready = std::max(ready, device_.refsb[bank]);
      if (device_.row[bank] < 0) continue;
      held = waiting_.opened_for(bank) != kNone || held;
      if (waiting_.opened_for(bank) != kNone) continue;
      return {std::max({soonest, device_.rank_pre[rank], device_.pre[bank]}), kPrecharge, kNone, bank};
    }
    if (held) return {};
    return {on_edge(ready), kRefreshSame, kNone};
  }

  int64_t refreshed_bank(int64_t i) const {
    const int64_t rank = refreshing_ % controller_.ranks, set = refreshing_ / controller_.ranks;
    return rank * kMostBanks + i * controller_.banks_per_group + set;
  }

  // The next clock in which a command other than PRE may begin.
  int64_t on_edge(int64_t clock) const { return clock | edge_; }

  void turn_to_writes_or_reads() {
    const int64_t reads = waiting_.size[kReads], writes = waiting_.size[kWrites];
    writing_ =
        writing_ ? !(5 * writes < controller_.queue && reads != 0) : 5 * writes > 4 * controller_.queue || reads == 0;
  }

  void issue(const Choice& choice) {
    switch (choice.command) {
      case kActivate:
        activate(choice.place);
        break;
      case kPrecharge:
        precharge(choice);
        break;
      case kRead:
      case kReadClose:
        access<kReads>(choice.place);
        break;
      case kWrite:
      case kWriteClose:
        access<kWrites>(choice.place);
        break;
      case kActivate2:
        activate2(choice.place);
        break;
      case kRefreshSame:
        refresh_same();
        break;
      case kPrechargeAll:
        precharge_all(refreshing_);
        break;
      case kRefresh:
        put_down(kRefresh, refreshing_, -1, -1, -1, -1);
        device_.refresh(refreshing_, clock_);
        forget(waiting_.closers);
        forget(waiting_.openers);
        ++counts_.refreshes;
        refreshing_ = (refreshing_ + 1) % controller_.ranks;
        --refreshes_due_;
        break;
    }
  }

  void activate(int32_t place) {
    Request& request = waiting_[place];
    count(request, counts_.row_misses);
    put_down(kActivate, request.bank, request.row, -1);
    device_.activate(request.bank, request.row, clock_);
    forget_in_rank(waiting_.openers, request.bank);
    waiting_.row_opened(place);
    ++opened_in_[Device::rank_of(request.bank)];
    ++counts_.activations;
    if (timing_.aad > 0) {
      half_open_ = request.bank;
      half_open_until_ = clock_ + timing_.aad;
    }
  }

  void activate2(int32_t place) {
    put_down(kActivate2, waiting_.bank_of(place), waiting_[place].row, -1);
    half_open_ = kNone;
  }

  // For a request, or, if there is none, for a refresh or because the row had all its accesses.
  void precharge(const Choice& choice) {
    int64_t bank = choice.bank;
    if (choice.place != kNone) {
      Request& request = waiting_[choice.place];
      count(request, counts_.row_conflicts);
      bank = request.bank;
    }
    put_down(kPrecharge, bank, -1, -1);
    device_.precharge(bank, clock_);
    forget_in_rank(waiting_.closers, bank);
    start_row(bank);
    waiting_.row_closed(bank);
  }

  void refresh_same() {
    const int64_t rank = refreshing_ % controller_.ranks, first = refreshed_bank(0) % kMostBanks;
    const bool one = controller_.refresh_set == 1;
    put_down(kRefreshSame, rank, one ? first / controller_.banks_per_group : -1, first % controller_.banks_per_group,
             -1, -1);
    for (int64_t i = 0; i < controller_.refresh_set; ++i) device_.refresh_bank(refreshed_bank(i), clock_);
    device_.refreshed_banks(rank, clock_);
    forget(waiting_.openers);
    ++counts_.refreshes;
    refreshing_ = (refreshing_ + 1) % (controller_.ranks * refresh_sets_);
    --refreshes_due_;
  }

  void precharge_all(int64_t rank) {
    put_down(kPrechargeAll, rank, -1, -1, -1, -1);
    const uint64_t open = device_.open[rank];
    device_.precharge_all(rank, clock_);
    forget(waiting_.closers);
    forget(waiting_.openers);
    for (uint64_t left = open; left != 0; left &= left - 1) {
      const int64_t bank = rank * kMostBanks + __builtin_ctzll(left);
      start_row(bank);
      waiting_.row_closed(bank);
    }
  }

  template <Kind kind>
  void access(int32_t place) {
    Request& request = waiting_[place];
    if (waiting_.opened_for(request.bank) == place) {
      --opened_in_[Device::rank_of(request.bank)];
    } else {
      count(request, counts_.row_hits);
    }
    const int64_t bank = request.bank;
    const int32_t holder = waiting_.opened_for(bank);
    const bool closes = controller_.close_after > 0 && accesses_[bank] >= controller_.close_after &&
                        (holder == kNone || holder == place);
    const Command plain = kind == kReads ? kRead : kWrite, closing = kind == kReads ? kReadClose : kWriteClose;
    put_down(closes ? closing : plain, bank, request.row, request.column);
    device_.access<kind>(bank, clock_, closes);
    forget(waiting_.hits);
    forget(waiting_.opened);
    if (controller_.rows_first) {
      forget(waiting_.closers);  // the bank's row may be needed no more, so that its PRE need not wait
    } else {
      forget_of_bank(waiting_.closers, request.bank);
    }
    last_data_ = std::max(last_data_, clock_ + device_.far.data[kind]);
    if (kind == kReads) {
      ++counts_.reads;
      counts_.read_latency += clock_ + device_.far.data[kReads] - request.arrival;
    } else {
      ++counts_.writes;
    }
    waiting_.served(place);
    if (closes) {
      device_.auto_precharge<kind>(bank, clock_);
      start_row(bank);
      waiting_.row_closed(bank);
    } else if (controller_.close_after > 0 && ++accesses_[bank] >= controller_.close_after) {
      used_up_[Device::rank_of(bank)] |= Device::bit(bank);
    }
  }

  // No access of the bank's next row was made yet.
  void start_row(int64_t bank) {
    accesses_[bank] = 0;
    used_up_[Device::rank_of(bank)] &= ~Device::bit(bank);
  }

  // The clocks for these differ from those when the first of them was found.
  static void forget(Places (&of_kind)[2]) { of_kind[kReads].known = of_kind[kWrites].known = false; }

  // The same if only clocks of one rank, or of one bank, have moved: clocks only move later, so a first elsewhere
  // remains the first.
  void forget_in_rank(Places (&of_kind)[2], int64_t bank) {
    for (Places& places : of_kind) {
      places.known &= !one_rank && places.first != kNone &&
                      Device::rank_of(waiting_.bank_of(places.first)) != Device::rank_of(bank);
    }
  }
  void forget_of_bank(Places (&of_kind)[2], int64_t bank) {
    for (Places& places : of_kind) places.known &= places.first != kNone && waiting_.bank_of(places.first) != bank;
  }

  // A request is a hit, a miss or a conflict by its first command.
  static void count(Request& request, int64_t& as) {
    as += !request.counted;
    request.counted = true;
  }

  void put_down(Command command, int64_t bank, int64_t row, int64_t column) {
    if (log_ == nullptr) return;
    const int64_t in_rank = bank % kMostBanks;
    put_down(command, Device::rank_of(bank), in_rank / controller_.banks_per_group,
             in_rank % controller_.banks_per_group, row, column);
  }
  void put_down(Command command, int64_t rank, int64_t group, int64_t bank, int64_t row, int64_t column) {
    if (log_ != nullptr) log_->push_back({clock_, command, rank, group, bank, row, column});
  }

  const Timing& timing_;
  const Layout& layout_;
  const Controller& controller_;
  std::vector<Issued>* log_;
  std::unique_ptr<Device> device_owner_;
  Device& device_;
  Waiting waiting_;
  int64_t opened_in_[kMostRanks] = {};  // by rank: banks with a row opened for a request that is not served yet
  static constexpr int64_t kBlock = 256;
  int64_t fields_[5][kBlock];  // of the requests to come, as Slice::field
  const bool same_bank_;
  const int64_t refresh_every_, refresh_sets_;  // clocks between two refreshes; refreshes that take a rank's banks once
  const int64_t edge_;                          // 1 if commands other than PRE begin in odd clocks only
  int64_t half_open_ = kNone;                   // the bank whose ACT lacks its second command
  int64_t half_open_until_ = 0;                 // the clock in which that is due at the latest
  int64_t accesses_[kMostRanks * kMostBanks] = {};  // of the open row, where rows are closed after some
  uint64_t used_up_[kMostRanks] = {};               // banks whose row had them all, a bit a bank
  int64_t clock_ = 0, next_refresh_, last_data_ = 0;
  int64_t refreshes_due_ = 0, refreshing_ = 0;  // the rank whose turn it is; plus ranks times the set of banks
  bool writing_ = false;
  Counts counts_ = {};
};

}  // namespace

Counts simulate(const Timing& timing, const Layout& layout, const Controller& controller, const int64_t* bursts,
                const uint8_t* writes, int64_t requests, std::vector<Issued>* log) {
  if (controller.ranks == 1) {
    return std::make_unique<Simulation<true>>(timing, layout, controller, log)->run(bursts, writes, requests);
  }
  return std::make_unique<Simulation<false>>(timing, layout, controller, log)->run(bursts, writes, requests);
}

}  // namespace onehop::dram
