// Draws neighbours hop by hop. Every random number depends on the batch's key, the hop, the relation, the tree and the
// node, never on a thread, so that the batch is the same for any number of them.
#include <limits>

#include "state.hpp"

namespace onehop {
namespace {

// What of a row may be drawn, given the times; and how much of it is.
Picks picks_of(Drawing::State& state, const SampledRelation& relation, int64_t row, int64_t tree, int64_t fan_out) {
  Picks picks = state.whole_row(relation, row);
  if (picks.population == 0 || fan_out == 0) return {picks.begin, 0, 0};
  const auto time_of = [&](int64_t edge) {
    if (relation.edge_time != nullptr) return relation.edge_time[edge];
    const int64_t source = state.source(relation, edge);
    return source < 0 ? std::numeric_limits<int64_t>::max() : relation.src_time[source];
  };
  if (relation.edge_time != nullptr || relation.src_time != nullptr) {
    // The first edge that is later than the seed.
    const int64_t bound = state.tree_time[tree];
    int64_t low = picks.begin, high = picks.begin + picks.population;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      time_of(middle) <= bound ? low = middle + 1 : high = middle;
    }
    picks.population = low - picks.begin;
    if (state.options.last && fan_out > 0 && picks.population > fan_out) {
      picks.begin = low - fan_out;
      picks.population = fan_out;
    }
    if (picks.population > 1 && time_of(picks.begin) > time_of(low - 1)) {
      state.problems.note(DrawProblem::unsorted_times, row);
      return {picks.begin, 0, 0};
    }
  }
  if (picks.population == 0) return picks;
  const bool all = fan_out < 0 || (!state.options.replace && fan_out >= picks.population);
  picks.count = all ? picks.population : fan_out;
  if (!all && state.options.replace && relation.running != nullptr &&
      !(relation.running[picks.begin + picks.population - 1] > 0)) {
    state.problems.note(DrawProblem::no_weight, row);
    return {picks.begin, 0, 0};
  }
  return picks;
}

void draw_row(const Drawing::State& state, const SampledRelation& relation, const Picks& picks, int64_t fan_out,
              RandomStream random, Picker& picker, int64_t* out) {
  const bool replace = state.options.replace && fan_out >= 0;
  if (!replace && picks.count == picks.population) {
    Picker::all(picks, out);
  } else if (relation.weight != nullptr) {
    replace ? Picker::weighted_with_replacement(picks, relation.running, random, out)
            : picker.weighted_without_replacement(picks, relation.weight, random, out);
  } else {
    replace ? Picker::with_replacement(picks, random, out) : picker.without_replacement(picks, random, out);
  }
}

// How many edges each row of the frontier yields: appends to the rows of the relation.
void plan_rows(Drawing::State& state, int number, int64_t fan_out) {
  const SampledRelation& relation = state.relations[static_cast<size_t>(number)];
  const NodesOfType& type = state.types[static_cast<size_t>(relation.dst_type)];
  EdgesOfRelation& edges = state.edges[static_cast<size_t>(number)];
  const int64_t rows = type.end - type.begin;
  state.picks.clear();
  Picks* picks = state.picks.extend(rows);
  over_rows(rows, state.options.threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      if (i + kAhead < end) __builtin_prefetch(&relation.rowptr[type.node[type.begin + i + kAhead]]);
      const int64_t place = type.begin + i;
      picks[i] = picks_of(state, relation, type.node[place], state.tree_of(type, place), fan_out);
    }
  });
  int64_t most_population = 0, most_count = 0;
  int64_t sum = edges.rowptr[edges.rowptr.size() - 1];
  int64_t* ends = edges.rowptr.extend(rows);
  for (int64_t i = 0; i < rows; ++i) {
    ends[i] = sum += picks[i].count;
    if (picks[i].count == picks[i].population) continue;
    most_population = std::max(most_population, picks[i].population);
    most_count = std::max(most_count, picks[i].count);
  }
  const bool by_key = relation.weight != nullptr || state.options.shared;
  for (Picker& picker : state.pickers) picker.reserve(most_population, most_count, by_key);
}

