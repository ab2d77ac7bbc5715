// What a user's program does: two replicas train one layer together. Fails unless they end up equal.

#include <iostream>
#include <lockstep/lockstep.h>

#include <torch/torch.h>

namespace ls = lockstep;

int main() {
  ls::set_logical_devices("CPU", 2);
  ls::MirroredStrategy strategy({"CPU:0", "CPU:1"});
  auto scope = strategy.scope();
  auto model = ls::module<torch::nn::Linear>(4, 1);
  auto sgd = ls::optimizer<torch::optim::SGD>(model, 0.1);
  auto loss = strategy.run([&] {
    auto each =
        model->forward(torch::ones({3, 4}) * (ls::get_replica_context().replica_id_in_sync_group() + 1)).squeeze(1);
    auto mean = ls::average_loss(each, 6);
    sgd.minimize(mean);
    return mean.detach();
  });
  std::cout << "lockstep " << ls::version() << ": loss " << strategy.reduce("sum", loss).item<float>() << '\n';
  return torch::equal(model.replica(0).weight, model.replica(1).weight) ? 0 : 1;
}
