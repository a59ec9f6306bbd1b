// The controller: first ready, first come first served, event by event.
//
// Its clock-by-clock behaviour, which the choice of events preserves: before a clock one request arrives, if its queue
// has room. Then one command may be issued, the first of these that is ready: the read or write of a request whose row
// was opened for it; else the refresh that is due; else, if none is due, the oldest ready command of the waiting
// requests. A request leaves the queue when the row is opened for it, or when it reads or writes an open row. A bank
// with a row opened for a request is not closed before that request is served. Writes are served if no read waits or 80
// % of their queue is full, until it is drained to 20 %.
//
// An access beyond the number after which rows are closed closes its row itself.
#include "dram.hpp"

#include "dram_arrivals.hpp"
#include "dram_choice.hpp"
#include "dram_device.hpp"
#include "dram_waiting.hpp"

namespace onehop::dram {
namespace {

template <bool one_rank>
class Simulation {
 public:
  Simulation(const Timing& timing, const Controller& controller, Arrivals& arrivals, std::vector<Issued>* log)
      : timing_(timing),
        controller_(controller),
        arrivals_(arrivals),
        log_(log),
        device_owner_(std::make_unique<Device>(timing, controller)),
        device_(*device_owner_),
        waiting_(device_, controller.queue),
        chooser_(timing, controller, device_, progress_, waiting_),
        refresh_every_(controller.refresh == kSameBank ? timing.refi_sb : timing.refi),
        refresh_sets_(controller.refresh == kSameBank ? device_.banks / controller.refresh_set : 1),
        next_refresh_(controller.refresh != kNoRefresh ? refresh_every_ : kNever) {}

  Counts run() {
    Arrival next = {};
    bool comes = take(next);
    while (comes || !waiting_.empty()) {
      const int64_t clock = clock_ + 1;
      if (comes && arrive(next)) {
        comes = take(next);
        if (!comes) {
          counts_.accepted_cycles = clock_;
          counts_.accepted_served = counts_.reads + counts_.writes;
        }
      }
      if (clock == next_refresh_) {
        progress_.refreshes_due += controller_.ranks;
        next_refresh_ += refresh_every_;
      }
      // Until then no request arrives that could change the choice.
      int64_t until = next_refresh_ - 1;
      if (comes && takes(next)) until = clock;
      if (device_.one_bus) {
        const Choice choice = chooser_.choose(clock);
        clock_ = std::min(choice.clock, until);
        if (choice.clock <= until) issue(choice);
      } else {
        step_both_buses(clock, until);
      }
    }
    counts_.cycles = last_data_;
    for (int64_t rank = 0; rank < controller_.ranks; ++rank) {
      for (uint64_t left = device_.open[rank]; left != 0; left &= left - 1)
        close_at(rank * kMostBanks + __builtin_ctzll(left), last_data_);
    }
    return counts_;
  }

 private:
  // The next request to come, if any is left.
  bool take(Arrival& next) {
    if (!arrivals_.any_left()) return false;
    next = arrivals_.take();
    next.may_merge = waiting_.size[kWrites] > 0 && waiting_.holds(kWrites, next.bank, next.row, next.column);
    return true;
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

  void step_both_buses(int64_t from, int64_t until) {
    const Choice column = chooser_.choose_column(from);
    const int64_t row_clock = chooser_.choose_row(from).clock;
    const int64_t next = std::min(column.clock, row_clock);
    clock_ = std::min(next, until);
    if (next > until) return;
    if (column.clock == next) issue(column);
    const Choice row = chooser_.choose_row(next);  // the access may have changed it
    if (row.clock == next) issue(row);
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
        precharge_all(progress_.refreshing);
        break;
      case kRefresh:
        put_down(kRefresh, progress_.refreshing, -1, -1, -1, -1);
        device_.refresh(progress_.refreshing, clock_);
        forget(waiting_.closers);
        forget(waiting_.openers);
        ++counts_.refreshes;
        progress_.refreshing = (progress_.refreshing + 1) % controller_.ranks;
        --progress_.refreshes_due;
        break;
    }
  }

