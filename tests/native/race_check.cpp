// The engine's memory, loops and graphs, used by several threads at once, and in forked processes. Made to be compiled
// with ThreadSanitizer, which does not judge forked processes; what can be counted is checked in any build.
//
// race_check RUNTIME [planted]: RUNTIME is the library with the threads. `planted` runs a race, and a block used after
// it was given back, that must be found.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "graphs.hpp"
#include "onehop/block.hpp"
#include "onehop/communities.hpp"
#include "onehop/fingerprint.hpp"
#include "onehop/parallel.hpp"
#include "onehop/sampling.hpp"

namespace {

constexpr int kCallers = 3;
constexpr int kThreads = 3;
// How many threads are busy while processes are forked. The allocator that AddressSanitizer puts in the place of the
// C library's (GCC 12) does not release its locks in a child, which then waits for ever.
#if defined(__SANITIZE_ADDRESS__)
constexpr uint64_t kBusyThreads = 0;
#else
constexpr uint64_t kBusyThreads = 3;
#endif
constexpr int64_t kMegabyte = int64_t{1} << 20;

bool failed = false;

void expect(bool holds, const char* what) {
  if (holds) return;
  std::printf("FAIL %s\n", what);
  failed = true;
}

// Runs body(caller) on kCallers threads at once.
template <class Body>
void at_once(const Body& body) {
  std::atomic<int> waiting{kCallers};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < kCallers; ++caller) {
    callers.emplace_back([&, caller] {
      --waiting;
      while (waiting > 0) std::this_thread::yield();
      body(caller);
    });
  }
  for (std::thread& caller : callers) caller.join();
}

// Tasks of uneven length, so that threads take those of others.
void run_loops() {
  struct Loop {
    std::vector<int64_t> runs;     // [tasks], each written by its task alone
    std::vector<int64_t> scratch;  // [threads], each written by its thread alone
  };
  std::atomic<int64_t> wrong{0};
  at_once([&](int caller) {
    for (const int64_t tasks : {1, 2, 3, 7, 100, 1001}) {
      Loop loop{std::vector<int64_t>(static_cast<size_t>(tasks)), std::vector<int64_t>(kThreads)};
      onehop::parallel_for(
          tasks, kThreads,
          [](void* context, int64_t task, int thread) {
            auto& l = *static_cast<Loop*>(context);
            for (int64_t step = 0; step < (task < 3 ? 20000 : 10); ++step) ++l.scratch[static_cast<size_t>(thread)];
            ++l.runs[static_cast<size_t>(task)];
          },
          &loop);
      for (const int64_t runs : loop.runs) wrong += runs != 1;
      std::vector<char> bytes(static_cast<size_t>(tasks * 1000), static_cast<char>(caller));
      const auto size = static_cast<int64_t>(bytes.size());
      wrong += onehop::fingerprint(bytes.data(), size, kThreads) != onehop::fingerprint(bytes.data(), size, 1);
    }
  });
  expect(wrong == 0, "every task runs once, and fingerprints do not depend on threads");
}

// The first task ends when all others have: those of its thread are then done by other threads.
void take_over_tasks() {
  constexpr int64_t kTasks = 30;
  struct Loop {
    std::atomic<int64_t> done{0};
    std::vector<int> thread_of = std::vector<int>(kTasks, -1);  // [tasks], each written by its task alone
  } loop;
  onehop::parallel_for(
      kTasks, kThreads,
      [](void* context, int64_t task, int thread) {
        auto& l = *static_cast<Loop*>(context);
        l.thread_of[static_cast<size_t>(task)] = thread;
        while (task == 0 && l.done.load(std::memory_order_relaxed) < kTasks - 1) std::this_thread::yield();
        l.done.fetch_add(1, std::memory_order_relaxed);
      },
      &loop);
  bool taken = true;  // each thread begins with an even share
  for (size_t task = 1; task < kTasks / kThreads; ++task) taken &= loop.thread_of[task] != loop.thread_of[0];
  taken &= std::count(loop.thread_of.begin(), loop.thread_of.end(), -1) == 0;
  expect(taken, "threads take the tasks of one that is busy");
}

