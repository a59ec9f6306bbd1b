// The controller: first ready, first come, from event to event.
//
// What it does clock by clock, and what the events are so chosen as not to change: before a clock one request arrives,
// if its queue has room. Then one command may go out, the first of these that is ready: the read or write of a
// request whose row was opened for it; else the refresh that is due; else, if none is due, the oldest ready command
// of those that wait. A request leaves the queue when the row is opened for it, or when it reads or writes an open
// row. A bank with a row opened for a request is not closed before that request is served. Writes are served where no
// read waits or 80 % of their queue is full, until it is emptied to 20 %.
#include "dram.hpp"

#include "dram_device.hpp"
#include "dram_waiting.hpp"

namespace onehop::dram {
namespace {

// The command that goes out next, and when: for a request, or, where place is kNone, to refresh the rank whose turn it
// is.
struct Choice {
  int64_t clock = kNever;
  Command command = kRefresh;
  int32_t place = kNone;
};

// Finds the first of several commands, and of those of one clock the one whose request is oldest. Clocks from `from`
// on and places are packed into one number, so that the choice costs no branch.
class First {
 public:
  // What is ready only at `until` is not found.
  First(int64_t from, int64_t until) : from_(from), key_(static_cast<uint64_t>(until - from) << kPlaceBits) {}

  void offer(int64_t ready, int32_t place, Command command) {
    const uint64_t key = static_cast<uint64_t>(ready - from_) << kPlaceBits | static_cast<uint64_t>(place);
    const bool better = key < key_;
    key_ = better ? key : key_;
    command_ = better ? command : command_;
    found_ |= better;
  }
  // Whether a command that is ready then could be the first.
  bool open_at(int64_t ready) const { return static_cast<uint64_t>(ready - from_) << kPlaceBits < key_; }

  Choice choice() const {
    if (!found_) return {};
    return {from_ + static_cast<int64_t>(key_ >> kPlaceBits), command_,
            static_cast<int32_t>(key_ & ((uint64_t{1} << kPlaceBits) - 1))};
  }

 private:
  static constexpr int kPlaceBits = 20;
  int64_t from_;
  uint64_t key_;
  Command command_ = kRefresh;
  bool found_ = false;
};

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
        next_refresh_(controller.refresh ? timing.refi : kNever) {}

  Counts run(const int64_t* bursts, const uint8_t* writes, int64_t count) {
    int64_t arrived = 0;
    Arrival next = {};
    if (count > 0) next = decode(bursts[0], writes[0]);
    while (arrived < count || !waiting_.empty()) {
      const int64_t clock = clock_ + 1;
      if (arrived < count && arrive(next)) {
        if (++arrived < count) {
          next = decode(bursts[arrived], writes[arrived]);
        } else {
          counts_.accepted_cycles = clock_;
          counts_.accepted_served = counts_.reads + counts_.writes;
        }
      }
      if (clock == next_refresh_) {
        refreshes_due_ += controller_.ranks;
        refreshing_ = 0;
        next_refresh_ += timing_.refi;
      }
      // Until when nothing comes in that could change the choice.
      int64_t until = next_refresh_ - 1;
      if (arrived < count && takes(next)) until = clock;
      const Choice choice = choose(clock);
      if (choice.clock > until) {
        clock_ = until;
      } else {
        clock_ = choice.clock;
        issue(choice);
      }
    }
    counts_.cycles = last_data_;
    return counts_;
  }

 private:
  struct Arrival {
    int64_t bank, row, column;
    int kind;
  };

  Arrival decode(int64_t burst, uint8_t write) const {
    int64_t fields[5] = {0, 0, 0, 0, 0};
    for (int64_t i = 0; i < layout_.count; ++i) {
      const Slice& s = layout_.slices[i];
      fields[s.field] |= ((burst >> s.shift) & ((int64_t{1} << s.bits) - 1)) << s.place;
    }
    if (layout_.xor_column) {
      for (int64_t f = 0, used = 0; f < 4; used += layout_.widths[f++]) {
        fields[f] ^= (fields[4] >> used) & ((int64_t{1} << layout_.widths[f]) - 1);
      }
    }
    const int64_t bank = fields[0] * kMostBanks + fields[1] * controller_.banks_per_group + fields[2];
    return {bank, fields[3], fields[4], write ? kWrites : kReads};
  }