  void activate(int32_t place) {
    Request& request = waiting_[place];
    count(request, counts_.row_misses);
    put_down(kActivate, request.bank, request.row, -1);
    device_.activate(request.bank, request.row, clock_);
    opened_at_[request.bank] = clock_;
    forget_in_rank(waiting_.openers, request.bank);
    waiting_.row_opened(place);
    ++progress_.opened_in[Device::rank_of(request.bank)];
    ++counts_.activations;
    if (timing_.aad > 0) {
      progress_.half_open = request.bank;
      progress_.half_open_until = clock_ + timing_.aad;
    }
  }

  void activate2(int32_t place) {
    put_down(kActivate2, waiting_.bank_of(place), waiting_[place].row, -1);
    progress_.half_open = kNone;
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
    close_at(bank, clock_);
    device_.precharge(bank, clock_);
    forget_in_rank(waiting_.closers, bank);
    start_row(bank);
    waiting_.row_closed(bank);
  }

  void refresh_same() {
    const int64_t rank = progress_.refreshing % controller_.ranks,
                  first = progress_.refreshed_bank(controller_, 0) % kMostBanks;
    const bool one = controller_.refresh_set == 1;
    put_down(kRefreshSame, rank, one ? first / controller_.banks_per_group : -1, first % controller_.banks_per_group,
             -1, -1);
    for (int64_t i = 0; i < controller_.refresh_set; ++i)
      device_.refresh_bank(progress_.refreshed_bank(controller_, i), clock_);
    device_.refreshed_banks(rank, clock_);
    forget(waiting_.openers);
    ++counts_.refreshes;
    progress_.refreshing = (progress_.refreshing + 1) % (controller_.ranks * refresh_sets_);
    --progress_.refreshes_due;
  }

  void precharge_all(int64_t rank) {
    put_down(kPrechargeAll, rank, -1, -1, -1, -1);
    const uint64_t open = device_.open[rank];
    device_.precharge_all(rank, clock_);
    forget(waiting_.closers);
    forget(waiting_.openers);
    for (uint64_t left = open; left != 0; left &= left - 1) {
      const int64_t bank = rank * kMostBanks + __builtin_ctzll(left);
      close_at(bank, clock_);
      start_row(bank);
      waiting_.row_closed(bank);
    }
  }

  template <Kind kind>
  void access(int32_t place) {
    Request& request = waiting_[place];
    if (waiting_.opened_for(request.bank) == place) {
      --progress_.opened_in[Device::rank_of(request.bank)];
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
      close_at(bank, std::max(clock_ + device_.far.cas_pre[kind], opened_at_[bank] + device_.far.act_pre));
      device_.auto_precharge<kind>(bank, clock_);
      start_row(bank);
      waiting_.row_closed(bank);
    } else if (controller_.close_after > 0 && ++accesses_[bank] >= controller_.close_after) {
      progress_.used_up[Device::rank_of(bank)] |= Device::bit(bank);
    }
  }

  // The bank's row, open since its ACT, is closed at this clock.
  void close_at(int64_t bank, int64_t clock) { counts_.open_clocks += clock - opened_at_[bank]; }

  // No access of the bank's next row was made yet.
  void start_row(int64_t bank) {
    accesses_[bank] = 0;
    progress_.used_up[Device::rank_of(bank)] &= ~Device::bit(bank);
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
  const Controller& controller_;
  Arrivals& arrivals_;
  std::vector<Issued>* log_;
  std::unique_ptr<Device> device_owner_;
  Device& device_;
  Waiting waiting_;
  Progress progress_;
  Chooser<one_rank> chooser_;
  const int64_t refresh_every_, refresh_sets_;  // clocks between two refreshes; refreshes that take a rank's banks once
  int64_t accesses_[kMostRanks * kMostBanks] = {};   // of the open row, where rows are closed after some
  int64_t opened_at_[kMostRanks * kMostBanks] = {};  // the clock of the last ACT
  int64_t clock_ = 0, next_refresh_, last_data_ = 0;
  Counts counts_ = {};
};

}  // namespace

Counts simulate(const Timing& timing, const Layout& layout, const Controller& controller, const int64_t* bursts,
                const uint8_t* writes, int64_t requests, std::vector<Issued>* log) {
  const auto arrivals = std::make_unique<Arrivals>(layout, controller, bursts, writes, requests);
  if (controller.ranks == 1) {
    return std::make_unique<Simulation<true>>(timing, controller, *arrivals, log)->run();
  }
  return std::make_unique<Simulation<false>>(timing, controller, *arrivals, log)->run();
}

}  // namespace onehop::dram
