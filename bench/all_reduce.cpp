#include "bench/all_reduce.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>

#include <ATen/ops/full.h>

#include "bench/median.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/exchange_group.h"

namespace lockstep::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kSmallest = 4 << 10;
constexpr int64_t kLargest = 256 << 20;
constexpr int kMinRounds = 7;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Copies with a loop that the compiler may vectorise but not turn into memcpy.
void copy_plainly(const float* __restrict from, float* __restrict to, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) to[i] = from[i] + 0.0F;
}

/// What the threads share; a round is timed on thread 0 between two barriers of the same kind as the collective's own.
struct Shared {
  std::vector<comm::Group> groups;
  int64_t bytes;
  int repeats;
  int rounds = 0;
  std::vector<double> reduce{};
  std::vector<double> copy{};
  std::vector<double> plain{};
};

/// Times `repeats` runs of `work` on every thread and notes the time of one run of the slowest.
template <typename Work>
void time_round(const Shared& shared, int rank, std::vector<double>& times, Work work) {
  const auto& group = shared.groups[static_cast<size_t>(rank)];
  group.barrier();
  const auto start = Clock::now();
  for (int i = 0; i < shared.repeats; ++i) work();
  group.barrier();
  if (rank == 0) times.push_back(seconds_since(start) / shared.repeats);
}

/// Each thread's share of the footprint of an all-reduce: it copies half of its buffer to the other half.
void measure(Shared& shared, int rank) {
  const int64_t count = shared.bytes / static_cast<int64_t>(sizeof(float));
  const std::vector<at::Tensor> tensor = {at::full({count}, 1.0, at::kFloat)};
  const at::Tensor from = at::full({count / 2}, 1.0, at::kFloat);
  const at::Tensor to = at::full({count / 2}, 1.0, at::kFloat);
  const auto& group = shared.groups[static_cast<size_t>(rank)];
  auto* const source = from.data_ptr<float>();
  auto* const target = to.data_ptr<float>();
  for (int round = 0; round < shared.rounds; ++round) {
    // The mean keeps the ones ones, however often it is taken.
    time_round(shared, rank, shared.reduce, [&] { group.all_reduce_(tensor, ReduceOp::Mean); });
    time_round(shared, rank, shared.copy,
               [&] { std::memcpy(target, source, static_cast<size_t>(count / 2) * sizeof(float)); });
    time_round(shared, rank, shared.plain, [&] { copy_plainly(source, target, count / 2); });
  }
}

void run_threads(Shared& shared) {
  std::vector<std::thread> threads;
  const int size = shared.groups[0].size();
  for (int rank = 1; rank < size; ++rank) threads.emplace_back([&shared, rank] { measure(shared, rank); });
  measure(shared, 0);
  for (auto& thread : threads) thread.join();
}

AllReduceResult measure_size(int64_t bytes, const AllReduceOptions& options) {
  Shared shared{comm::make_local_groups(std::make_shared<comm::Rendezvous>(options.replicas, "bench")), bytes, 1};
  // Enough runs in a round for the clock to be exact, enough rounds for a median.
  shared.repeats = static_cast<int>(std::clamp<int64_t>((4 << 20) / bytes, 1, 256));
  shared.rounds = 2;
  run_threads(shared);
  const double once = (shared.reduce.back() + shared.copy.back() + shared.plain.back()) * shared.repeats;
  shared.rounds = std::clamp(static_cast<int>(options.seconds_per_size / once), kMinRounds, 2000);
  shared.reduce.clear();
  shared.copy.clear();
  shared.plain.clear();
  run_threads(shared);

  AllReduceResult result;
  result.bytes = bytes;
  result.replicas = options.replicas;
  result.seconds = median(shared.reduce);
  result.algbw = static_cast<double>(bytes) / result.seconds;
  // Half of each buffer is read and half is written: together the bytes of all replicas.
  const double copied = static_cast<double>(bytes) * options.replicas;
  result.memory_bandwidth = copied / std::min(median(shared.copy), median(shared.plain));
  result.fraction_of_limit = 2.0 * copied / result.memory_bandwidth / result.seconds;
  return result;
}

}  // namespace

std::vector<AllReduceResult> bench_all_reduce(const AllReduceOptions& options) {
  LOCKSTEP_CHECK_VALUE(options.replicas >= 2,
                       "[bench all_reduce] there must be at least two replicas: replicas=", options.replicas);
  std::vector<int64_t> sizes = options.bytes;
  for (int64_t bytes = kSmallest; options.bytes.empty() && bytes <= kLargest; bytes *= 4) sizes.push_back(bytes);
  std::vector<AllReduceResult> results;
  for (const int64_t bytes : sizes) {
    LOCKSTEP_CHECK_VALUE(bytes >= 8 && bytes % 8 == 0,
                         "[bench all_reduce] a size must be a positive multiple of 8 bytes: bytes=", bytes);
    results.push_back(measure_size(bytes, options));
  }
  return results;
}

}  // namespace lockstep::bench
