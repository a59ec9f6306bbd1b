// The command level of onehop.machines.dram: ranks behind one data bus under a first-ready, first-come controller.
#pragma once

#include <cstdint>
#include <vector>

namespace onehop::dram {

// Least distances in clocks, as onehop.machines.dram.Timing, in its order.
struct Timing {
  int64_t clock_ps, bl, cl, cwl, rcd, rp, ras, rc, ccd_s, ccd_l, ccd_l_wr, rrd_s, rrd_l, faw, rtp, wr, wtr_s, wtr_l,
      rtw, ppd, cs, rfc, refi, command_clocks, rcd_wr, act_clocks, command_buses, command_edges, aad, rfc_sb, refi_sb,
      refsb_act, refsb_refsb, rp_all, faw_refsb;
};

// Bits of a burst's number that are bits of a field: 0 rank, 1 bank group, 2 bank, 3 row, 4 column.
struct Slice {
  int64_t field, shift, bits, place;
};

struct Layout {
  const Slice* slices;
  int64_t count;
  int64_t widths[5];
  bool xor_column;
};

struct Controller {
  int64_t ranks, bank_groups, banks_per_group;
  int64_t queue;        // requests of a kind that wait
  int64_t refresh;      // a Refresh
  int64_t refresh_set;  // banks that a same-bank refresh takes: 1, or as many as there are bank groups
  int64_t close_after;  // accesses after which a row is closed; 0: only for another row of its bank
  bool rows_first;      // a row that an older request still needs is not closed
};

// All banks of every rank in every REFI; or one set of banks in every REFI_SB, in turn.
enum Refresh : int64_t { kNoRefresh, kAllBanks, kSameBank };

enum Command : int64_t {
  kActivate,
  kPrecharge,
  kPrechargeAll,
  kRead,
  kWrite,
  kRefresh,
  kRefreshSame,  // one bank, or the same bank of every bank group
  kActivate2,    // the second half of an ACT that is two commands
  kReadClose,    // with auto-precharge
  kWriteClose,
};

// A command and its target: -1 for all.
struct Issued {
  int64_t clock, command, rank, bank_group, bank, row, column;
};

struct Counts {
  int64_t cycles;         // until the last data were transferred
  int64_t reads, writes;  // bursts on the bus
  int64_t row_hits, row_misses, row_conflicts;
  int64_t activations, refreshes;            // refreshes: over all ranks
  int64_t forwarded, coalesced;              // requests that a queued write answered or absorbed
  int64_t read_latency;                      // sum over reads, from arrival to the end of the data
  int64_t open_clocks;                       // sum over banks, of the clocks in which a row is open
  int64_t accepted_cycles, accepted_served;  // when the queue took the last request, and bursts begun until then
};

// Most ranks, and most banks a rank.
inline constexpr int64_t kMostRanks = 64;
inline constexpr int64_t kMostBanks = 64;

// Serves `requests` bursts in the given order; one arrives a clock while the queue has room. bursts: [requests], each
// below 2^(sum of widths). writes: [requests], 1 for a write. log: nullptr, or the destination of every command.
Counts simulate(const Timing& timing, const Layout& layout, const Controller& controller, const int64_t* bursts,
                const uint8_t* writes, int64_t requests, std::vector<Issued>* log);

}  // namespace onehop::dram
