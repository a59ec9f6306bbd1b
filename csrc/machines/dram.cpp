// The controller: first ready, first come, from event to event.
//
// What it does clock by clock, and what the events are so chosen as not to change: before a clock one request arrives,
// if its queue has room. Then one command may go out, the first of these that is ready: the read or write of a
// request whose row was opened for it; else the refresh that is due; else, if none is due, the oldest ready command
// of those that wait. A request leaves the queue when the row is opened for it, or when it reads or writes an open
// row. A bank with a row opened for a request is not closed before that request is served. Writes are served where no
// read waits or 80 % of their queue is full, until it is emptied to 20 %.
#include "dram.hpp"

#include <limits>

#include "dram_device.hpp"
#include "dram_queue.hpp"

namespace onehop::dram {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// A command that could be next: when, the arrival of the request that wants it, and the bank or rank.
struct Choice {
  int64_t clock = kNever, arrival = kNever;
  Command command = kRead;
  int64_t where = -1;

  void offer(int64_t ready, int64_t age, Command what, int64_t place) {
    if (ready < clock || (ready == clock && age < arrival)) {
      clock = ready;
      arrival = age;
      command = what;
      where = place;
    }
  }
};

class Simulation {
 public:
  Simulation(const Timing& timing, const Layout& layout, const Controller& controller, std::vector<Issued>* log)
      : timing_(timing),
        layout_(layout),
        controller_(controller),
        log_(log),
        device_(std::make_unique<Device>(timing, controller)),
        queues_{std::make_unique<Queue>(), std::make_unique<Queue>()},
        opened_for_(std::make_unique<int32_t[]>(kMostRanks * kMostBanks)) {
    // A place a waiting request, and one a bank with a row opened for a request.
    const int64_t places = 2 * controller.queue + controller.ranks * device_->banks;
    requests_ = std::make_unique<Request[]>(places);
    free_ = std::make_unique<int32_t[]>(places);
    for (int64_t i = 0; i < places; ++i) free_[free_count_++] = static_cast<int32_t>(places - 1 - i);
    next_refresh_ = controller.refresh ? timing.refi : kNever;
  }

