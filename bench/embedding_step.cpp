#include "bench/embedding_step.h"

#include <algorithm>
#include <memory>
#include <vector>

#include <torch/nn/modules/embedding.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "bench/cpu_replicas.h"
#include "bench/median.h"
#include "bench/mlp_step.h"
#include "bench/rows_by_hand.h"
#include "bench/turns.h"
#include "lockstep/lockstep.h"

namespace lockstep::bench {
namespace {

/// Steps with ids of their own; together they touch so many rows that none is left in a cache when its turn comes
/// again.
constexpr int kIdSets = 16;
constexpr int64_t kSmallTable = 100'000;

struct EmbeddingTimes {
  std::vector<double> step;
  std::vector<double> plain;
  std::vector<double> plain_same_memory;
  int64_t bytes_moved = 0;
};

/// Ids of one step, of all replicas; where `apart`, no two replicas have the same, though all have some everywhere.
PerReplica<torch::Tensor> random_ids(const Strategy& strategy, const EmbeddingOptions& options, bool apart) {
  return strategy.distribute_values_from_function([&](const ValueContext& context) {
    const int64_t stride = apart ? options.replicas : 1;
    const int64_t first = apart ? context.replica_id_in_sync_group : 0;
    return torch::randint(options.rows / stride, {options.lookups}, torch::kLong).mul_(stride).add_(first);
  });
}

/// The step of a program that trains a table.
template <class O, class Options>
class EmbeddingStep {
 public:
  EmbeddingStep(const EmbeddingOptions& options, const Options& settings)
      : strategy_(cpu_strategy("central", options.replicas)),
        scope_(std::make_unique<Scope>(strategy_)),
        table_(module_from([&] {
          // Memory whose numbers are not drawn: they do not matter here, and a normal distribution takes its time.
          return torch::nn::Embedding(torch::nn::EmbeddingOptions(options.rows, options.columns)
                                          .sparse(true)
                                          ._weight(torch::empty({options.rows, options.columns})));
        })),
        optimizer_(lockstep::optimizer<O>(table_, settings)),
        direction_(torch::rand({options.columns})) {
    for (int set = 0; set < kIdSets; ++set) ids_.push_back(random_ids(strategy_, options, /*apart=*/false));
    const torch::NoGradGuard no_grad;
    table_->weight.fill_(1);
    scope_.reset();
  }

  void operator()() {
    strategy_.run(
        [&](const torch::Tensor& ids) { optimizer_.minimize(torch::mv(table_->forward(ids), direction_).sum()); },
        ids_[next_++ % kIdSets]);
  }

  const Strategy& strategy() const { return strategy_; }
  float* table() const { return table_.replica(0).weight.template data_ptr<float>(); }

  /// Rows that all replicas together touch in a step, each counted once; the average of all sets of ids.
  int64_t distinct_rows() const {
    int64_t rows = 0;
    for (const auto& ids : ids_) {
      rows += std::get<0>(at::_unique(torch::cat(strategy_.local_results(ids)), /*sorted=*/false)).numel();
    }
    return rows / kIdSets;
  }

 private:
  Strategy strategy_;
  std::unique_ptr<Scope> scope_;
  Module<torch::nn::Embedding> table_;
  Optimizer<O> optimizer_;
  torch::Tensor direction_;
  std::vector<PerReplica<torch::Tensor>> ids_;
  size_t next_ = 0;
};

/// Gather and scatter by hand. Threads have rows of their own, since two that add to the same one at once would race.
class PlainRows {
 public:
  PlainRows(const EmbeddingOptions& options, const Strategy& strategy, float* table)
      : lookups_(options.lookups),
        columns_(options.columns),
        table_(table),
        threads_(std::vector<c10::Device>(options.replicas, c10::Device(c10::kCPU))) {
    for (int set = 0; set < kIdSets; ++set) {
      ids_.push_back(strategy.local_results(random_ids(strategy, options, /*apart=*/true)));
    }
    for (int i = 0; i < options.replicas; ++i) {
      gathered_.push_back(torch::zeros({lookups_, columns_}));
      gradients_.push_back(torch::ones({lookups_, columns_}));
    }
  }