// A block that two threads were given would lose what one of them wrote.
void take_and_give(uint64_t seed, int times, std::atomic<int64_t>& wrong) {
  Random random{seed};
  for (int i = 0; i < times; ++i) {
    const auto bytes = static_cast<int64_t>(random.below(6 * static_cast<uint64_t>(kMegabyte))) + 8;
    const onehop::Block block(bytes);
    if (!block) {
      ++wrong;
      continue;
    }
    const uint64_t mark = random.next();
    auto* first = block.as<char>();
    auto* last = first + bytes - sizeof(mark);
    std::memcpy(first, &mark, sizeof(mark));
    std::memcpy(last, &mark, sizeof(mark));
    std::this_thread::yield();
    wrong += std::memcmp(first, &mark, sizeof(mark)) != 0 || std::memcmp(last, &mark, sizeof(mark)) != 0;
  }
}

void share_pool() {
  std::atomic<int64_t> wrong{0};
  const int64_t limit = onehop::pool_info().limit_bytes;
  const int64_t before = onehop::pool_info().in_use_bytes;
  at_once([&](int caller) {
    if (caller == 0) {
      for (int i = 0; i < 200; ++i) {
        onehop::pool_set_limit((i % 5) * 4 * kMegabyte);
        if (i % 10 == 0) onehop::pool_clear();
        const onehop::Block large(16 * kMegabyte);
        wrong += onehop::pool_info().kept_bytes > 16 * kMegabyte;
      }
    } else {
      take_and_give(static_cast<uint64_t>(caller), 400, wrong);
    }
  });
  onehop::pool_set_limit(limit);
  expect(wrong == 0, "a block has one owner");
  expect(onehop::pool_info().in_use_bytes == before, "all blocks came back");
}

void share_graph() {
  for (int round = 0; round < 10; ++round) {
    const Graph graph = random_graph("shared", 3000, 500, 60000, false, round % 2 == 0);
    std::atomic<int64_t> wrong{0};
    at_once([&](int caller) {
      for (int64_t edges = 64; edges < 4096; edges *= 2) {
        wrong += graph.csr->work(edges).items.empty();
        wrong += graph.csr->bytes() <= 0;
      }
      const auto back = onehop::transpose(*graph.transposed, false, kThreads);
      wrong += back == nullptr || back->edges != graph.edges();
    });
    expect(wrong == 0, "threads share a graph");
  }
}

// What a batch consists of.
struct Drawn {
  std::vector<int64_t> nodes, edges;
  bool operator==(const Drawn&) const = default;
};

Drawn draw(onehop::Drawing& drawing, const std::vector<int64_t>& seeds, int64_t num_nodes, int threads, bool induced) {
  onehop::DrawOptions options;
  options.key = 7;
  options.hops = 2;
  options.threads = threads;
  options.induced = induced;
  const auto count = static_cast<int64_t>(seeds.size());
  const auto result = drawing.draw({{seeds.data(), count, num_nodes, nullptr, 0}}, options);
  expect(result.problem == onehop::DrawProblem::none, "a batch is drawn");
  Drawn drawn;
  drawn.nodes.resize(static_cast<size_t>(drawing.nodes(0)));
  drawing.write_nodes(0, drawn.nodes.data(), nullptr);
  const auto edges = static_cast<size_t>(drawing.edges(0));
  std::vector<int64_t> src(edges), dst(edges);
  drawn.edges.resize(edges);
  drawing.write_edges(0, src.data(), dst.data(), drawn.edges.data(), threads);
  return drawn;
}