// Draws the planned edges, and notes the keys of their sources.
void draw_rows(Drawing::State& state, int number, int hop, int64_t fan_out) {
  const SampledRelation& relation = state.relations[static_cast<size_t>(number)];
  const NodesOfType& type = state.types[static_cast<size_t>(relation.dst_type)];
  EdgesOfRelation& edges = state.edges[static_cast<size_t>(number)];
  const int64_t rows = type.end - type.begin, first = edges.edge.size();
  const int64_t* ends = edges.rowptr.data() + edges.rowptr.size() - rows;
  int64_t* edge = edges.edge.extend(rows > 0 ? ends[rows - 1] - first : 0);
  state.keys.clear();
  uint64_t* keys = state.keys.extend(edges.edge.size() - first);
  const auto stream = static_cast<uint64_t>(hop) * state.relations.size() + static_cast<uint64_t>(number);
  const uint64_t key = RandomStream(state.options.key, stream).bits64();
  // The same for all relations whose sources are of one type; of another key than the numbers of rows.
  const auto type_in_hop = static_cast<uint64_t>(hop) * state.types.size() + static_cast<uint64_t>(relation.src_type);
  const uint64_t shared_key = RandomStream(~state.options.key, type_in_hop).bits64();
  const auto source_of = [&](int64_t e) { return state.source(relation, e); };
  over_rows(rows, state.options.threads, [&](int64_t begin, int64_t end, int thread) {
    const auto start = [&](int64_t i) { return i == 0 ? 0 : ends[i - 1] - first; };
    for (int64_t i = begin; i < end; ++i) {
      if (state.picks[i].count == 0) continue;
      Picker& picker = state.pickers[static_cast<size_t>(thread)];
      if (state.options.shared && state.picks[i].count < state.picks[i].population) {
        picker.by_source(state.picks[i], shared_key, source_of, edge + start(i));
        continue;
      }
      const uint64_t row = NodeTable::key_of(state.tree_of(type, type.begin + i), type.node[type.begin + i]);
      draw_row(state, relation, state.picks[i], fan_out, RandomStream(key, row), picker, edge + start(i));
    }
    const int64_t last = start(end);
    for (int64_t i = begin, e = start(begin); i < end; ++i) {
      const int64_t tree = state.tree_of(type, type.begin + i);
      for (; e < start(i + 1); ++e) {
        if (e + kAhead < last) state.prefetch_col(relation, edge[e + kAhead]);
        const int64_t source = state.source(relation, edge[e]);
        keys[e] = NodeTable::key_of(tree, source < 0 ? 0 : source);
      }
    }
  });
}

// Numbers the sources in the order in which they are met. False if there are too many.
bool number_sources(Drawing::State& state, int number) {
  const SampledRelation& relation = state.relations[static_cast<size_t>(number)];
  NodesOfType& type = state.types[static_cast<size_t>(relation.src_type)];
  const int64_t count = state.keys.size();
  int32_t* col = state.edges[static_cast<size_t>(number)].col.extend(count);
  // Sources that are new are written first and counted afterwards.
  type.node.reserve(type.node.size() + count);
  if (state.options.disjoint) type.tree.reserve(type.tree.size() + count);
  for (int64_t e = 0; e < count; ++e) {
    if (e + kAhead < count) type.table.prefetch(state.keys[e + kAhead]);
    const uint64_t key = state.keys[e];
    const auto [found, is_new] = type.table.insert(key, static_cast<int32_t>(type.node.size()));
    col[e] = found;
    if (!is_new) continue;
    if (type.node.size() == std::numeric_limits<int32_t>::max()) return false;
    type.node.push(static_cast<int32_t>(key & 0xffffffff));
    if (state.options.disjoint) type.tree.push(static_cast<int32_t>(key >> 32));
  }
  return true;
}

