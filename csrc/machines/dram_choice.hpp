// The choice of the next command.
//
// With two command buses, first RD and WR, then the other commands are looked at, and each bus may take one a clock.
// Where an ACT is two commands, the second goes out in a clock in which nothing else can, at the latest AAD clocks
// after the first; no other ACT begins before it. Where rows are closed after so many accesses, their PRE comes before
// the commands of waiting requests.
#pragma once

#include <algorithm>
#include <cstdint>

#include "dram_device.hpp"
#include "dram_waiting.hpp"

namespace onehop::dram {

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

// Rows and refreshes that were begun.
struct Progress {
  int64_t opened_in[kMostRanks] = {};  // by rank: banks with a row opened for a request that is not served yet
  uint64_t used_up[kMostRanks] = {};   // by rank, a bit a bank: whether its row had all the accesses it may have
  int64_t half_open = kNone;           // the bank whose ACT lacks its second command
  int64_t half_open_until = 0;         // the clock in which that is due at the latest
  int64_t refreshes_due = 0;
  int64_t refreshing = 0;  // the rank whose turn it is; plus ranks times the set of banks

  // One of the banks that the next same-bank refresh takes.
  int64_t refreshed_bank(const Controller& controller, int64_t i) const {
    const int64_t rank = refreshing % controller.ranks, set = refreshing / controller.ranks;
    return rank * kMostBanks + i * controller.banks_per_group + set;
  }
};

// one_rank: nothing depends on the rank, so the search can ignore it.
template <bool one_rank>
class Chooser {
 public:
  Chooser(const Timing& timing, const Controller& controller, const Device& device, const Progress& progress,
          Waiting& waiting)
      : controller_(controller),
        device_(device),
        progress_(progress),
        waiting_(waiting),
        same_bank_(controller.refresh == kSameBank),
        edge_(timing.command_edges - 1) {}

  // The next command if no request arrives: not before `from`.
  Choice choose(int64_t from) {
    const Choice choice = choose_whole(from);
    if (progress_.half_open == kNone || (choice.clock == from && from < progress_.half_open_until)) return choice;
    return {from, kActivate2, waiting_.opened_for(progress_.half_open)};
  }

  // The same for the two buses of a device that has two.
  Choice choose_column(int64_t from) {
    const int64_t soonest = later(from, device_.bus[kColumnBus]);
    const Choice opened = choose_opened(soonest);
    if (progress_.refreshes_due > 0 || opened.clock == from) return opened;
    const Choice closing = choose_closing(later(from, device_.bus[kRowBus]));
    turn_to_writes_or_reads();
    Choice other{std::min(opened.clock, closing.clock), kRefresh, kNone};
    offer_hits(other, soonest);
    return other.place != kNone ? other : opened;
  }

  Choice choose_row(int64_t from) {
    const int64_t soonest = later(from, device_.bus[kRowBus]);
    if (progress_.refreshes_due > 0) return choose_refresh(soonest);
    const Choice closing = choose_closing(soonest);
    turn_to_writes_or_reads();
    Choice other{closing.clock, kRefresh, kNone};
    offer_rows(other, soonest);
    return other.place != kNone ? other : closing;
  }

 private:
  Choice choose_whole(int64_t from) {
    const int64_t soonest = later(from, device_.bus[kRowBus]);
    const Choice opened = choose_opened(soonest);
    if (progress_.refreshes_due > 0) {
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
      for (uint64_t left = progress_.used_up[rank]; left != 0; left &= left - 1) {
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
    if (waiting_.openers[kind].count > 0 && progress_.half_open == kNone) {
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
    const int64_t rank = progress_.refreshing;
    if (device_.open[rank] == 0) return {on_edge(std::max(soonest, device_.rank_ref[rank])), kRefresh, kNone};
    if (progress_.opened_in[rank] == 0) return {std::max(soonest, device_.rank_pre_all[rank]), kPrechargeAll, kNone};
    return {};
  }

  // The same with one bank after another, or with the same bank of every bank group. The first row that may be closed
  // is closed first.
  Choice choose_same_bank(int64_t soonest) const {
    const int64_t rank = progress_.refreshing % controller_.ranks;
    int64_t ready = std::max(soonest, device_.rank_refsb[rank]);
    bool held = false;
    for (int64_t i = 0; i < controller_.refresh_set; ++i) {
      const int64_t bank = progress_.refreshed_bank(controller_, i);
      ready = std::max({ready, device_.refsb[bank], device_.group_refsb[device_.group_of(bank)]});
      if (device_.row[bank] < 0) continue;
      held = waiting_.opened_for(bank) != kNone || held;
      if (waiting_.opened_for(bank) != kNone) continue;
      return {std::max({soonest, device_.rank_pre[rank], device_.pre[bank]}), kPrecharge, kNone, bank};
    }
    if (held) return {};
    return {on_edge(ready), kRefreshSame, kNone};
  }

  // The next clock in which a command other than PRE may begin.
  int64_t on_edge(int64_t clock) const { return clock | edge_; }

  void turn_to_writes_or_reads() {
    const int64_t reads = waiting_.size[kReads], writes = waiting_.size[kWrites];
    writing_ =
        writing_ ? !(5 * writes < controller_.queue && reads != 0) : 5 * writes > 4 * controller_.queue || reads == 0;
  }

  const Controller& controller_;
  const Device& device_;
  const Progress& progress_;
  Waiting& waiting_;
  const bool same_bank_;
  const int64_t edge_;  // 1 if commands other than PRE begin in odd clocks only
  bool writing_ = false;
};

}  // namespace onehop::dram