// Batches of one graph, each of them drawn by several threads.
void draw_neighbours() {
  const int64_t nodes = 6000;
  const Graph graph = random_graph("drawn from", nodes, nodes, 120000, false, false);
  std::vector<double> weight(static_cast<size_t>(graph.edges()), 1.0);
  onehop::SampledRelation relation;
  relation.rowptr = graph.csr->rowptr_data();
  relation.col = graph.csr->col_data();
  relation.rows = relation.cols = nodes;
  relation.edges = graph.edges();
  relation.fan_out = {8, 5};
  std::vector<int64_t> seeds;
  for (int64_t node = 0; node < nodes; node += 3) seeds.push_back(node);
  for (const bool weighted : {false, true}) {
    relation.weight = weighted ? weight.data() : nullptr;
    for (const bool induced : {false, true}) {
      onehop::Drawing alone(1, {relation});
      const Drawn expected = draw(alone, seeds, nodes, 1, induced);
      std::atomic<int64_t> wrong{0};
      at_once([&](int) {
        onehop::Drawing drawing(1, {relation});
        for (int round = 0; round < 3; ++round) wrong += draw(drawing, seeds, nodes, kThreads, induced) != expected;
      });
      expect(wrong == 0 && expected.edges.size() > seeds.size(), "threads draw what one draws");
    }
  }
}

#if !defined(__SANITIZE_THREAD__)
// The child of a process whose other threads are inside the pool, inside loops and inside a graph.
void fork_in_between() {
  std::atomic<bool> done{false};
  std::atomic<int64_t> wrong{0};
  const Graph shared = random_graph("shared", 3000, 500, 60000, false, false);
  std::vector<std::thread> busy;
  for (uint64_t seed = 1; seed <= kBusyThreads; ++seed) {
    busy.emplace_back([&, seed] {
      while (!done) {
        take_and_give(seed, 5, wrong);
        std::vector<char> bytes(100000, 'x');
        onehop::fingerprint(bytes.data(), static_cast<int64_t>(bytes.size()), kThreads);
        wrong += shared.csr->work(seed + 1).items.empty();
      }
    });
  }
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);  // a lock that nobody holds any more would be waited for without end
      std::atomic<int64_t> bad{onehop::in_forked_child() ? 0 : 1};
      take_and_give(99, 20, bad);
      const Graph graph = random_graph("child's", 300, 50, 40000, false, false);
      bad += graph.csr->work(256).items.empty();
      bad += shared.csr->work(16 + i).items.empty();
      onehop::pool_clear();
      bad += onehop::pool_info().kept_bytes != 0;
      _exit(bad == 0 ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) std::printf("signal %d ended the forked process %d\n", WTERMSIG(status), i);
    expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a forked process has pool and loops");
  }
  done = true;
  for (std::thread& thread : busy) thread.join();
  expect(wrong == 0, "a block has one owner while processes are forked");
  expect(!onehop::in_forked_child(), "the parent is no child");
}
#endif

// What must be found: threads add to one number, and a block is written to after it was given back.
void run_planted_faults() {
  struct Loop {
    std::atomic<int> begun{0};
    int64_t sum = 0;
  } loop;
  onehop::parallel_for(
      kThreads, kThreads,
      [](void* context, int64_t, int) {
        auto& l = *static_cast<Loop*>(context);
        l.begun.fetch_add(1, std::memory_order_relaxed);
        while (l.begun.load(std::memory_order_relaxed) < kThreads) std::this_thread::yield();
        ++l.sum;
      },
      &loop);
  volatile char* given_back = nullptr;
  {
    const onehop::Block block(4 * kMegabyte);
    given_back = block.as<char>();
  }
  given_back[0] = 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || dlopen(argv[1], RTLD_NOW) == nullptr || !onehop::bind_openmp(argv[1])) {
    std::printf("FAIL there are no threads: name the library with GOMP_parallel\n");
    return 1;
  }
  if (argc > 2 && std::string(argv[2]) == "planted") {
    run_planted_faults();
    return 0;
  }
  run_loops();
  take_over_tasks();
  share_pool();
  share_graph();
  draw_neighbours();
#if !defined(__SANITIZE_THREAD__)
  // ThreadSanitizer takes the lock that a child makes anew for the one that its parent held. Its allocator, too, keeps
  // its locks in a child.
  fork_in_between();
#endif
  std::printf("%s\n", failed ? "FAIL" : "PASS");
  return failed ? 1 : 0;
}
