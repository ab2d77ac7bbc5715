#include "bench/trainer.h"

#include <algorithm>
#include <ctime>
#include <functional>
#include <tuple>
#include <vector>

#include "bench/cpu_replicas.h"
#include "bench/median.h"
#include "bench/mlp_step.h"
#include "bench/pseudo_terminal.h"
#include "bench/turns.h"
#include "lockstep/lockstep.h"

namespace lockstep::bench {
namespace {

constexpr int64_t kSteps = 400;

using Rows = data::Dataset<std::tuple<torch::Tensor, torch::Tensor>>;

Rows make_rows(const StepOptions& options) {
  const int64_t rows = kSteps * options.batch * options.replicas;
  return data::from_tensor_slices(
             std::tuple{torch::rand({rows, kInputs}), torch::randint(kClasses, {rows}, torch::kLong)})
      .batch(options.batch * options.replicas);
}

/// Time on processors of all threads of this process.
double cpu_seconds_of(const std::function<void()>& work) {
  const std::clock_t begin = std::clock();
  work();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

double median_ratio(const std::vector<double>& of, const std::vector<double>& to) {
  std::vector<double> ratios;
  for (size_t i = 0; i < std::min(of.size(), to.size()); ++i) ratios.push_back(of[i] / to[i]);
  return median(ratios);
}

Variable sum_over_replicas() {
  return Variable(torch::zeros({}, torch::kDouble), {.trainable = false,
                                                     .synchronization = VariableSynchronization::OnRead,
                                                     .aggregation = VariableAggregation::Sum});
}

/// What a careful user writes: numbers stay on the devices until the epoch ends.
template <class O, class Options>
class LoopByHand {
 public:
  LoopByHand(const StepOptions& options, const Strategy& strategy, const Rows& rows, const Options& settings)
      : strategy_(strategy),
        model_(module<Mlp>(options.width)),
        optimizer_(lockstep::optimizer<O>(model_, settings)),
        global_batch_(options.batch * strategy.num_replicas_in_sync()),
        rows_(strategy.distribute_dataset(rows)) {}

  void operator()() {
    for (const Variable& total : {losses_, correct_, count_}) total.assign(0.0);
    for (const auto& batch : rows_) {
      strategy_.run(
          [&](const torch::Tensor& images, const torch::Tensor& labels) {
            const auto output = model_->forward(images);
            const auto each = torch::nll_loss(output, labels, {}, torch::Reduction::None);
            optimizer_.minimize(average_loss(each, global_batch_));
            const torch::NoGradGuard no_grad;
            losses_.assign_add(each.sum().to(torch::kDouble));
            correct_.assign_add(output.argmax(1).eq(labels).sum().to(torch::kDouble));
            count_.assign_add(torch::scalar_tensor(images.size(0), torch::kDouble));
          },
          batch);
    }
    const double count = count_.read_value().item<double>();
    loss = losses_.read_value().item<double>() / count;
    accuracy = correct_.read_value().item<double>() / count;
  }

  double loss = 0;
  double accuracy = 0;

 private:
  Strategy strategy_;
  Module<Mlp> model_;
  Optimizer<O> optimizer_;
  int64_t global_batch_;
  DistributedDataset<std::tuple<torch::Tensor, torch::Tensor>> rows_;
  Variable losses_ = sum_over_replicas();
  Variable correct_ = sum_over_replicas();
  Variable count_ = sum_over_replicas();
};

template <class O, class Options>
TrainerResult time_trainer(const StepOptions& options, const Options& settings) {
  const Strategy strategy = cpu_strategy(options.strategy, options.replicas);
  auto scope = strategy.scope();
  const Rows rows = make_rows(options);
  LoopByHand<O, Options> by_hand(options, strategy, rows, settings);
  const auto model = module<Mlp>(options.width);
  const auto optimizer = lockstep::optimizer<O>(model, settings);
  Trainer trainer(strategy, model, optimizer, losses::nll(),
                  {.metrics = {metrics::sparse_categorical_accuracy("accuracy")}});
  std::vector<double> seconds_by_hand;
  std::vector<double> seconds_trainer;
  Turns turns;
  turns.add([&] { by_hand(); }, seconds_by_hand);
  std::vector<double> cpu_seconds;
  turns.add([&] { cpu_seconds.push_back(cpu_seconds_of([&] { trainer.fit(rows, {.verbose = false}); })); },
            seconds_trainer);
  const PseudoTerminal terminal;
  std::vector<double> seconds_with_bar;
  std::vector<double> cpu_seconds_with_bar;
  turns.add([&] { cpu_seconds_with_bar.push_back(cpu_seconds_of([&] { trainer.fit(rows); })); }, seconds_with_bar);
  turns.take(options.seconds, /*seconds_at_once=*/0);
  const double ratio_with_bar = median_ratio(seconds_with_bar, seconds_trainer);  // before medians reorder them
  TrainerResult result{options, kSteps, median(seconds_by_hand) / kSteps, median(seconds_trainer) / kSteps,
                       median(seconds_with_bar) / kSteps};
  result.ratio = result.seconds_trainer / result.seconds_by_hand;
  result.ratio_with_bar = ratio_with_bar;
  result.cpu_ratio_with_bar = median_ratio(cpu_seconds_with_bar, cpu_seconds);
  return result;
}

}  // namespace

TrainerResult bench_trainer(const StepOptions& options) {
  const CpuReplicas replicas(options.replicas);
  return with_optimizer(options.optimizer, [&]<class O>(std::type_identity<O>, const auto& settings) {
    return time_trainer<O>(options, settings);
  });
}

}  // namespace lockstep::bench
