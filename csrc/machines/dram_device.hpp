// Earliest clocks of the next command of each bank, bank group, rank and bus.
#pragma once

#include <algorithm>
#include <cstdint>

#include "dram.hpp"

namespace onehop::dram {

enum Kind : int { kReads = 0, kWrites = 1 };
// Command buses: RD and WR go over the first, all others over the second. A device with one has both names for it.
enum Bus : int { kColumnBus = 0, kRowBus = 1 };

// Distances between the first clocks of two commands. A command of several clocks acts in its last, so from a long
// command to a short one it is longer than the timing, from a short one to a long one shorter.
struct Distances {
  int64_t act_bus, cas_bus, act_cas[2], act_act, act_act_group, act_act_rank, four_acts, act_pre, act_ref, act_lasts,
      pre_act, pre_pre, pre_ref, pre_all_act, pre_all_ref;
  int64_t act_refsb_rank, act_refsb_group, refsb_act, refsb_act_rank, refsb_refsb, refsb_refsb_bank;
  int64_t auto_act[2], auto_ref[2];
  bool refsb_counts;  // REFSB counts as an ACT among four
  int64_t cas_cas_bus, cas_cas_rank, cas_cas_group[2], read_write, write_read_rank, write_read_group, cas_pre[2];
  int64_t read_other_rank, write_read_other_rank, ref_act, ref_row, data[2];

  explicit Distances(const Timing& t) {
    const int64_t longer = t.command_clocks - 1, act_longer = t.act_clocks - 1;
    act_bus = t.act_clocks;
    cas_bus = t.command_clocks;
    act_cas[kReads] = t.rcd + act_longer - longer;
    act_cas[kWrites] = t.rcd_wr + act_longer - longer;
    act_act = t.rc;
    act_act_group = t.rrd_l;
    act_act_rank = t.rrd_s;
    four_acts = t.faw;
    act_pre = t.ras + act_longer;
    act_ref = t.rc + act_longer;
    act_lasts = act_longer;
    pre_act = t.rp - act_longer;
    pre_pre = t.ppd;
    pre_ref = t.rp;
    pre_all_act = t.rp_all - act_longer;
    pre_all_ref = t.rp_all;
    cas_cas_bus = t.bl;
    cas_cas_rank = t.ccd_s;
    cas_cas_group[kReads] = t.ccd_l;
    cas_cas_group[kWrites] = t.ccd_l_wr;
    read_write = t.cl + t.bl + t.rtw - t.cwl;
    write_read_rank = t.cwl + t.bl + t.wtr_s;
    write_read_group = t.cwl + t.bl + t.wtr_l;
    cas_pre[kReads] = t.rtp + longer;
    cas_pre[kWrites] = t.cwl + t.bl + t.wr + longer;
    read_other_rank = t.bl + t.cs;
    write_read_other_rank = t.cwl + t.bl + t.cs - t.cl;
    ref_act = t.rfc - act_longer;
    act_refsb_rank = t.rrd_s + act_longer;
    act_refsb_group = t.rrd_l + act_longer;
    refsb_act = t.rfc_sb - act_longer;
    refsb_act_rank = t.refsb_act - act_longer;
    refsb_refsb = t.refsb_refsb;
    refsb_refsb_bank = t.rfc_sb;
    refsb_counts = t.faw_refsb != 0;
    for (const Kind kind : {kReads, kWrites}) {
      auto_ref[kind] = cas_pre[kind] + t.rp;
      auto_act[kind] = auto_ref[kind] - act_longer;
    }
    ref_row = t.rfc;
    data[kReads] = t.cl + t.bl;
    data[kWrites] = t.cwl + t.bl;
  }
};

inline int64_t later(int64_t a, int64_t b) { return a > b ? a : b; }
inline void raise(int64_t& ready, int64_t clock) { ready = later(ready, clock); }

struct Device {
  Distances far;
  int64_t ranks, banks, groups;  // banks and bank groups of a rank
  int group_shift;               // a bank's number, shifted, is its bank group's
  bool one_bus;

