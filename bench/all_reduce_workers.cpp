#include "bench/all_reduce_workers.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>

#include <ATen/ops/full.h>

#include "bench/all_reduce.h"
#include "bench/median.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/engines.h"
#include "lockstep/comm/transport/engine_module.h"
#include "lockstep/strategy/access.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep::bench {
namespace {

/// How often workers and threads of one process alternate at one size.
constexpr int kTurns = 3;
constexpr int kMinRoundsPerTurn = 5;
constexpr int kMaxRoundsPerTurn = 200;
constexpr std::chrono::minutes kConnectTime{1};

/// One way to sum over all workers, and its times.
struct Contender {
  std::function<void()> all_reduce;
  std::vector<double> seconds{};
};

/// Returns the engine's own all-reduce on connections of its own.
std::function<void(const at::Tensor&)> engine_itself(comm::Job& job, const std::string& engine) {
  if (!comm::find_engine(engine).available) return nullptr;
  const auto all_reduce = comm::load_engine(engine).all_reduce;
  const auto transport = comm::make_transport(engine, job, {.name = "bench/" + engine, .timeout = kConnectTime});
  return [all_reduce, transport](const at::Tensor& tensor) {
    all_reduce(*transport, tensor.data_ptr<float>(), static_cast<size_t>(tensor.numel()));
  };
}

/// Zeros stay zeros, however often they are summed.
at::Tensor make_message(int64_t bytes) {
  return at::full({bytes / static_cast<int64_t>(sizeof(float))}, 0.0, at::kFloat);
}

/// Times each variant once, after an untimed call that synchronises the workers and fills the cache.
void time_contenders(const comm::Group& group, std::vector<Contender>& contenders, int repeats) {
  for (Contender& contender : contenders) {
    group.barrier();
    contender.all_reduce();
    contender.seconds.push_back(time_of(repeats, contender.all_reduce));
  }
}

/// Makes rounds for about this many seconds, by the clock of the first worker.
void time_turn(WorkerTeam& team, std::vector<Contender>& contenders, int repeats, double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  team.strategy().run([&] {
    const comm::Group& group = detail::Access::impl(team.strategy()).group(0);
    const auto goes_on = [&](int round) {
      const bool has_time = std::chrono::steady_clock::now() < end && round < kMaxRoundsPerTurn;
      return team.said_by_first(has_time || round < kMinRoundsPerTurn ? 1 : 0) != 0;
    };
    for (int round = 0; goes_on(round); ++round) time_contenders(group, contenders, repeats);
  });
}

}  // namespace

WorkersAllReduce::WorkersAllReduce(WorkerTeam& team)
    : team_(team), gloo_(engine_itself(team.job(), "gloo")), mpi_(engine_itself(team.job(), "mpi")) {}

WorkersAllReduceResult WorkersAllReduce::measure(int64_t bytes, double seconds) {
  LOCKSTEP_CHECK_VALUE(bytes >= 8 && bytes % 8 == 0,
                       "[bench all_reduce] a size must be a positive multiple of 8 bytes: bytes=", bytes);
  const std::vector<at::Tensor> foreign{make_message(bytes)};
  std::vector<at::Tensor> own(1);
  team_.strategy().run([&] { own[0] = make_message(bytes); });
  const auto ours = [&](const std::vector<at::Tensor>& message) {
    return [this, &message] { detail::Access::impl(team_.strategy()).group(0).all_reduce_(message, ReduceOp::Sum); };
  };
  std::vector<Contender> contenders{{ours(own)}, {ours(foreign)}};
  if (gloo_) contenders.push_back({[&] { gloo_(foreign[0]); }});
  if (mpi_) contenders.push_back({[&] { mpi_(foreign[0]); }});

  // Enough calls in a round for the clock to be exact.
  const auto repeats = static_cast<int>(std::clamp<int64_t>((2 << 20) / bytes, 2, 64));
  std::vector<double> local;
  std::vector<double> bandwidth;
  for (int turn = 0; turn < kTurns; ++turn) {
    time_turn(team_, contenders, repeats, seconds / kTurns);
    team_.on_first_alone([&] {
      const auto threads = bench_all_reduce({team_.count(), {bytes}, seconds / kTurns}).front();
      local.push_back(threads.seconds);
      bandwidth.push_back(threads.memory_bandwidth);
    });
  }

  WorkersAllReduceResult result{.bytes = bytes, .workers = team_.count(), .engine = team_.strategy().engine()};
  if (!team_.is_first()) return result;
  result.own = median(contenders[0].seconds);
  result.foreign = median(contenders[1].seconds);
  if (gloo_) result.gloo = median(contenders[2].seconds);
  if (mpi_) result.mpi = median(contenders.back().seconds);
  result.local = median(local);
  result.memory_bandwidth = median(bandwidth);
  // Every element is read once from and written once to each worker.
  result.fraction_of_limit = 2.0 * static_cast<double>(bytes) * result.workers / result.memory_bandwidth / result.own;
  return result;
}

std::vector<int64_t> worker_message_sizes() {
  std::vector<int64_t> sizes;
  for (int64_t bytes = 4 << 10; bytes <= 64 << 20; bytes *= 4) sizes.push_back(bytes);
  return sizes;
}

}  // namespace lockstep::bench
