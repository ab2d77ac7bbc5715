// A training that may be killed at any moment: started again it goes on, and at the end it has the bits of one that was
// never stopped.
//
//   killed_training STRATEGY FOLDER STEPS OUT       trains; writes the bytes of all state to OUT.<worker>
//   killed_training STRATEGY restore OUT FOLDER...  restores each; writes to OUT.<number of the folder>.<worker>
//
// STRATEGY is one, mirroredN, centralN, tpuNxM, or workersN with N replicas in each worker of the launcher. The process
// leaves its number in FOLDER.pid.<worker>. KILLED_TRAINING_PAUSE: milliseconds between steps. KILLED_TRAINING_TABLE=0:
// without what XLA does not compile, a table with sparse gradients and LBFGS. KILLED_TRAINING_REDUNDANCY=1: with
// snapshots in memory.

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>
#include <tuple>
#include <unistd.h>
#include <vector>

#include <torch/nn/functional/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/sgd.h>

#include "lockstep/lockstep.h"

namespace ls = lockstep;

namespace {

constexpr int64_t kRows = 300;
constexpr int64_t kColumns = 20;

struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("first", first);
    register_module("last", last);
    register_buffer("offset", offset);
    register_parameter("frozen", frozen, /*requires_grad=*/false);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const auto y = torch::relu(first(x));
    return last(torch::nn::functional::detail::dropout(y, 0.3, is_training(), false));
  }
  torch::nn::Linear first{kColumns, 700};
  torch::nn::Linear last{700, 1};
  /// Of which workers could have values of their own.
  torch::Tensor offset = torch::arange(5, torch::kFloat);
  torch::Tensor frozen = torch::ones({3});
};
TORCH_MODULE(Net);

std::vector<std::string> cpus(int count) {
  ls::set_logical_devices("CPU", count);
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back("CPU:" + std::to_string(i));
  return names;
}

ls::Strategy make_strategy(const std::string& name) {
  const auto number = [&](const char* start) { return std::stoi(name.substr(std::string(start).size())); };
  if (name == "one") return ls::OneDeviceStrategy("CPU:0");
  if (name.starts_with("mirrored")) return ls::MirroredStrategy(cpus(number("mirrored")));
  if (name.starts_with("central")) return ls::CentralStorageStrategy(cpus(number("central")));
  if (name.starts_with("workers")) return ls::MultiWorkerMirroredStrategy(nullptr, {}, cpus(number("workers")));
  const int cores = std::stoi(name.substr(name.find('x') + 1));
  const auto topology = ls::initialize_tpu_system(nullptr, {.num_cpu_devices = 4});
  return ls::TPUStrategy(nullptr, ls::tpu::DeviceAssignment::build(topology, {.computation_shape = {1, 1, 1, cores},
                                                                              .num_replicas = number("tpu")}));
}

void write_state(const ls::State& state, const std::string& path, const std::string& worker) {
  std::ofstream of_training(path + "." + worker, std::ios::binary);
  std::ofstream of_random(path + ".random." + worker, std::ios::binary);
  for (const auto& [name, value] : state) {
    std::ofstream& out = name.starts_with("random.") ? of_random : of_training;
    out << name << " ";
    if (const auto* tensor = std::get_if<ls::StateTensor>(&value)) {
      const auto whole = tensor->read();
      out << whole.sizes() << "\n";
      out.write(static_cast<const char*>(whole.data_ptr()), static_cast<std::streamsize>(whole.nbytes()));
    } else {
      std::visit(
          [&](const auto& plain) {
            if constexpr (!std::is_same_v<std::decay_t<decltype(plain)>, ls::StateTensor>) out << plain;
          },
          value);
    }
    out << "\n";
  }
  if (!of_training.good() || !of_random.good()) throw std::runtime_error("cannot write " + path);
}

int setting(const char* name, int otherwise) {
  const char* given = std::getenv(name);
  return given == nullptr ? otherwise : std::atoi(given);
}

/// Three networks with an optimizer each and, except on XLA, a table with sparse gradients and a network with LBFGS.
struct Training {
  explicit Training(const std::string& name)
      : strategy(make_strategy(name)),
        has_table(!name.starts_with("tpu") && setting("KILLED_TRAINING_TABLE", 1) == 1) {}

  ls::Checkpoint checkpoint() const {
    std::vector<ls::Checkpoint::Entry> entries{{"net1", net1},   {"net2", net2}, {"net3", net3},  {"adam", adam},
                                               {"adamw", adamw}, {"sgd", sgd},   {"train", train}};
    if (has_table) {
      entries.emplace_back("table", table);
      entries.emplace_back("adagrad", adagrad);
      entries.emplace_back("net4", net4);
      entries.emplace_back("lbfgs", lbfgs);
    }
    return ls::Checkpoint(std::move(entries));
  }

