// Trains with so many replicas in this process, under whatever cluster the launcher describes, and writes the bytes of
// all parameters and buffers to FILE.<worker>: runs that divide the same replicas differently must write the same
// files.
//
//   train_for_bits REPLICAS_HERE FILE

#include <fstream>
#include <iostream>
#include <string>

#include <torch/torch.h>

#include "lockstep/lockstep.h"

namespace {

struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("first", first);
    register_module("norm", norm);
    register_module("narrow", narrow);
    register_module("last", last);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    auto y = torch::relu(norm(first(x)));
    y = torch::dropout(y, 0.3, is_training());
    return last(torch::tanh(narrow(y)));
  }
  torch::nn::Linear first{33, 130};
  torch::nn::BatchNorm1d norm{130};
  torch::nn::Linear narrow{130, 7};
  torch::nn::Linear last{7, 1};
};
TORCH_MODULE(Net);

void write(std::ofstream& out, const torch::Tensor& tensor) {
  const auto plain = tensor.detach().cpu().contiguous();
  out.write(static_cast<const char*>(plain.data_ptr()), static_cast<std::streamsize>(plain.nbytes()));
}

}  // namespace

int main(int argc, char** argv) try {
  namespace ls = lockstep;
  if (argc != 3) throw std::invalid_argument("usage: train_for_bits REPLICAS_HERE FILE");
  const int here = std::stoi(argv[1]);
  ls::set_logical_devices("CPU", here);
  ls::set_threads_per_replica(1);
  std::vector<std::string> devices;
  for (int i = 0; i < here; ++i) devices.push_back("CPU:" + std::to_string(i));
  const ls::MultiWorkerMirroredStrategy strategy(nullptr, {}, devices);
  auto scope = strategy.scope();
  torch::manual_seed(7);
  auto model = ls::module<Net>();
  auto adam = ls::optimizer<torch::optim::Adam>(model, 1e-2);
  const int replicas = strategy.num_replicas_in_sync();
  torch::manual_seed(19);
  double last = 0;
  for (int step = 0; step < 8; ++step) {
    const auto x = torch::randn({37, 33});
    const auto y = x.sum(1, true).sin();
    const auto loss = strategy.run([&] {
      const int id = ls::get_replica_context().replica_id_in_sync_group();
      const auto mine = x.tensor_split(replicas)[id];
      const auto wanted = y.tensor_split(replicas)[id];
      const auto part = ls::average_loss((model->forward(mine) - wanted).square().squeeze(1), 37);
      adam.minimize(part, step % 3 == 2 ? ls::MinimizeOptions{.clip_norm = 0.5} : ls::MinimizeOptions{});
      return part.detach();
    });
    last = strategy.reduce("sum", loss).item<double>();
  }
  const auto resolver = strategy.cluster_resolver();
  const auto place = ls::worker_place(*resolver);
  const int worker = place ? place->index : 0;
  std::ofstream out(std::string(argv[2]) + "." + std::to_string(worker), std::ios::binary);
  const auto first = model.replica(0).parameters();
  for (const auto& parameter : first) write(out, parameter);
  for (const auto& buffer : model.replica(0).buffers()) {
    if (buffer.is_floating_point()) write(out, buffer);
  }
  for (int i = 1; i < model.num_replicas(); ++i) {
    const auto copy = model.replica(i).parameters();
    for (size_t p = 0; p < first.size(); ++p) {
      if (!torch::equal(copy[p], first[p])) throw std::runtime_error("replicas differ");
    }
  }
  out.write(reinterpret_cast<const char*>(&last), sizeof(last));
  std::cout << "engine " << strategy.engine() << ", " << replicas << " replicas, loss " << last << std::endl;
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
