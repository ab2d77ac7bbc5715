// A training that goes on when workers are lost: kill one; a replacement joins.
//
//   build/release/bin/lockstep run -n 2:3 --restarts 9 -- build/release/bin/elastic FOLDER
//   kill -9 PID          in another terminal, of a worker that the program prints
//
// Each worker prints its place whenever workers are lost or join, and the first one prints the loss. Without a launcher
// it trains in one process.

#include <chrono>
#include <exception>
#include <iostream>
#include <lockstep/lockstep.h>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <unistd.h>

#include <torch/torch.h>

namespace ls = lockstep;

void train(ls::ElasticJob& job, const std::string& folder, int64_t steps, int pause) {
  ls::MultiWorkerMirroredStrategy strategy;  // of the workers that there are now
  auto scope = strategy.scope();
  torch::manual_seed(1);
  auto model = ls::module_from(
      [] { return torch::nn::Sequential(torch::nn::Linear(32, 128), torch::nn::ReLU(), torch::nn::Linear(128, 1)); });
  auto adam = ls::optimizer<torch::optim::Adam>(model, 1e-3);
  auto x = torch::randn({6'000, 32});
  auto y = x.sum(1, true).sin();
  auto dataset =
      strategy.distribute_dataset(ls::data::from_tensor_slices(std::tuple{x, y}).shuffle(6'000).repeat().batch(60));
  auto batches = dataset.iterator();

  ls::CheckpointManager manager({{"model", model}, {"adam", adam}, {"batches", batches}}, folder,
                                {.every_steps = 100, .redundancy = 1});
  std::cout << "view " << job.view() << ": process " << getpid() << " is worker " << job.worker() << " of "
            << job.num_workers() << std::endl;
  for (int64_t step : job.steps(manager, steps)) {
    auto losses = strategy.run(
        [&](torch::Tensor input, torch::Tensor wanted) {
          auto loss = ls::average_loss((model->forward(input) - wanted).square().squeeze(1));
          adam.minimize(loss);
          return loss.detach();
        },
        batches.get_next());
    const float loss = strategy.reduce("sum", losses).item<float>();
    if (step % 50 == 0 && job.worker() == 0) std::cout << "step " << step << ", loss " << loss << std::endl;
    std::this_thread::sleep_for(std::chrono::milliseconds(pause));
  }
  if (job.worker() == 0) std::cout << "done" << std::endl;
}

int main(int argc, char** argv) try {
  if (argc < 2) throw std::invalid_argument("usage: elastic FOLDER [STEPS [PAUSE_MS]]");
  const int64_t steps = argc > 2 ? std::stoll(argv[2]) : 1'000;
  const int pause = argc > 3 ? std::stoi(argv[3]) : 20;
  return ls::train_elastic([&](ls::ElasticJob& job) { train(job, argv[1], steps, pause); });
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
