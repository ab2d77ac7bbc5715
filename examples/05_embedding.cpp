// Trains a recommender whose table, a vector for each user and each item, is too large to have a copy on every replica:
// under CentralStorageStrategy there is one, which all replicas read in place and of which a step moves only the rows
// that it looks up.
//
//   build/release/bin/embedding                          16 million rows, 4.1 GB, two replicas on the CPU
//   build/release/bin/embedding --strategy mirrored      the same with a copy on each replica: twice the memory
//   build/release/bin/embedding --help
//
// The data is synthetic: users and items have hidden tastes, and a few of them are frequent while most are rare. Prints
// the loss, which must fall, examples per second, and the memory of table and process.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <stdexcept>
#include <string>
#include <tuple>
#include <unistd.h>
#include <vector>

#include <torch/torch.h>

#include "lockstep/lockstep.h"

namespace ls = lockstep;

constexpr int64_t kColumns = 64;
constexpr int64_t kBatchPerReplica = 16384;
constexpr int kReports = 10;
constexpr double kBytesPerGigabyte = 1e9;

struct Arguments {
  int64_t rows = 16'000'000;
  int64_t replicas = 2;
  int64_t steps = 1000;
  std::string strategy = "central";
};

// ---- Synthetic clicks

// A hash of `key`, as a random number.
uint64_t scrambled(uint64_t key) {  // splitmix64
  key += 0x9e3779b97f4a7c15;
  key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9;
  key = (key ^ (key >> 27)) * 0x94d049bb133111eb;
  return key ^ (key >> 31);
}

double between_0_and_1(uint64_t key) { return static_cast<double>(scrambled(key) >> 11) * 0x1p-53; }

// An id, drawn by Zipf's law: id n is about n + 1 times rarer than id 0.
int64_t drawn_by_zipf(double random, int64_t count) {
  return std::min(count - 1, static_cast<int64_t>(std::pow(static_cast<double>(count), random)) - 1);
}

enum class Kind : uint64_t { User = 1, Item = 2 };
uint64_t name_of(Kind kind, int64_t number) {
  return static_cast<uint64_t>(kind) << 56 | static_cast<uint64_t>(number);
}

// How much a user likes an item, from the hidden tastes of both.
double liking(uint64_t user, uint64_t item) {
  constexpr uint64_t kTastes = 4;
  double sum = 0;
  for (uint64_t taste = 1; taste <= kTastes; ++taste) {
    const uint64_t key = taste << 60;
    sum += (between_0_and_1(user ^ key) - 0.5) * (between_0_and_1(item ^ key) - 0.5);
  }
  return 12 * sum;
}

// One user who saw one item: the rows of both in the table, and whether there was a click.
using Sight = std::tuple<int64_t, int64_t, float>;

Sight make_sight(int64_t example, int64_t rows) {
  const uint64_t key = scrambled(static_cast<uint64_t>(example));
  const uint64_t user = name_of(Kind::User, drawn_by_zipf(between_0_and_1(key + 1), rows));
  const uint64_t item = name_of(Kind::Item, drawn_by_zipf(between_0_and_1(key + 2), std::max<int64_t>(rows / 16, 1)));
  const double probability = 1 / (1 + std::exp(-liking(user, item)));
  // Ids are hashed to rows: no list of all ids is needed, and rare ids may share a row.
  const auto row = [rows](uint64_t name) {
    return static_cast<int64_t>(scrambled(name) % static_cast<uint64_t>(rows));
  };
  return {row(user), row(item), between_0_and_1(key + 3) < probability ? 1.0F : 0.0F};
}

// ---- The model

struct RecommenderImpl : torch::nn::Module {
  // `sparse`: gradients contain only the rows that were looked up, and only those are updated.
  explicit RecommenderImpl(int64_t rows)
      : table(register_module("table",
                              torch::nn::Embedding(torch::nn::EmbeddingOptions(rows, kColumns)
                                                       .sparse(true)
                                                       ._weight(torch::empty({rows, kColumns}).uniform_(-0.1, 0.1))))),
        popularity(register_module("popularity", torch::nn::Linear(kColumns, 1))) {}

  // The logits of clicks.
  torch::Tensor forward(const torch::Tensor& users, const torch::Tensor& items) {
    const torch::Tensor item = table->forward(items);
    return (table->forward(users) * item).sum(1) + popularity->forward(item).squeeze(1);
  }

  torch::nn::Embedding table;
  torch::nn::Linear popularity;
};
TORCH_MODULE(Recommender);

// ---- The training