  // Ready clocks. Banks and bank groups are numbered over all ranks, a rank's banks from rank * kMostBanks on.
  int64_t bus[2] = {0, 0}, bus_cas[2] = {0, 0};
  int64_t rank_cas[2][kMostRanks] = {}, rank_act[kMostRanks] = {}, rank_pre[kMostRanks] = {};
  int64_t rank_pre_all[kMostRanks] = {}, rank_ref[kMostRanks] = {}, rank_refsb[kMostRanks] = {};
  int64_t last_acts[kMostRanks][4], acts[kMostRanks] = {};
  int64_t group_cas[2][kMostRanks * kMostBanks] = {}, group_act[kMostRanks * kMostBanks] = {};
  int64_t cas[2][kMostRanks * kMostBanks] = {}, act[kMostRanks * kMostBanks] = {}, pre[kMostRanks * kMostBanks] = {};
  int64_t refsb[kMostRanks * kMostBanks] = {}, group_refsb[kMostRanks * kMostBanks] = {};
  int64_t row[kMostRanks * kMostBanks];  // -1 where closed
  uint64_t open[kMostRanks] = {};        // a bit a bank

  Device(const Timing& timing, const Controller& controller)
      : far(timing),
        ranks(controller.ranks),
        banks(controller.bank_groups * controller.banks_per_group),
        groups(controller.bank_groups),
        group_shift(0),
        one_bus(timing.command_buses == 1) {
    while ((int64_t{1} << group_shift) < controller.banks_per_group) ++group_shift;
    for (int64_t& r : row) r = -1;
    for (auto& rank : last_acts) std::fill(rank, rank + 4, -far.four_acts);
  }

  static int64_t rank_of(int64_t bank) { return static_cast<int64_t>(static_cast<uint64_t>(bank) / kMostBanks); }
  static uint64_t bit(int64_t bank) { return uint64_t{1} << (static_cast<uint64_t>(bank) % kMostBanks); }
  int64_t group_of(int64_t bank) const { return bank >> group_shift; }

  void activate(int64_t bank, int64_t to_row, int64_t clock) {
    const int64_t rank = rank_of(bank);
    occupy(kRowBus, clock + far.act_bus);
    cas[kReads][bank] = clock + far.act_cas[kReads];
    cas[kWrites][bank] = clock + far.act_cas[kWrites];
    act[bank] = clock + far.act_act;
    raise(pre[bank], clock + far.act_pre);
    raise(group_act[group_of(bank)], clock + far.act_act_group);
    raise(rank_act[rank], clock + far.act_act_rank);
    count_act(rank, clock + far.act_lasts);
    raise(rank_pre_all[rank], clock + far.act_pre);
    raise(rank_ref[rank], clock + far.act_ref);
    raise(rank_refsb[rank], clock + far.act_refsb_rank);
    raise(group_refsb[group_of(bank)], clock + far.act_refsb_group);
    refsb[bank] = clock + far.act_ref;
    row[bank] = to_row;
    open[rank] |= bit(bank);
  }

  template <int kind>
  void access(int64_t bank, int64_t clock, bool closes) {
    const int64_t rank = rank_of(bank), group = group_of(bank);
    occupy(kColumnBus, clock + far.cas_bus);
    bus_cas[kind] = clock + far.cas_cas_bus;
    raise(rank_cas[kind][rank], clock + far.cas_cas_rank);
    raise(group_cas[kind][group], clock + far.cas_cas_group[kind]);
    if (!closes) {
      raise(pre[bank], clock + far.cas_pre[kind]);
      raise(rank_pre_all[rank], clock + far.cas_pre[kind]);
    }
    if (kind == kReads) {
      raise(rank_cas[kWrites][rank], clock + far.read_write);
    } else {
      raise(rank_cas[kReads][rank], clock + far.write_read_rank);
      raise(group_cas[kReads][group], clock + far.write_read_group);
      // A later read with auto-precharge may close the row before the write has recovered.
      raise_closed<kWrites>(bank, clock);
    }
    for (int64_t other = 0; other < ranks; ++other) {
      if (other == rank) continue;
      if (kind == kReads) {
        raise(rank_cas[kReads][other], clock + far.read_other_rank);
        raise(rank_cas[kWrites][other], clock + far.read_other_rank);
      } else {
        raise(rank_cas[kReads][other], clock + far.write_read_other_rank);
      }
    }
  }

