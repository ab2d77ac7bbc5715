// A training that may be killed at any moment and goes on where it was: started again with the same folder it restores
// the newest checkpoint, in the middle of an epoch, and ends with the parameters of a training that was never stopped.
//
//   build/release/bin/resume FOLDER              trains 400 steps
//   build/release/bin/resume FOLDER --kill 150   kills itself (SIGKILL) after 150 steps of this process
//   build/release/bin/lockstep run -n 2 --restarts 3 -- build/release/bin/resume FOLDER --workers
//
// Prints the step that it begins with, and at the end the sum of all parameters. SIGTERM, the notice of preemption: the
// program saves and returns 75.

#include <csignal>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <lockstep/lockstep.h>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <torch/torch.h>

namespace ls = lockstep;

constexpr int64_t kSteps = 400;

int train(const ls::Strategy& strategy, const std::string& folder, int64_t kill_after) {
  auto scope = strategy.scope();
  torch::manual_seed(1);
  auto model = ls::module_from([] {
    return torch::nn::Sequential(torch::nn::Linear(32, 256), torch::nn::ReLU(), torch::nn::Dropout(0.2),
                                 torch::nn::Linear(256, 1));
  });
  auto adam = ls::optimizer<torch::optim::Adam>(model, 1e-3);
  auto x = torch::randn({5'000, 32});
  auto y = x.sum(1, true).sin();
  auto train =
      strategy.distribute_dataset(ls::data::from_tensor_slices(std::tuple{x, y}).shuffle(5'000).repeat().batch(64));
  auto batches = train.iterator();

  ls::CheckpointManager manager({{"model", model}, {"adam", adam}, {"batches", batches}}, folder, {.every_steps = 20});
  int64_t done_here = 0;
  for (int64_t step : manager.steps(kSteps)) {
    if (done_here == 0) std::cout << "begins with step " << step << std::endl;
    strategy.run(
        [&](torch::Tensor images, torch::Tensor wanted) {
          adam.minimize(ls::average_loss((model->forward(images) - wanted).square().squeeze(1)));
        },
        batches.get_next());
    if (++done_here == kill_after) std::raise(SIGKILL);
  }
  if (manager.preempted()) {
    std::cout << "asked to end, and saved; start me again" << std::endl;
  } else {
    double sum = 0;
    for (const auto& parameter : model->parameters())
      sum += parameter.detach().to(torch::kDouble).abs().sum().item<double>();
    std::cout.precision(17);
    std::cout << "done; the sum of all parameters is " << sum << std::endl;
  }
  return manager.exit_status();
}

int main(int argc, char** argv) try {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  std::string folder;
  bool workers = false;
  int64_t kill_after = -1;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--workers") {
      workers = true;
    } else if (arguments[i] == "--kill" && i + 1 < arguments.size()) {
      kill_after = std::stoll(arguments[++i]);
    } else {
      folder = arguments[i];
    }
  }
  if (folder.empty()) throw std::invalid_argument("usage: resume FOLDER [--kill STEPS] [--workers]");
  if (workers) return train(ls::MultiWorkerMirroredStrategy(), folder, kill_after);
  ls::set_logical_devices("CPU", 2);
  return train(ls::MirroredStrategy({"CPU:0", "CPU:1"}), folder, kill_after);
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