// The memory of the process, in gigabytes.
double resident_memory() {
  std::ifstream file("/proc/self/statm");
  double all = 0;
  double resident = 0;
  file >> all >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE)) / kBytesPerGigabyte;
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Trains and returns the average loss of each tenth of the steps.
std::vector<double> train(const ls::Strategy& strategy, const Arguments& arguments) {
  auto scope = strategy.scope();
  auto model = ls::module<Recommender>(arguments.rows);
  auto adagrad = ls::optimizer<torch::optim::Adagrad>(model, torch::optim::AdagradOptions(0.05));
  std::cout << "table of " << arguments.rows << " x " << kColumns << ": "
            << static_cast<double>(model->table->weight.nbytes()) / kBytesPerGigabyte << " GB; the process has "
            << resident_memory() << " GB" << std::endl;

  const int64_t global_batch = kBatchPerReplica * strategy.num_replicas_in_sync();
  const auto sights = ls::data::range(arguments.steps * global_batch)
                          .map([rows = arguments.rows](int64_t example) { return make_sight(example, rows); })
                          .batch(global_batch);
  const int64_t steps_between_reports = std::max<int64_t>(1, arguments.steps / kReports);
  std::vector<double> losses;
  double sum = 0;
  int64_t step = 0;
  auto begin = std::chrono::steady_clock::now();
  for (const auto& batch : strategy.distribute_dataset(sights)) {
    const auto loss = strategy.run(
        [&](const torch::Tensor& users, const torch::Tensor& items, const torch::Tensor& clicked) {
          const auto each = torch::binary_cross_entropy_with_logits(model->forward(users, items), clicked, {}, {},
                                                                    torch::Reduction::None);
          const auto mean = ls::average_loss(each, global_batch);
          adagrad.minimize(mean);
          return mean.detach();
        },
        batch);
    sum += strategy.reduce("sum", loss).item<double>();
    if (++step % steps_between_reports != 0) continue;
    const double rate = static_cast<double>(steps_between_reports) / seconds_since(begin);
    losses.push_back(sum / static_cast<double>(steps_between_reports));
    std::cout << "  step " << step << ", loss " << losses.back() << ", " << rate << " steps and "
              << rate * static_cast<double>(global_batch) << " examples per second, " << resident_memory() << " GB"
              << std::endl;
    sum = 0;
    begin = std::chrono::steady_clock::now();
  }
  return losses;
}

// ---- The command line

void print_help() {
  std::cout << "embedding [--rows N] [--replicas N] [--steps N] [--strategy central|mirrored]\n"
               "  --rows      rows of the table, 256 bytes each; default 16000000\n"
               "  --replicas  replicas on this machine's cores; default 2\n"
               "  --steps     steps of 16384 examples for each replica; default 1000\n"
               "  --strategy  central: one table; mirrored: one for each replica; default central\n";
}

[[noreturn]] void refuse(const std::string& why) { throw std::invalid_argument(why + "; see --help"); }

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  const std::map<std::string, int64_t*> numbers{
      {"--rows", &arguments.rows}, {"--replicas", &arguments.replicas}, {"--steps", &arguments.steps}};
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--help") {
      print_help();
      std::exit(EXIT_SUCCESS);
    }
    if (i + 1 == argc) refuse("a value is missing behind " + name);
    const std::string value = argv[i + 1];
    if (name == "--strategy") {
      arguments.strategy = value;
    } else if (numbers.count(name) > 0) {
      *numbers.at(name) = std::atoll(value.c_str());
    } else {
      refuse("no such option: " + name);
    }
  }
  if (arguments.rows < 1 || arguments.replicas < 1 || arguments.steps < 2)
    refuse("rows, replicas and steps are too few");
  if (arguments.strategy != "central" && arguments.strategy != "mirrored")
    refuse("no such strategy: " + arguments.strategy);
  return arguments;
}

ls::Strategy make_strategy(const Arguments& arguments) {
  ls::set_logical_devices("CPU", static_cast<int>(arguments.replicas));
  std::vector<std::string> devices;
  for (int64_t i = 0; i < arguments.replicas; ++i) devices.push_back("CPU:" + std::to_string(i));
  if (arguments.strategy == "mirrored") return ls::MirroredStrategy(devices);
  return ls::CentralStorageStrategy(devices);  // variables on the CPU, once
}

int main(int argc, char** argv) try {
  const Arguments arguments = parse(argc, argv);
  std::cout << std::fixed;
  std::cout.precision(3);
  torch::manual_seed(1);
  const std::vector<double> losses = train(make_strategy(arguments), arguments);
  if (losses.back() < 0.97 * losses.front()) return EXIT_SUCCESS;
  std::cerr << "the loss did not fall\n";
  return EXIT_FAILURE;
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return EXIT_FAILURE;
}