  void precharge(int64_t bank, int64_t clock) {
    const int64_t rank = rank_of(bank);
    occupy(kRowBus, clock + 1);
    raise(act[bank], clock + far.pre_act);
    raise(refsb[bank], clock + far.pre_ref);
    precharged(rank, clock, far.pre_ref);
    closed(bank);
  }

  // The access at this clock closes its row.
  template <int kind>
  void auto_precharge(int64_t bank, int64_t clock) {
    raise_closed<kind>(bank, clock);
    closed(bank);
  }

  void precharge_all(int64_t rank, int64_t clock) {
    occupy(kRowBus, clock + 1);
    raise(rank_act[rank], clock + far.pre_all_act);
    precharged(rank, clock, far.pre_all_ref);
    for (int64_t bank = rank * kMostBanks; bank < rank * kMostBanks + banks; ++bank) row[bank] = -1;
    open[rank] = 0;
  }

  void refresh(int64_t rank, int64_t clock) {
    occupy(kRowBus, clock + 1);
    raise(rank_act[rank], clock + far.ref_act);
    raise(rank_pre_all[rank], clock + far.ref_row);
    raise(rank_ref[rank], clock + far.ref_row);
  }

  // The banks of a same-bank refresh, and what the rank waits for after it.
  void refresh_bank(int64_t bank, int64_t clock) {
    raise(act[bank], clock + far.refsb_act);
    raise(refsb[bank], clock + far.refsb_refsb_bank);
  }
  void refreshed_banks(int64_t rank, int64_t clock) {
    occupy(kRowBus, clock + 1);
    raise(rank_act[rank], clock + far.refsb_act_rank);
    raise(rank_refsb[rank], clock + far.refsb_refsb);
    if (far.refsb_counts) count_act(rank, clock);
  }

 private:
  void occupy(Bus which, int64_t until) {
    bus[which] = until;
    if (one_bus) bus[1 - which] = until;
  }

  // What waits for a row that is closed as soon as the access at this clock allows.
  template <int kind>
  void raise_closed(int64_t bank, int64_t clock) {
    raise(act[bank], clock + far.auto_act[kind]);
    raise(refsb[bank], clock + far.auto_ref[kind]);
    raise(rank_ref[rank_of(bank)], clock + far.auto_ref[kind]);
  }

  void closed(int64_t bank) {
    row[bank] = -1;
    open[rank_of(bank)] &= ~bit(bank);
  }

  void precharged(int64_t rank, int64_t clock, int64_t to_ref) {
    raise(rank_pre[rank], clock + far.pre_pre);
    raise(rank_pre_all[rank], clock + far.pre_pre);
    raise(rank_ref[rank], clock + to_ref);
  }

  // Counts an ACT, or a REFSB that counts as one, which acts at this clock. The third before it is then the oldest of
  // the four that the next one has to wait for.
  void count_act(int64_t rank, int64_t acts_at) {
    last_acts[rank][acts[rank]++ & 3] = acts_at;
    const int64_t ready = last_acts[rank][acts[rank] & 3] + far.four_acts;
    raise(rank_act[rank], ready - far.act_lasts);
    if (far.refsb_counts) raise(rank_refsb[rank], ready);
  }
};

}  // namespace onehop::dram
