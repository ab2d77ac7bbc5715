// Collectives of your own, made of those of lockstep, with gradients:
//
//   trimmed_mean   the mean over replicas without the smallest and the largest value: one bad replica has no effect
//   largest        the maximum over replicas; its gradient goes to the replicas that have it, by a function of your own
//
//   build/release/bin/custom_collective      four replicas on the CPU
//
// Prints their values where one replica is wrong, beside the plain mean, and compares their gradients with differences
// of their values. Fails where a gradient is wrong.

#include <cmath>
#include <cstdlib>
#include <functional>
#include <iomanip>
#include <iostream>
#include <lockstep/lockstep.h>
#include <string>
#include <vector>

#include <torch/torch.h>

namespace ls = lockstep;

constexpr int kReplicas = 4;

// ---- The collectives: every replica calls them, inside `run`

// The values of all replicas are gathered along a new dimension; every replica then computes the same. Autograd
// differentiates it: the gradient of `all_gather` brings back to each replica what belongs to its value.
torch::Tensor trimmed_mean(const torch::Tensor& value) {
  const auto all = ls::get_replica_context().all_gather(value.unsqueeze(0), 0);
  const auto sorted = std::get<0>(all.sort(0));
  return sorted.slice(0, 1, all.size(0) - 1).mean(0);
}

// `all_reduce` has no gradient for "max": this is how to give a collective one.
struct Largest : torch::autograd::Function<Largest> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& value) {
    const auto replicas = ls::get_replica_context();
    auto result = replicas.all_reduce("max", value.detach());
    const auto is_mine = value.eq(result).to(value.scalar_type());
    context->save_for_backward({is_mine / replicas.all_reduce("sum", is_mine)});  // equal values share it
    return result;
  }

  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               torch::autograd::tensor_list gradients) {
    // Each replica has a gradient of the one result: their sum is what the result has.
    const auto of_result = ls::get_replica_context().all_reduce("sum", gradients[0]);
    return {context->get_saved_variables()[0] * of_result};
  }
};
torch::Tensor largest(const torch::Tensor& value) { return Largest::apply(value); }

// ---- Their gradients

using Collective = std::function<torch::Tensor(const torch::Tensor&)>;

struct Answer {
  double loss = 0;
  torch::Tensor gradients;  // [replicas, elements]
};

// Every replica makes a loss of the result: element by element, and other ones on other replicas.
Answer losses_of(const ls::Strategy& strategy, const Collective& collective, const torch::Tensor& values) {
  const auto [losses, gradients] = strategy.run([&] {
    const int replica = ls::get_replica_context().replica_id_in_sync_group();
    const auto mine = values[replica].clone().requires_grad_();
    const auto result = collective(mine);
    const auto loss = (result.sin() * (replica + 1)).sum();
    return std::tuple{loss.detach(), torch::autograd::grad({loss}, {mine})[0].unsqueeze(0)};
  });
  return {strategy.reduce("sum", losses).item<double>(), strategy.gather(gradients, 0)};
}

// The largest difference between the gradients and differences of the sum of all losses.
double gradient_error(const ls::Strategy& strategy, const Collective& collective, const torch::Tensor& values) {
  constexpr double kStep = 1e-5;
  const auto gradients = losses_of(strategy, collective, values).gradients;
  double largest_error = 0;
  for (int64_t i = 0; i < values.numel(); ++i) {
    const auto moved = [&](double by) {
      auto copy = values.clone();
      copy.view(-1)[i] += by;
      return losses_of(strategy, collective, copy).loss;
    };
    const double expected = (moved(kStep) - moved(-kStep)) / (2 * kStep);
    largest_error = std::max(largest_error, std::abs(expected - gradients.view(-1)[i].item<double>()));
  }
  return largest_error;
}

int main() try {
  std::cout << std::fixed << std::setprecision(3);
  ls::set_logical_devices("CPU", kReplicas);
  const ls::MirroredStrategy strategy({"CPU:0", "CPU:1", "CPU:2", "CPU:3"});
  const auto outside = torch::tensor({1.0, 1.2, 0.9, 500.0}, torch::kDouble);  // the last replica is wrong
  const auto results = strategy.run([&] {
    const auto replicas = ls::get_replica_context();
    const auto mine = outside[replicas.replica_id_in_sync_group()];
    return std::tuple{replicas.all_reduce("mean", mine), trimmed_mean(mine), largest(mine)};
  });
  const auto first = strategy.local_results(results)[0];
  std::cout << "values 1.0, 1.2, 0.9 and 500: mean " << std::get<0>(first).item<double>() << ", trimmed mean "
            << std::get<1>(first).item<double>() << ", largest " << std::get<2>(first).item<double>() << '\n';

  torch::manual_seed(1);
  const auto values = torch::randn({kReplicas, 6}, torch::kDouble);
  bool good = true;
  for (const auto& [name, collective] :
       std::vector<std::pair<std::string, Collective>>{{"trimmed mean", trimmed_mean}, {"largest", largest}}) {
    const double error = gradient_error(strategy, collective, values);
    good = good && error < 1e-8;
    std::cout << "gradient of the " << name << (error < 1e-8 ? ": right\n" : ": wrong\n");
  }
  return good ? EXIT_SUCCESS : EXIT_FAILURE;
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return EXIT_FAILURE;
}
