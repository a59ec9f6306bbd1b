// Dropout's kernels against the standard library's generator, which is torch's: masks, products, and the state
// afterwards. Included by kernel_check.cpp, whose groups it uses.
#pragma once

// torch's state of a generator that has drawn `position` numbers of its first block.
std::vector<unsigned char> torch_state(std::mt19937& generator, uint64_t position) {
  // The standard library's text: the block, and the place in it.
  std::stringstream text;
  text << generator;
  std::vector<unsigned char> state(5056);
  const int32_t left = 625 - static_cast<int32_t>(position);
  std::memcpy(state.data() + 8, &left, sizeof(left));
  std::memcpy(state.data() + 16, &position, sizeof(position));
  for (size_t i = 0; i < 624; ++i) {
    uint64_t word = 0;
    text >> word;
    std::memcpy(state.data() + 24 + 8 * i, &word, sizeof(word));
  }
  return state;
}

void check_dropout(const std::string& isa) {
  Group group(isa + " float32", "dropout");
  for (const int64_t count : {1, 63, 64, 65, 311, 312, 2495, 2496, 2497, 20'000}) {
    for (const uint64_t position : {1, 2, 311, 623, 624}) {
      for (const int threads : {1, 3}) {
        std::mt19937 generator(7);
        for (uint64_t i = 0; i < position; ++i) generator();
        auto state = torch_state(generator, position);
        const auto n = static_cast<size_t>(count);
        std::vector<float, AtLine<float>> x(n), out(n), again(n);
        for (size_t i = 0; i < n; ++i) x[i] = static_cast<float>(i % 100) + 1;
        std::vector<uint64_t> kept((n + 63) / 64);
        constexpr uint64_t kBound = uint64_t{3} << 51;  // three quarters
        onehop::DropoutArgs args{};
        args.threads = threads;
        args.nontemporal = threads == 3;
        args.count = count;
        args.share = 1;
        args.bound = kBound;
        args.scale = 0.5;
        args.x = x.data();
        args.out = out.data();
        args.kept = kept.data();
        args.state = state.data();
        args.state_bytes = static_cast<int64_t>(state.size());
        const std::string where = std::to_string(count) + " elements at " + std::to_string(position) + ", " +
                                  std::to_string(threads) + " threads";
        group.compare(where + ", state understood", 0, onehop::draw_dropout(args) ? 1 : 0, 1, 0);
        args.out = again.data();
        onehop::apply_dropout(args);
        for (size_t i = 0; i < n; ++i) {
          const uint64_t upper = generator(), lower = generator();
          const bool keeps = ((upper << 32 | lower) & ((uint64_t{1} << 53) - 1)) < kBound;
          const double want = keeps ? 0.5 * x[i] : 0;
          group.compare(where, static_cast<int64_t>(i), out[i], want, 0);
          group.compare(where + ", again", static_cast<int64_t>(i), again[i], want, 0);
          group.compare(where + ", bit", static_cast<int64_t>(i), static_cast<double>(kept[i / 64] >> (i % 64) & 1),
                        keeps ? 1 : 0, 0);
        }
        const uint64_t behind = position + 2 * static_cast<uint64_t>(count);
        const auto expected = torch_state(generator, behind - (behind - 1) / 624 * 624);
        for (size_t i = 0; i < expected.size(); ++i) {
          group.compare(where + ", state", static_cast<int64_t>(i), state[i], expected[i], 0);
        }
      }
    }
  }
}