  Counts run(const int64_t* bursts, const uint8_t* writes, int64_t count) {
    int64_t arrived = 0;
    while (arrived < count || waiting() > 0) {
      const int64_t clock = clock_ + 1;
      if (arrived < count && arrive(bursts[arrived], writes[arrived] ? kWrites : kReads)) {
        if (++arrived == count) {
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
      if (arrived < count && has_room(writes[arrived] ? kWrites : kReads)) until = clock;
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
  int64_t waiting() const { return queues_[kReads]->size + queues_[kWrites]->size + opened_; }
  bool has_room(Kind kind) const { return queues_[kind]->size < controller_.queue; }

  // Takes a request in, if its queue has room.
  bool arrive(int64_t burst, Kind kind) {
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
    Queue& written = *queues_[kWrites];
    if (written.size > 0 && written.holds(requests_.get(), bank, fields[3], fields[4])) {
      ++(kind == kReads ? counts_.forwarded : counts_.coalesced);
      return true;
    }
    if (!has_room(kind)) return false;
    const int32_t it = free_[--free_count_];
    requests_[it] = {clock_, bank, fields[3], fields[4], kNone, kNone, kind, false};
    queues_[kind]->push(requests_.get(), it, device_->row[bank]);
    return true;
  }

  // The next command if nothing comes in: not before `from`.
  Choice choose(int64_t from) {
    Choice choice;
    for (int64_t rank = 0; rank < controller_.ranks; ++rank) {
      for (uint64_t left = active_[rank]; left != 0; left &= left - 1) {
        const int64_t bank = rank * kMostBanks + __builtin_ctzll(left);
        const Request& request = requests_[opened_for_[bank]];
        choice.offer(cas_ready(from, bank, request.kind), request.arrival, cas_command(request.kind), bank);
      }
    }
    if (refreshes_due_ > 0) {
      offer_refresh(from, choice);
    } else if (choice.clock > from) {
      Choice waiting = choose_waiting(from);
      if (waiting.clock < choice.clock) return waiting;
    }
    return choice;
  }

  int64_t cas_ready(int64_t from, int64_t bank, int kind) const {
    const Device& d = *device_;
    const int64_t shared = std::max(std::max(d.bus, d.bus_cas[kind]), d.rank_cas[kind][Device::rank_of(bank)]);
    return std::max(std::max(from, shared), std::max(d.cas[bank], d.group_cas[kind][d.group_of(bank)]));
  }

  static Command cas_command(int kind) { return kind == kReads ? kRead : kWrite; }

  // Ranks are refreshed one after another: rows closed, then REF. Rows that were opened for a request stay for it.
  void offer_refresh(int64_t from, Choice& choice) const {
    const Device& d = *device_;
    const int64_t rank = refreshing_;
    int64_t ready;
    if (d.open[rank] == 0) {
      ready = std::max(std::max(from, d.bus), d.rank_ref[rank]);
    } else if (active_[rank] == 0) {
      ready = std::max(std::max(from, d.bus), d.rank_pre_all[rank]);
    } else {
      return;
    }
    if (ready < choice.clock) {
      choice.clock = ready;
      choice.command = d.open[rank] == 0 ? kRefresh : kPrechargeAll;
      choice.where = rank;
    }
  }

  Choice choose_waiting(int64_t from) {
    turn_to_writes_or_reads();
    const int kind = writing_ ? kWrites : kReads;
    const Queue& queue = *queues_[kind];
    const Device& d = *device_;
    Choice choice;
    if (queue.size == 0) return choice;
    for (int64_t rank = 0; rank < controller_.ranks; ++rank) {
      const int64_t first = rank * kMostBanks;
      const int64_t cas = std::max(std::max(from, d.rank_cas[kind][rank]), std::max(d.bus, d.bus_cas[kind]));
      if (cas <= choice.clock) {
        for (uint64_t left = queue.hits[rank]; left != 0; left &= left - 1) {
          const int64_t bank = first + __builtin_ctzll(left);
          const int64_t ready = std::max(cas, std::max(d.cas[bank], d.group_cas[kind][d.group_of(bank)]));
          choice.offer(ready, queue.hit_age[bank], cas_command(kind), bank);
        }
      }
      const int64_t pre = std::max(std::max(from, d.bus), d.rank_pre[rank]);
      if (pre <= choice.clock) {
        for (uint64_t left = queue.others[rank] & d.open[rank] & ~active_[rank]; left != 0; left &= left - 1) {
          const int64_t bank = first + __builtin_ctzll(left);
          if (controller_.rows_first && queue.hit[bank] != kNone && queue.hit_age[bank] < queue.other_age[bank])
            continue;
          choice.offer(std::max(pre, d.pre[bank]), queue.other_age[bank], kPrecharge, bank);
        }
      }
      const int64_t act = std::max(std::max(from, d.bus), d.rank_act[rank]);
      if (act <= choice.clock) {
        for (uint64_t left = queue.others[rank] & ~d.open[rank]; left != 0; left &= left - 1) {
          const int64_t bank = first + __builtin_ctzll(left);
          const int64_t ready = std::max(act, std::max(d.act[bank], d.group_act[d.group_of(bank)]));
          choice.offer(ready, queue.other_age[bank], kActivate, bank);
        }
      }
    }
    return choice;
  }

  void turn_to_writes_or_reads() {
    const double write_share = static_cast<double>(queues_[kWrites]->size) / static_cast<double>(controller_.queue);
    if (!writing_) {
      writing_ = write_share > 0.8 || queues_[kReads]->size == 0;
    } else {
      writing_ = !(write_share < 0.2 && queues_[kReads]->size != 0);
    }
  }

  void issue(const Choice& choice) {
    const int kind = writing_ ? kWrites : kReads;
    switch (choice.command) {
      case kActivate:
        activate(choice.where, queues_[kind]->other[choice.where], kind);
        break;
      case kPrecharge:
        precharge(choice.where, queues_[kind]->other[choice.where]);
        break;
      case kPrechargeAll:
        precharge_all(choice.where);
        break;
      case kRead:
        access<kReads>(choice.where);
        break;
      case kWrite:
        access<kWrites>(choice.where);
        break;
      case kRefresh:
        put_down(kRefresh, choice.where, -1, -1, -1, -1);
        device_->refresh(choice.where, clock_);
        ++counts_.refreshes;
        ++refreshing_;
        --refreshes_due_;
        break;
    }
  }

  void activate(int64_t bank, int32_t it, int kind) {
    Request& request = requests_[it];
    count(request, counts_.row_misses);
    put_down(kActivate, bank, request.row, -1);
    queues_[kind]->remove(requests_.get(), it, -1);
    device_->activate(bank, request.row, clock_);
    row_changed(bank);
    opened_for_[bank] = it;
    active_[Device::rank_of(bank)] |= Device::bit(bank);
    ++opened_;
    ++counts_.activations;
  }

  void precharge(int64_t bank, int32_t it) {
    count(requests_[it], counts_.row_conflicts);
    put_down(kPrecharge, bank, -1, -1);
    device_->precharge(bank, clock_);
    row_changed(bank);
  }

  void precharge_all(int64_t rank) {
    put_down(kPrechargeAll, rank, -1, -1, -1, -1);
    const uint64_t open = device_->open[rank];
    device_->precharge_all(rank, clock_);
    for (uint64_t left = open; left != 0; left &= left - 1) row_changed(rank * kMostBanks + __builtin_ctzll(left));
  }

  template <Kind kind>
  void access(int64_t bank) {
    const uint64_t bit = Device::bit(bank);
    uint64_t& active = active_[Device::rank_of(bank)];
    int32_t it;
    if (active & bit) {
      it = opened_for_[bank];
      active &= ~bit;
      --opened_;
    } else {
      it = queues_[kind]->hit[bank];
      count(requests_[it], counts_.row_hits);
      queues_[kind]->remove(requests_.get(), it, device_->row[bank]);
    }
    const Request& request = requests_[it];
    put_down(cas_command(kind), bank, request.row, request.column);
    device_->access<kind>(bank, clock_);
    last_data_ = std::max(last_data_, clock_ + device_->far.data[kind]);
    if (kind == kReads) {
      ++counts_.reads;
      counts_.read_latency += clock_ + device_->far.data[kReads] - request.arrival;
    } else {
      ++counts_.writes;
    }
    free_[free_count_++] = it;
  }

  void row_changed(int64_t bank) {
    const int64_t row = device_->row[bank];
    for (auto& queue : queues_) {
      if (queue->head[bank] != kNone) queue->row_changed(requests_.get(), bank, row);
    }
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
  std::unique_ptr<Device> device_;
  std::unique_ptr<Queue> queues_[2];
  std::unique_ptr<int32_t[]> opened_for_;  // by bank: the request that its row was opened for
  uint64_t active_[kMostRanks] = {};       // banks that have one
  int64_t opened_ = 0;                     // how many have one
  std::unique_ptr<Request[]> requests_;
  std::unique_ptr<int32_t[]> free_;
  int64_t free_count_ = 0;
  int64_t clock_ = 0, next_refresh_ = kNever, last_data_ = 0;
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