  bool written_soon(const Arrival& it) const {
    return waiting_.size[kWrites] > 0 && waiting_.holds(kWrites, it.bank, it.row, it.column);
  }
  bool takes(const Arrival& it) const { return waiting_.size[it.kind] < controller_.queue || written_soon(it); }

  // Takes a request in, if its queue has room.
  bool arrive(const Arrival& it) {
    if (written_soon(it)) {
      ++(it.kind == kReads ? counts_.forwarded : counts_.coalesced);
      return true;
    }
    if (waiting_.size[it.kind] >= controller_.queue) return false;
    waiting_.push(clock_, it.bank, it.row, it.column, it.kind);
    return true;
  }

  // The next command if nothing comes in: not before `from`.
  Choice choose(int64_t from) {
    First first(from, kNever);
    offer_opened(first, std::max(from, device_.bus));
    const Choice opened = first.choice();
    if (refreshes_due_ > 0) {
      const Choice refresh = choose_refresh(from);
      return refresh.clock < opened.clock ? refresh : opened;
    }
    if (opened.clock == from) return opened;
    turn_to_writes_or_reads();
    First waiting(from, opened.clock);
    offer_waiting(waiting, std::max(from, device_.bus), writing_ ? kWrites : kReads);
    const Choice choice = waiting.choice();
    return choice.clock < opened.clock ? choice : opened;
  }

  // Offers some of the requests' next command, oldest first. `soonest`: before it none can be ready.
  template <class Ready>
  void offer(First& first, Places& places, int64_t soonest, Ready ready_at) {
    if (places.count == 0 || !first.open_at(std::max(soonest, places.floor))) return;
    int64_t floor = kNever;
    for (int32_t word = waiting_.first_word; word < waiting_.end_word; ++word) {
      for (uint64_t left = places.words[word]; left != 0; left &= left - 1) {
        const int32_t place = word * 64 + __builtin_ctzll(left);
        const Request& request = waiting_[place];
        Command command;
        const int64_t ready = std::max(soonest, ready_at(request, command));
        first.offer(ready, place, command);
        if (ready == soonest) return;  // the rest is younger, and not ready sooner
        floor = std::min(floor, ready);
      }
    }
    places.floor = floor;
  }

  int64_t cas_ready(int64_t bank, int kind) const {
    const int64_t in_rank = std::max(device_.rank_cas[kind][Device::rank_of(bank)], device_.bus_cas[kind]);
    return std::max(in_rank, std::max(device_.cas[bank], device_.group_cas[kind][device_.group_of(bank)]));
  }

  int64_t least(const int64_t* by_rank) const { return *std::min_element(by_rank, by_rank + controller_.ranks); }

  void offer_opened(First& first, int64_t soonest) {
    if (waiting_.opened.count == 0) return;
    int64_t cas = kNever;
    for (int kind = 0; kind < 2; ++kind)
      cas = std::min(cas, std::max(device_.bus_cas[kind], least(device_.rank_cas[kind])));
    offer(first, waiting_.opened, std::max(soonest, cas), [this](const Request& request, Command& command) {
      command = request.kind == kReads ? kRead : kWrite;
      return cas_ready(request.bank, request.kind);
    });
  }

