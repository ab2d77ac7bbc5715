// The program of README.md, to the letter: two replicas train one layer on numbers without meaning.

#include <lockstep/lockstep.h>

#include <torch/torch.h>
namespace ls = lockstep;

int main() {
  ls::set_logical_devices("CPU", 2);                  // two replicas on this machine's cores
  ls::MirroredStrategy strategy({"CPU:0", "CPU:1"});  // without arguments: every GPU, or else every logical CPU
  auto scope = strategy.scope();
  auto model = ls::module<torch::nn::Linear>(784, 10);         // one for each replica, equal at the start
  auto adam = ls::optimizer<torch::optim::Adam>(model, 1e-3);  // any optimizer of LibTorch

  auto images = torch::rand({10'000, 784});
  auto labels = torch::randint(10, {10'000}, torch::kLong);
  auto train = ls::data::from_tensor_slices(std::tuple{images, labels}).shuffle(10'000).batch(256);
  for (auto& batch : strategy.distribute_dataset(train)) {  // 128 rows for each replica; the last 16 are divided, too
    auto loss = strategy.run(
        [&](torch::Tensor x, torch::Tensor y) {
          auto each = torch::nll_loss(torch::log_softmax(model->forward(x), 1), y, {}, torch::Reduction::None);
          auto mean = ls::average_loss(each, 256);  // divides by the global batch, not the replica's
          adam.minimize(mean);                      // backward, gradients summed over replicas, update
          return mean;
        },
        batch);
    std::cout << strategy.reduce("sum", loss).item<float>() << '\n';
  }
}