  void operator()() {
    const auto& ids = ids_[next_++ % kIdSets];
    threads_.run(
        [&](int thread) {
          const RowsByHand rows{table_, columns_, ids[thread].data_ptr<int64_t>(), lookups_};
          gather_by_hand(rows, gathered_[thread].data_ptr<float>());
          scatter_by_hand(rows, gradients_[thread].data_ptr<float>());
        },
        [] {}, [](int, std::exception_ptr) {});
  }

 private:
  int64_t lookups_;
  int64_t columns_;
  float* table_;
  detail::ReplicaThreads threads_;
  std::vector<std::vector<torch::Tensor>> ids_;
  std::vector<torch::Tensor> gathered_;
  std::vector<torch::Tensor> gradients_;
  size_t next_ = 0;
};

/// Numbers that an optimizer remembers for each number of a parameter.
int64_t numbers_of_state(const std::string& optimizer) { return optimizer == "adam" ? 2 : optimizer == "sgd" ? 0 : 1; }

template <class O, class Options>
EmbeddingTimes time_embedding(const EmbeddingOptions& options, const Options& settings) {
  EmbeddingStep<O, Options> step(options, settings);
  const torch::Tensor ordinary_memory = torch::ones({options.rows, options.columns});
  PlainRows plain(options, step.strategy(), ordinary_memory.data_ptr<float>());
  PlainRows plain_same_memory(options, step.strategy(), step.table());
  for (int set = 0; set < kIdSets; ++set) step();  // the system gives memory for state when a row is first touched
  EmbeddingTimes times;
  Turns turns;
  turns.add([&] { step(); }, times.step);
  turns.add([&] { plain(); }, times.plain);
  turns.add([&] { plain_same_memory(); }, times.plain_same_memory);
  turns.take(options.seconds, /*seconds_at_once=*/0.1);
  const int64_t row_bytes = options.columns * static_cast<int64_t>(sizeof(float));
  times.bytes_moved = options.replicas * options.lookups * (static_cast<int64_t>(sizeof(int64_t)) + 2 * row_bytes) +
                      step.distinct_rows() * 2 * row_bytes * (1 + numbers_of_state(options.optimizer));
  return times;
}

EmbeddingTimes time_embedding(const EmbeddingOptions& options) {
  return with_optimizer(options.optimizer, [&]<class O>(std::type_identity<O>, const auto& settings) {
    return time_embedding<O>(options, settings);
  });
}

}  // namespace

EmbeddingResult bench_embedding_step(const EmbeddingOptions& options) {
  LOCKSTEP_CHECK_VALUE(options.rows >= options.replicas,
                       "[bench step] every replica needs a row of the table: rows=", options.rows,
                       ", replicas=", options.replicas);
  const CpuReplicas replicas(options.replicas);
  EmbeddingResult result;
  result.options = options;
  EmbeddingOptions small = options;
  small.rows = std::min(options.rows, kSmallTable);
  {
    EmbeddingTimes times = time_embedding(options);
    result.seconds = median(times.step);
    result.seconds_plain = median(times.plain);
    result.ratio_same_memory = result.seconds / median(times.plain_same_memory);
    result.bytes_moved = times.bytes_moved;
  }
  EmbeddingTimes of_small = time_embedding(small);
  result.ratio = result.seconds / result.seconds_plain;
  result.bytes_table = options.rows * options.columns * static_cast<int64_t>(sizeof(float));
  result.rows_small_table = small.rows;
  result.seconds_small_table = median(of_small.step);
  result.ratio_small_table = result.seconds_small_table / median(of_small.plain);
  return result;
}

}  // namespace lockstep::bench
