// Dropout with the numbers of torch's CPU generator: shares of the stream for threads, and pieces that stay in the
// caches for each.
#include "onehop/dropout.hpp"

#include <cstring>
#include <new>

#include "onehop/block.hpp"
#include "onehop/parallel.hpp"

namespace onehop {
namespace {

// Elements of a piece. Their words are eight blocks of the generator and make whole words of the mask.
constexpr int64_t kPiece = 2496;
static_assert(2 * kPiece % kMersenneWords == 0 && kPiece % 64 == 0);
// Elements of a task of a product alone.
constexpr int64_t kTask = int64_t{1} << 16;
// Kernels write up to one vector past the end.
constexpr int64_t kSpare = 16;

// The state as torch's get_state lays it out, from ATen/CPUGeneratorImpl.cpp: CPUGeneratorImplStateLegacy, and behind
// it the cache of normal numbers.
struct TorchState {
  uint64_t seed;
  int32_t left;  // words to come in the block, and one; 1 where the block is used up
  int32_t seeded;
  uint64_t next;  // place of the word that comes next, unless the block is used up
  uint64_t words[kMersenneWords];
};
constexpr int64_t kTorchStateBytes = 5056;
static_assert(sizeof(TorchState) <= kTorchStateBytes);

bool read(const DropoutArgs& args, Mersenne& generator) {
  if (args.state_bytes != kTorchStateBytes) return false;
  TorchState state;
  std::memcpy(&state, args.state, sizeof(state));
  const bool used_up = state.left == 1;
  if (!used_up &&
      (state.next > kMersenneWords || state.left != kMersenneWords + 1 - static_cast<int64_t>(state.next))) {
    return false;
  }
  generator.position = used_up ? kMersenneWords : static_cast<int64_t>(state.next);
  for (int64_t i = 0; i < kMersenneWords; ++i) {
    if (state.words[i] >> 32 != 0) return false;
    generator.words[i] = static_cast<uint32_t>(state.words[i]);
  }
  return true;
}

void write(const Mersenne& generator, const DropoutArgs& args) {
  TorchState state;
  std::memcpy(&state, args.state, sizeof(state));
  state.left = static_cast<int32_t>(kMersenneWords + 1 - generator.position);
  state.next = static_cast<uint64_t>(generator.position);
  for (int64_t i = 0; i < kMersenneWords; ++i) state.words[i] = generator.words[i];
  std::memcpy(args.state, &state, sizeof(state));
}

template <class T>
T* later(T* from, int64_t bytes) {
  if (from == nullptr) return nullptr;
  return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(from) + static_cast<uintptr_t>(bytes));
}

int64_t bytes_of(DType dtype) { return dtype == DType::float64 ? 8 : dtype == DType::float32 ? 4 : 2; }

// The elements from `begin` on, `count` of them: out = x * factor.
void keep(const DropoutArgs& args, int64_t begin, int64_t count, const uint64_t* bits) {
  const int64_t bytes = begin * bytes_of(args.dtype);
  kernels().keep({.dtype = args.dtype,
                  .nontemporal = args.nontemporal,
                  .count = count,
                  .scale = args.scale,
                  .x = later(args.x, bytes),
                  .bits = bits,
                  .out = later(args.out, bytes)});
}

// What one thread does: elements [begin, end), of which the first uses the word at `position` of the block.
struct Share {
  const DropoutArgs* args;
  int64_t begin, end;
  uint32_t* words;  // [kShareWords]: a block, and what comes after it
};
constexpr int64_t kShareWords = kMersenneWords + 2 * kPiece + kSpare;

// Runs a share, and leaves the generator behind its last word.
void run(const Share& share, Mersenne& generator) {
  const DropoutArgs& args = *share.args;
  uint32_t* words = share.words;
  std::memcpy(words, generator.words, sizeof(generator.words));
  uint64_t own_bits[kPiece / 64];
  const int64_t position = generator.position;
  for (int64_t begin = share.begin; begin < share.end; begin += kPiece) {
    const int64_t count = begin + kPiece < share.end ? kPiece : share.end - begin;
    const int64_t behind = position + 2 * count;
    // Of the block that the last word used lies in, which is the generator's block afterwards.
    const int64_t block = (behind - 1) / kMersenneWords * kMersenneWords;
    kernels().mersenne_words(words, block > 2 * count ? block : 2 * count);
    uint64_t* bits = args.kept == nullptr ? own_bits : args.kept + begin / 64;
    kernels().mersenne_below(words + position, count, args.bound, bits);
    if (args.out != nullptr) keep(args, begin, count, bits);
    if (begin + count == share.end) {
      std::memcpy(generator.words, words + block, sizeof(generator.words));
      generator.position = behind - block;
    } else {
      std::memcpy(words, words + 2 * kPiece, sizeof(generator.words));
    }
  }
}

// A distance that many sizes have in common, since the first jump over each takes a millisecond more.
int64_t rounded_up(int64_t pieces) {
  int digits = 0;
  while (pieces >> digits >= 64) ++digits;
  return (((pieces - 1) >> digits) + 1) << digits;
}

}  // namespace

bool draw_dropout(const DropoutArgs& args) {
  Mersenne generator;
  if (!read(args, generator)) return false;
  if (args.count == 0) return true;
  int64_t threads = args.threads;
  if (threads > args.count / args.share) threads = args.count / args.share;
  if (threads < 1 || !openmp_bound() || in_forked_child()) threads = 1;
  const int64_t pieces = (args.count + kPiece - 1) / kPiece;
  const int64_t elements = rounded_up((pieces + threads - 1) / threads) * kPiece;
  const int64_t shares = (args.count + elements - 1) / elements;

  const Block words(shares * kShareWords * static_cast<int64_t>(sizeof(uint32_t)));
  if (!words) throw std::bad_alloc();
  struct Context {
    const DropoutArgs& args;
    const Mersenne start;
    Mersenne& end;
    int64_t elements;
    uint32_t* words;
  } context{args, generator, generator, elements, words.as<uint32_t>()};
  parallel_for(
      shares, static_cast<int>(threads),
      [](void* opaque, int64_t task, int) {
        const auto& c = *static_cast<const Context*>(opaque);
        Mersenne own = c.start;
        const int64_t begin = task * c.elements;
        if (task > 0) jump(own.words, 2 * begin);
        const bool last = begin + c.elements >= c.args.count;
        run({&c.args, begin, last ? c.args.count : begin + c.elements, c.words + task * kShareWords}, own);
        if (last) c.end = own;
      },
      &context);
  write(generator, args);
  return true;
}

void apply_dropout(const DropoutArgs& args) {
  parallel_for((args.count + kTask - 1) / kTask, args.threads,
               [](void* opaque, int64_t task, int) {
                 const auto& c = *static_cast<const DropoutArgs*>(opaque);
                 const int64_t begin = task * kTask;
                 keep(c, begin, begin + kTask < c.count ? kTask : c.count - begin, c.kept + begin / 64);
               },
               const_cast<DropoutArgs*>(&args));
}

}  // namespace onehop
