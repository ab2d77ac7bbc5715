// A program under `lockstep run -n LEAST:MOST` that prints what it does, one JSON object a line: which examples each
// step has seen, in which view, and at the end its parameters.
//
//   elastic_worker FOLDER STEPS [PAUSE_MS] [alone]
//
// `alone`: without train_elastic, to see that it is refused. ELASTIC_STOP_FILE: while this file exists, no step begins.

#include <chrono>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <tuple>
#include <unistd.h>

#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>

#include "lockstep/lockstep.h"

namespace ls = lockstep;

namespace {

constexpr int64_t kExamples = 1200;
constexpr int64_t kBatch = 12;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void print(const std::string& fields) {
  std::ostringstream line;
  line.precision(15);
  line << "{\"pid\": " << getpid() << ", \"time\": " << seconds_now() << ", " << fields << "}\n";
  std::cout << line.str() << std::flush;
}

std::string numbers_text(const torch::Tensor& values) {
  std::ostringstream text;
  text.precision(9);
  const auto flat = values.detach().cpu().to(torch::kDouble).reshape({-1}).contiguous();
  for (int64_t i = 0; i < flat.numel(); ++i) text << (i == 0 ? "[" : ", ") << flat.data_ptr<double>()[i];
  return (flat.numel() == 0 ? "[" : text.str()) + "]";
}

void train(ls::ElasticJob& job, const std::string& folder, int64_t steps, int pause) {
  const ls::MultiWorkerMirroredStrategy strategy;
  const auto scope = strategy.scope();
  torch::manual_seed(3);
  const auto model = ls::module<torch::nn::Linear>(8, 1);
  const auto adam = ls::optimizer<torch::optim::Adam>(model, 1e-2);
  const auto x = torch::arange(kExamples * 8).reshape({kExamples, 8}).to(torch::kFloat).sin();
  const auto ids = torch::arange(kExamples);
  const auto dataset = strategy.distribute_dataset(ls::data::from_tensor_slices(std::tuple{x, ids})
                                                       .shuffle(300, ls::data::ShuffleOptions{.seed = 5})
                                                       .repeat()
                                                       .batch(kBatch));
  auto batches = dataset.iterator();
  ls::CheckpointManager manager({{"model", model}, {"adam", adam}, {"batches", batches}}, folder,
                                {.every_steps = 50, .redundancy = 1});
  for (const int64_t step : job.steps(manager, steps)) {
    const auto batch = batches.get_next();
    const auto seen = strategy.run(
        [&](const torch::Tensor& input, const torch::Tensor& numbers) {
          const auto wanted = input.sum(1, true).cos();
          adam.minimize(ls::average_loss((model->forward(input) - wanted).square().squeeze(1)));
          return numbers;
        },
        batch);
    print("\"step\": " + std::to_string(step) + ", \"view\": " + std::to_string(job.view()) +
          ", \"worker\": " + std::to_string(job.worker()) + ", \"workers\": " + std::to_string(job.num_workers()) +
          ", \"ids\": " + numbers_text(torch::cat(strategy.local_results(seen))));
    std::this_thread::sleep_for(std::chrono::milliseconds(pause));
    const char* stop = std::getenv("ELASTIC_STOP_FILE");
    while (stop != nullptr && std::filesystem::exists(stop)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  print("\"final\": " + numbers_text(torch::cat({model->weight.reshape({-1}), model->bias})));
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string folder = argv[1];
  const int64_t steps = std::stoll(argv[2]);
  const int pause = argc > 3 ? std::stoi(argv[3]) : 0;
  if (argc > 4) {
    const ls::MultiWorkerMirroredStrategy strategy;
    return 0;
  }
  print("\"started\": true");
  const int status = ls::train_elastic([&](ls::ElasticJob& job) { train(job, folder, steps, pause); });
  print("\"status\": " + std::to_string(status));
  return status;
} catch (const c10::Error& error) {
  std::cerr << error.what_without_backtrace() << '\n';
  return 1;
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