  template <class Batch>
  void run(const Batch& batch) const {
    strategy.run(
        [&](torch::Tensor x, torch::Tensor ids) {
          const auto wanted = x.sum(1).sin();
          const auto loss = [&](const torch::Tensor& y) { return ls::average_loss((y.squeeze(1) - wanted).square()); };
          adam.minimize(loss(net1->forward(x)));
          adamw.minimize(loss(net2->forward(x)));
          sgd.minimize(loss(net3->forward(x)));
          if (!has_table) return;
          adagrad.minimize(loss(table->forward(ids).sum(1, true)));
          lbfgs.step([&] {
            lbfgs.zero_grad();
            const auto own = loss(net4->forward(x));
            own.backward();
            return own;
          });
        },
        batch);
  }

  ls::Strategy strategy;
  ls::Scope scope{strategy};
  bool has_table;
  ls::Module<Net> net1 = (torch::manual_seed(7), ls::module<Net>());
  ls::Module<Net> net2 = ls::module<Net>();
  ls::Module<Net> net3 = ls::module<Net>();
  ls::Module<torch::nn::Linear> net4 = ls::module<torch::nn::Linear>(kColumns, 1);
  ls::Module<torch::nn::Embedding> table =
      ls::module<torch::nn::Embedding>(torch::nn::EmbeddingOptions(kRows, 16).sparse(has_table));
  ls::Optimizer<torch::optim::Adam> adam = ls::optimizer<torch::optim::Adam>(net1, 1e-2);
  ls::Optimizer<torch::optim::AdamW> adamw = ls::optimizer<torch::optim::AdamW>(net2, 1e-2);
  ls::Optimizer<torch::optim::SGD> sgd =
      ls::optimizer<torch::optim::SGD>(net3, torch::optim::SGDOptions(1e-3).momentum(0.9));
  ls::Optimizer<torch::optim::Adagrad> adagrad = ls::optimizer<torch::optim::Adagrad>(table, 1e-2);
  ls::Optimizer<torch::optim::LBFGS> lbfgs =
      ls::optimizer<torch::optim::LBFGS>(net4, torch::optim::LBFGSOptions(0.1).max_iter(2));
  ls::DistributedDataset<std::tuple<torch::Tensor, torch::Tensor>> train = [&] {
    const auto x = torch::randn({kRows, kColumns});
    const auto ids = torch::randint(kRows, {kRows}, torch::kLong);
    return strategy.distribute_dataset(
        ls::data::from_tensor_slices(std::tuple{x, ids}).shuffle(100, {.seed = 5}).batch(24, {.drop_remainder = true}));
  }();
};

std::string worker_of(const ls::Strategy& strategy) {
  const auto resolver = strategy.cluster_resolver();
  const auto place = resolver ? ls::worker_place(*resolver) : std::nullopt;
  return std::to_string(place ? place->index : 0);
}

int train(const std::string& name, const std::string& folder, int64_t total, const std::string& out) {
  Training training(name);
  const std::string worker = worker_of(training.strategy);
  std::ofstream(folder + ".pid." + worker) << ::getpid() << std::endl;
  // As on machines of their own.
  if (setting("KILLED_TRAINING_OWN_MEMORY", 0) == 1) {
    ::setenv("LOCKSTEP_MEMORY_FOLDER", (std::getenv("LOCKSTEP_MEMORY_FOLDER") + ("." + worker)).c_str(), 1);
  }
  const ls::Checkpoint checkpoint = training.checkpoint();
  ls::CheckpointManager manager(checkpoint, folder,
                                {.every_steps = 2, .redundancy = setting("KILLED_TRAINING_REDUNDANCY", 0)});
  int64_t done = manager.restore_or_initialize();
  const bool from_memory = manager.last_restored() && manager.last_restored()->from_memory;
  std::cout << "restored " << done << (from_memory ? " from memory" : "") << std::endl;
  while (done < total) {
    for (auto& batch : training.train) {
      training.run(batch);
      ++done;
      std::this_thread::sleep_for(std::chrono::milliseconds(setting("KILLED_TRAINING_PAUSE", 0)));
      if (!manager.after_step(done)) {
        std::cout << "preempted after " << done << std::endl;
        return manager.exit_status();
      }
      if (done == total) break;
    }
  }
  manager.finish(done);
  write_state(checkpoint.state(), out, worker);
  return 0;
}

int restore_all(const std::string& name, const std::string& out, const std::vector<std::string>& folders) {
  Training training(name);
  const ls::Checkpoint checkpoint = training.checkpoint();
  for (size_t i = 0; i < folders.size(); ++i) {
    ls::CheckpointManager manager(checkpoint, folders[i]);
    if (!manager.restore_latest()) throw std::runtime_error("nothing to restore in " + folders[i]);
    write_state(checkpoint.state(), out + "." + std::to_string(i), worker_of(training.strategy));
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 5) throw std::invalid_argument("usage: killed_training STRATEGY FOLDER STEPS OUT");
  ls::set_threads_per_replica(1);
  if (std::string(argv[2]) == "restore") return restore_all(argv[1], argv[3], {argv + 4, argv + argc});
  return train(argv[1], argv[2], std::stoll(argv[3]), argv[4]);
} catch (const c10::Error& error) {
  std::cerr << error.what_without_backtrace() << '\n';
  return 1;
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
