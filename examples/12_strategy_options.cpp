// The options of strategies: devices and threads of replicas, who sums gradients, how they are sent, where parameters
// are stored, how gradients count.
//
//   build/release/bin/strategy_options
//   LOCKSTEP_ENGINE=gloo build/release/bin/lockstep run -n 2 -- build/release/bin/strategy_options
//
// Trains the same network under each set of options and prints its last loss. All are equal but for rounding, because
// options change how a step is computed, not what. As a worker of several it uses all of them, and sends gradients as
// float16, which changes the last digits.

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <iomanip>
#include <iostream>
#include <lockstep/lockstep.h>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <torch/torch.h>

namespace ls = lockstep;

// Sums values of replicas in the order of the devices, and counts what it has summed.
class CountedSum : public ls::CrossDeviceOps {
 public:
  const char* name() const override { return "CountedSum"; }
  int64_t bytes() const { return bytes_; }

 protected:
  at::Tensor do_reduce(ls::ReduceOp op, at::ArrayRef<at::Tensor> components, c10::Device device) const override {
    at::Tensor sum = components[0].to(device, components[0].scalar_type(), /*non_blocking=*/false, /*copy=*/true);
    for (const at::Tensor& other : components.slice(1)) sum += other.to(device);
    bytes_ += static_cast<int64_t>(sum.nbytes() * components.size());
    return op == ls::ReduceOp::Mean ? sum / static_cast<double>(components.size()) : sum;
  }

 private:
  mutable std::atomic<int64_t> bytes_ = 0;
};

struct Training {
  ls::GradientOptions gradients = {};
  ls::MinimizeOptions minimize = {.clip_norm = 5.0};
  ls::InputOptions input = {};
};

// Returns the last loss.
double train(const std::string& what, const ls::Strategy& strategy, const Training& options = {}) {
  auto scope = strategy.scope();
  torch::manual_seed(1);
  auto model = ls::module_from(
      [] { return torch::nn::Sequential(torch::nn::Linear(16, 64), torch::nn::Tanh(), torch::nn::Linear(64, 1)); });
  auto adam = ls::optimizer<torch::optim::Adam>(model, torch::optim::AdamOptions(1e-2), options.gradients);
  const auto x = torch::randn({960, 16});
  const auto y = x.sum(1, true).tanh();
  const auto rows = ls::data::from_tensor_slices(std::tuple{x, y})
                        .repeat(3)
                        .batch(32)
                        .with_options({.auto_shard_policy = ls::data::AutoShardPolicy::Data});
  double loss = 0;
  for (auto& batch : strategy.distribute_dataset(rows, options.input)) {
    const auto losses = strategy.run(
        [&](torch::Tensor inputs, torch::Tensor wanted) {
          const auto each = (model->forward(inputs) - wanted).square().squeeze(1);
          const bool averages = options.gradients.gradients == ls::Gradients::Mean;
          adam.minimize(averages ? each.mean() : ls::average_loss(each), options.minimize);
          // The options of a call: others are waited for at most 30 s.
          return ls::get_replica_context().all_reduce("sum", each.detach().sum(), {.timeout_seconds = 30.0}) / 32;
        },
        batch);
    loss = strategy.local_results(losses)[0].item<double>();
  }
  if (strategy.extended().should_checkpoint()) {
    std::cout << std::left << std::setw(34) << what << strategy.num_replicas_in_sync() << " replica(s), loss " << loss
              << std::endl;
  }
  return loss;
}

// Packs of 64 KiB are sent while backward computes; a worker that does not answer for a minute is an error.
const ls::CommunicationOptions kCommunication{.bytes_per_pack = 64 << 10, .timeout_seconds = 60.0};

bool train_on_workers() {
  const ls::MultiWorkerMirroredStrategy strategy(nullptr, kCommunication, {"CPU:0", "CPU:1"});
  const double exact = train("packs of 64 KiB", strategy);
  const double sent_as_half =
      train("and sent as float16", strategy, {.gradients = {.compression = ls::compression::Float16{}}});
  return std::abs(exact - sent_as_half) < 0.05 * exact;
}

bool train_in_one_process() {
  const std::vector<std::string> devices{"CPU:0", "CPU:1"};
  std::vector<double> losses;
  losses.push_back(train("one device", ls::OneDeviceStrategy("CPU:0")));
  losses.push_back(train("defaults", ls::MirroredStrategy(devices)));
  // Each replica's loss is the mean of its own rows, and gradients are averaged.
  losses.push_back(
      train("averaged gradients", ls::MirroredStrategy(devices), {.gradients = {.gradients = ls::Gradients::Mean}}));
  // Nothing is read ahead; a step in which a replica would have no rows is left out.
  losses.push_back(train("input options", ls::MirroredStrategy(devices),
                         {.input = {.per_replica_buffer_size = 0, .empty = ls::EmptyBatch::Drop}}));
  losses.push_back(train("parameters stored once", ls::CentralStorageStrategy(devices, "CPU:0")));
  losses.push_back(
      train("packs and timeout of workers", ls::MultiWorkerMirroredStrategy(nullptr, kCommunication, devices)));
  const auto counted = std::make_shared<CountedSum>();
  losses.push_back(train("gradients summed by CountedSum", ls::MirroredStrategy(devices, counted)));
  std::cout << "it has summed " << counted->bytes() << " bytes" << std::endl;
  ls::set_placement(false);  // tensors stay where the program makes them; on GPUs it moves them itself
  losses.push_back(train("without placement", ls::MirroredStrategy(devices)));
  for (const double loss : losses) {
    if (std::abs(loss - losses[0]) > 0.02 * losses[0]) return false;
  }
  return true;
}

int main() try {
  std::cout << std::fixed << std::setprecision(4);
  ls::set_logical_devices("CPU", 2);  // two devices of this machine's cores
  ls::set_threads_per_replica(1);     // instead of an equal share of the cores
  if (ls::worker_place(*ls::resolve_cluster()) ? train_on_workers() : train_in_one_process()) return EXIT_SUCCESS;
  std::cerr << "the losses differ\n";
  return EXIT_FAILURE;
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return EXIT_FAILURE;
}