  void offer_waiting(First& first, int64_t soonest, int kind) {
    const Device& d = device_;
    if (waiting_.hits[kind].count > 0) {
      const int64_t cas = std::max(d.bus_cas[kind], least(d.rank_cas[kind]));
      offer(first, waiting_.hits[kind], std::max(soonest, cas), [&](const Request& request, Command& command) {
        command = kind == kReads ? kRead : kWrite;
        return cas_ready(request.bank, kind);
      });
    }
    if (waiting_.closers[kind].count > 0) {
      offer(first, waiting_.closers[kind], std::max(soonest, least(d.rank_pre)),
            [&](const Request& request, Command& command) {
              command = kPrecharge;
              if (controller_.rows_first && waiting_.has_older_hit(request)) return kNever;
              return std::max(d.rank_pre[Device::rank_of(request.bank)], d.pre[request.bank]);
            });
    }
    if (waiting_.openers[kind].count > 0) {
      offer(first, waiting_.openers[kind], std::max(soonest, least(d.rank_act)),
            [&](const Request& request, Command& command) {
              command = kActivate;
              const int64_t bank = request.bank;
              return std::max(d.rank_act[Device::rank_of(bank)], std::max(d.act[bank], d.group_act[d.group_of(bank)]));
            });
    }
  }

  // Ranks are refreshed one after another: rows closed, then REF. Rows that were opened for a request stay for it.
  Choice choose_refresh(int64_t from) const {
    const int64_t rank = refreshing_, soonest = std::max(from, device_.bus);
    if (device_.open[rank] == 0) return {std::max(soonest, device_.rank_ref[rank]), kRefresh, kNone};
    if (opened_in_[rank] == 0) return {std::max(soonest, device_.rank_pre_all[rank]), kPrechargeAll, kNone};
    return {};
  }

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
        precharge(choice.place);
        break;
      case kRead:
        access<kReads>(choice.place);
        break;
      case kWrite:
        access<kWrites>(choice.place);
        break;
      case kPrechargeAll:
        precharge_all(refreshing_);
        break;
      case kRefresh:
        put_down(kRefresh, refreshing_, -1, -1, -1, -1);
        device_.refresh(refreshing_, clock_);
        ++counts_.refreshes;
        ++refreshing_;
        --refreshes_due_;
        break;
    }
  }

  void activate(int32_t place) {
    Request& request = waiting_[place];
    count(request, counts_.row_misses);
    put_down(kActivate, request.bank, request.row, -1);
    device_.activate(request.bank, request.row, clock_);
    waiting_.row_opened(place);
    ++opened_in_[Device::rank_of(request.bank)];
    ++counts_.activations;
  }

  void precharge(int32_t place) {
    Request& request = waiting_[place];
    count(request, counts_.row_conflicts);
    put_down(kPrecharge, request.bank, -1, -1);
    device_.precharge(request.bank, clock_);
    waiting_.row_closed(request.bank);
  }

  void precharge_all(int64_t rank) {
    put_down(kPrechargeAll, rank, -1, -1, -1, -1);
    const uint64_t open = device_.open[rank];
    device_.precharge_all(rank, clock_);
    for (uint64_t left = open; left != 0; left &= left - 1) {
      waiting_.row_closed(rank * kMostBanks + __builtin_ctzll(left));
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
    put_down(kind == kReads ? kRead : kWrite, request.bank, request.row, request.column);
    device_.access<kind>(request.bank, clock_);
    last_data_ = std::max(last_data_, clock_ + device_.far.data[kind]);
    if (kind == kReads) {
      ++counts_.reads;
      counts_.read_latency += clock_ + device_.far.data[kReads] - request.arrival;
    } else {
      ++counts_.writes;
    }
    waiting_.served(place);
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
  int64_t clock_ = 0, next_refresh_, last_data_ = 0;
  int64_t refreshes_due_ = 0, refreshing_ = 0;  // the rank whose turn it is
  bool writing_ = false;
  Counts counts_ = {};
};

}  // namespace

Counts simulate(const Timing& timing, const Layout& layout, const Controller& controller, const int64_t* bursts,
                const uint8_t* writes, int64_t requests, std::vector<Issued>* log) {
  return Simulation(timing, layout, controller, log).run(bursts, writes, requests);
}

}  // namespace onehop::dram
