// Trains on several workers: processes, each with one or more replicas, on one machine or on several. All run this
// program; the launcher tells each one who the others are.
//
//   build/release/bin/lockstep run -n 2 -- build/release/bin/several_workers       two workers on this machine
//   mpirun -n 2 build/release/bin/several_workers                                  or by another launcher
//   build/release/bin/several_workers                                              one worker
//
// Every worker prints its place and how many rows it has read, one of them, the chief, prints the result: the weights
// of the line that the data were made with, the same for any number of workers. docs/clusters.md has other launchers.

#include <cstdlib>
#include <iomanip>
#include <iostream>
#include <lockstep/lockstep.h>
#include <sstream>
#include <tuple>

#include <torch/torch.h>

namespace ls = lockstep;

constexpr int64_t kRows = 2'000;
constexpr int64_t kGlobalBatch = 50;
constexpr int64_t kEpochs = 5;

int main() try {
  const ls::MultiWorkerMirroredStrategy strategy;  // waits for all workers
  const auto place = ls::worker_place(*ls::resolve_cluster()).value_or(ls::WorkerPlace{});
  auto scope = strategy.scope();
  torch::manual_seed(1);
  auto model = ls::module<torch::nn::Linear>(2, 1);  // begins with the values of the first worker
  auto sgd = ls::optimizer<torch::optim::SGD>(model, 0.1);

  // Every worker makes the same rows. By AutoShardPolicy::Data it gets its part of them.
  const auto x = torch::randn({kRows, 2});
  const auto y = x.matmul(torch::tensor({{3.0F}, {-2.0F}})) + 1 + 0.1 * torch::randn({kRows, 1});
  const auto batches =
      strategy.distribute_dataset(ls::data::from_tensor_slices(std::tuple{x, y})
                                      .shuffle(kRows)
                                      .batch(kGlobalBatch)
                                      .with_options({.auto_shard_policy = ls::data::AutoShardPolicy::Data}));
  int64_t rows_here = 0;
  double loss = 0;
  for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    for (auto& batch : batches) {
      for (const auto& [inputs, wanted] : strategy.local_results(batch)) rows_here += inputs.size(0);
      const auto losses = strategy.run(
          [&](torch::Tensor inputs, torch::Tensor wanted) {
            const auto mean = ls::average_loss((model->forward(inputs) - wanted).square().squeeze(1));
            sgd.minimize(mean);  // gradients are summed over the replicas of all workers
            return mean.detach();
          },
          batch);
      loss = strategy.reduce("sum", losses).item<double>();  // all workers call it, and all get the sum
    }
  }
  std::ostringstream line;  // written at once, so that workers do not mix their lines
  line << "worker " << place.index << " of " << place.num_workers << " has read " << rows_here << " of "
       << kEpochs * kRows << " rows\n";
  if (place.is_chief) {
    const auto weight = model->weight.detach().flatten();
    line << std::fixed << std::setprecision(3) << "the chief: loss " << loss << ", weights " << weight[0].item<float>()
         << ", " << weight[1].item<float>() << ", bias " << model->bias.item<float>() << "; made with 3, -2 and 1\n";
  }
  std::cout << line.str() << std::flush;
  return EXIT_SUCCESS;
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return EXIT_FAILURE;
}