DrawResult place_seeds(Drawing::State& state, const std::vector<Seeds>& seeds) {
  int64_t trees = 0;
  for (size_t t = 0; t < seeds.size(); ++t) {
    trees = std::max(trees, seeds[t].first_tree + seeds[t].count);
    if (trees > std::numeric_limits<int32_t>::max()) {
      return {DrawProblem::too_many_nodes, static_cast<int64_t>(t), 0};
    }
  }
  state.tree_time.clear();
  state.tree_time.extend(trees);
  for (size_t t = 0; t < state.types.size(); ++t) {
    NodesOfType& type = state.types[t];
    type.node.clear();
    type.tree.clear();
    type.table.begin();
    for (int64_t i = 0; i < seeds[t].count; ++i) {
      const int64_t node = seeds[t].node[i], tree = seeds[t].first_tree + i;
      if (static_cast<uint64_t>(node) >= static_cast<uint64_t>(seeds[t].num_nodes)) {
        return {DrawProblem::seed_out_of_range, static_cast<int64_t>(t), i};
      }
      // Of a seed that is given twice, both copies are drawn from, and edges go from the first.
      type.table.insert(NodeTable::key_of(state.options.disjoint ? tree : 0, node), static_cast<int32_t>(i));
      type.node.push(static_cast<int32_t>(node));
      if (state.options.disjoint) type.tree.push(static_cast<int32_t>(tree));
      if (seeds[t].time != nullptr) state.tree_time[tree] = seeds[t].time[i];
    }
    type.begin = 0;
    type.end = seeds[t].count;
    type.per_hop.assign(1, seeds[t].count);
  }
  return {};
}

DrawResult draw_hop(Drawing::State& state, int hop) {
  for (size_t r = 0; r < state.relations.size(); ++r) {
    const std::vector<int64_t>& fan_outs = state.relations[r].fan_out;
    const int64_t fan_out = static_cast<size_t>(hop) < fan_outs.size() ? fan_outs[static_cast<size_t>(hop)] : 0;
    const int64_t before = state.edges[r].edge.size();
    const auto number = static_cast<int>(r);
    plan_rows(state, number, fan_out);
    if (state.problems.any()) return state.problems.result(number);
    draw_rows(state, number, hop, fan_out);
    if (state.problems.any()) return state.problems.result(number);
    if (!number_sources(state, number)) return {DrawProblem::too_many_nodes, number, 0};
    state.edges[r].per_hop.push_back(state.edges[r].edge.size() - before);
  }
  for (NodesOfType& type : state.types) {
    type.begin = type.end;
    type.end = type.node.size();
    type.per_hop.push_back(type.end - type.begin);
  }
  return {};
}

}  // namespace

Drawing::Drawing(int types, std::vector<SampledRelation> relations) : state_(std::make_unique<State>()) {
  state_->types = std::vector<NodesOfType>(static_cast<size_t>(types));
  state_->edges = std::vector<EdgesOfRelation>(relations.size());
  state_->relations = std::move(relations);
}

Drawing::~Drawing() = default;

DrawResult Drawing::draw(const std::vector<Seeds>& seeds, const DrawOptions& options) {
  State& state = *state_;
  state.options = options;
  state.problems.clear();
  if (state.pickers.size() < static_cast<size_t>(options.threads)) {
    state.pickers.resize(static_cast<size_t>(options.threads));
  }
  for (EdgesOfRelation& edges : state.edges) {
    edges.rowptr.clear();
    edges.rowptr.push(0);
    edges.col.clear();
    edges.edge.clear();
    edges.per_hop.clear();
  }
  DrawResult result = place_seeds(state, seeds);
  for (int hop = 0; hop < options.hops && result.problem == DrawProblem::none; ++hop) result = draw_hop(state, hop);
  if (result.problem != DrawProblem::none) return result;
  if (options.induced) return state.induce();
  // Rows of nodes that nobody drew from.
  for (size_t r = 0; r < state.relations.size(); ++r) {
    EdgesOfRelation& edges = state.edges[r];
    const int64_t rows = state.types[static_cast<size_t>(state.relations[r].dst_type)].node.size();
    const int64_t missing = rows + 1 - edges.rowptr.size();
    std::fill_n(edges.rowptr.extend(missing), missing, edges.edge.size());
  }
  return result;
}

}  // namespace onehop
