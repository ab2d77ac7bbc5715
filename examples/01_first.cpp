// The program of README.md, word for word: two replicas train one layer on random numbers.
//
//   build/release/bin/first          writes checkpoints to run1; started again after it was killed, it goes on there
//
// Prints the loss of each step.

#include <iostream>
#include <lockstep/lockstep.h>

#include <torch/torch.h>

namespace ls = lockstep;

int main() {
  ls::set_logical_devices("CPU", 2);  // two replicas on this machine's cores
  // Without arguments: every GPU, or else every logical CPU.
  ls::MirroredStrategy strategy({"CPU:0", "CPU:1"});
  auto scope = strategy.scope();
  // One per replica, with equal values.
  auto model = ls::module<torch::nn::Linear>(784, 10);
  auto adam = ls::optimizer<torch::optim::Adam>(model, 1e-3);  // any LibTorch optimizer

  auto images = torch::rand({10'000, 784});
  auto labels = torch::randint(10, {10'000}, torch::kLong);
  auto rows = ls::data::from_tensor_slices(std::tuple{images, labels});
  auto train = strategy.distribute_dataset(rows.shuffle(10'000).batch(256));
  ls::Checkpoint state({{"model", model}, {"adam", adam}, {"train", train}});
  ls::CheckpointManager manager(state, "run1", {.every_steps = 10});
  // Goes on where a process that was killed had saved.
  int64_t step = manager.restore_or_initialize();
  for (auto& batch : train) {  // 128 rows per replica; the last 16 rows: 8 each
    auto loss = strategy.run(
        [&](torch::Tensor x, torch::Tensor y) {
          auto logs = torch::log_softmax(model->forward(x), 1);
          auto each = torch::nll_loss(logs, y, {}, torch::Reduction::None);
          auto mean = ls::average_loss(each);  // over the rows of all replicas
          adam.minimize(mean);                 // backward, sum of gradients, update
          return mean;
        },
        batch);
    std::cout << strategy.reduce("sum", loss).item<float>() << '\n';
    if (!manager.after_step(++step)) break;  // saved every 10 steps, and at SIGTERM
  }
  return manager.exit_status();
}
