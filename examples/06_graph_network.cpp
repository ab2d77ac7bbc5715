// Trains a network on graphs of different sizes: several graphs are joined to one large one, so that each replica has
// another number of nodes and edges in every step. The loss of a step is divided by the nodes of all replicas.
//
//   build/release/bin/graph_network          on one replica and on two
//
// The network says for each node of a random graph whether a marked node is at most two edges away. Prints the sizes of
// the first step, the losses of both trainings, which are equal but for rounding, and the accuracy on other graphs.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iomanip>
#include <iostream>
#include <lockstep/lockstep.h>
#include <tuple>
#include <vector>

#include <torch/torch.h>

namespace ls = lockstep;
namespace nn = torch::nn;

constexpr int64_t kGraphs = 250;      // for training; the last batch is smaller
constexpr int64_t kGlobalBatch = 16;  // graphs
constexpr int64_t kEpochs = 6;
constexpr int64_t kWidth = 32;

// ---- The graphs

// Nodes [nodes, 1]: 1 where one is marked; edges [2, edges]: from, to; and what is asked of each node [nodes].
using Graph = std::tuple<torch::Tensor, torch::Tensor, torch::Tensor>;

Graph random_graph() {
  const auto nodes = torch::randint(5, 40, {1}, torch::kLong).item<int64_t>();
  const auto marked = torch::rand({nodes, 1}).lt(0.06).to(torch::kFloat);
  const auto one_way = torch::randint(nodes, {2, nodes}, torch::kLong);
  const auto edges = torch::cat({one_way, one_way.flip(0)}, 1);  // both ways
  auto near = marked;
  for (int i = 0; i < 2; ++i) near = near.index_add(0, edges[1], near.index_select(0, edges[0])).clamp_max(1);
  return {marked, edges, near.squeeze(1)};
}

// Joins graphs to one: the nodes of a graph are numbered behind those of the graphs before it.
Graph joined(const std::vector<Graph>& graphs, const torch::Tensor& numbers) {
  std::vector<torch::Tensor> marked, edges, near;
  int64_t nodes = 0;
  for (int64_t i = 0; i < numbers.size(0); ++i) {
    const auto& [its_marked, its_edges, its_near] = graphs[static_cast<size_t>(numbers[i].item<int64_t>())];
    marked.push_back(its_marked);
    edges.push_back(its_edges + nodes);
    near.push_back(its_near);
    nodes += its_marked.size(0);
  }
  return {torch::cat(marked), torch::cat(edges, 1), torch::cat(near)};
}

// ---- The network

struct GraphNetImpl : nn::Module {
  // Each node adds the messages of its neighbours, twice. Returns one logit for each node.
  torch::Tensor forward(const torch::Tensor& marked, const torch::Tensor& edges) {
    auto nodes = torch::relu(in->forward(marked));
    for (int i = 0; i < 2; ++i) {
      const auto messages = message->forward(nodes).index_select(0, edges[0]);
      nodes = torch::relu(own->forward(nodes).index_add(0, edges[1], messages));
    }
    return out->forward(nodes).squeeze(1);
  }

  nn::Linear in = register_module("in", nn::Linear(1, kWidth));
  nn::Linear own = register_module("own", nn::Linear(kWidth, kWidth));
  nn::Linear message = register_module("message", nn::Linear(nn::LinearOptions(kWidth, kWidth).bias(false)));
  nn::Linear out = register_module("out", nn::Linear(kWidth, 1));
};
TORCH_MODULE(GraphNet);

// ---- The training

struct Result {
  std::vector<double> losses;  // of the last step of each epoch
  double accuracy = 0;
};

Result train(const ls::Strategy& strategy) {
  torch::manual_seed(1);
  std::vector<Graph> graphs, others;
  for (int64_t i = 0; i < kGraphs; ++i) graphs.push_back(random_graph());
  for (int64_t i = 0; i < kGraphs / 5; ++i) others.push_back(random_graph());

  auto scope = strategy.scope();
  auto model = ls::module<GraphNet>();
  auto adam = ls::optimizer<torch::optim::Adam>(model, 1e-2);
  // Batches cannot be divided after they were joined: the function makes those of single replicas.
  auto batches = strategy.distribute_datasets_from_function([&](const ls::InputContext& context) {
    return ls::data::range(kGraphs)
        .shuffle(kGraphs, {.seed = 1})
        .shard(context.num_input_pipelines, context.input_pipeline_id)
        .batch(context.get_per_replica_batch_size(kGlobalBatch))
        .map([&](torch::Tensor numbers) { return joined(graphs, numbers); });
  });

  Result result;
  for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    double loss = 0;
    for (auto& batch : batches) {
      for (const auto& [marked, edges, near] : strategy.local_results(batch)) {
        if (epoch > 0 || loss > 0) break;
        std::cout << "  a replica begins with " << marked.size(0) << " nodes and " << edges.size(1) << " edges\n";
      }
      const auto losses = strategy.run(
          [&](torch::Tensor marked, torch::Tensor edges, torch::Tensor near) {
            const auto each = torch::binary_cross_entropy_with_logits(model->forward(marked, edges), near, {}, {},
                                                                      torch::Reduction::None);
            const auto mean = ls::average_loss(each);  // divides by the nodes of all replicas
            adam.minimize(mean);
            return mean.detach();
          },
          batch);
      loss = strategy.reduce("sum", losses).item<double>();
    }
    result.losses.push_back(loss);
  }
  const torch::NoGradGuard no_grad;
  const auto [marked, edges, near] = joined(others, torch::arange(kGraphs / 5));
  result.accuracy = model->forward(marked, edges).gt(0).eq(near.gt(0.5)).to(torch::kDouble).mean().item<double>();
  return result;
}

int main() try {
  std::cout << std::fixed << std::setprecision(4);
  ls::set_logical_devices("CPU", 2);
  std::cout << "one replica\n";
  const Result one = train(ls::MirroredStrategy({"CPU:0"}));
  std::cout << "two replicas\n";
  const Result two = train(ls::MirroredStrategy({"CPU:0", "CPU:1"}));
  double difference = 0;
  std::cout << "  epoch   1 replica  2 replicas\n";
  for (size_t i = 0; i < one.losses.size(); ++i) {
    std::cout << std::setw(7) << i + 1 << std::setw(12) << one.losses[i] << std::setw(12) << two.losses[i] << '\n';
    difference = std::max(difference, std::abs(one.losses[i] - two.losses[i]));
  }
  std::cout << "accuracy on other graphs " << one.accuracy << " and " << two.accuracy << std::endl;
  if (difference < 1e-3 && std::min(one.accuracy, two.accuracy) > 0.95) return EXIT_SUCCESS;
  std::cerr << "the losses differ by " << difference << ", or the accuracy is too low\n";
  return EXIT_FAILURE;
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return EXIT_FAILURE;
}
