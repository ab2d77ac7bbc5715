#include <set>

#include <torch/types.h>
#include <torch/utils.h>

#include "tests/data/pipelines.h"

namespace lockstep::data {
namespace {

using namespace tests;  // NOLINT

double draw() { return torch::rand({1}, torch::kDouble).item<double>(); }

/// Datasets whose functions draw random numbers, each made anew.
std::vector<NodePtr> drawing_datasets() {
  const auto numbers = range(20);
  const auto kept = numbers.filter([](int64_t) { return draw() < 0.5; });
  const auto lists = numbers.flat_map(
      [](int64_t i) { return from_vector(std::vector<double>{draw() + 1000.0 * static_cast<double>(i)}); });
  const auto interleaved = [&](int threads) {
    return numbers.interleave(
        [](int64_t) {
          return from_vector(std::vector<double>{draw(), draw()});
        },
        {.cycle_length = 3, .num_threads = threads});
  };
  const auto generated = from_generator([] {
    return [left = 20, base = draw()]() mutable { return left-- > 0 ? std::optional(base + draw()) : std::nullopt; };
  });
  const auto bucketed =
      numbers.map([](int64_t i) { return at::full({2}, i); })
          .bucket_by_length([](const at::Tensor&) { return static_cast<int64_t>(10 * draw()); }, {3, 6}, {2, 2, 2});
  return {detail::node_of(kept),           detail::node_of(lists),     detail::node_of(interleaved(1)),
          detail::node_of(interleaved(3)), detail::node_of(generated), detail::node_of(bucketed)};
}

TEST(FunctionRandomTest, AllFunctionsDrawByElementAndEpoch) {
  torch::manual_seed(5);
  std::vector<Texts> expected;
  std::vector<Texts> second_epoch;
  for (const NodePtr& node : drawing_datasets()) {
    expected.push_back(all_of(node));
    second_epoch.push_back(all_of(node, 1));
    EXPECT_NE(expected.back(), second_epoch.back()) << detail::describe(*node);
  }
  EXPECT_EQ(expected[2], expected[3]) << "threads";
  torch::rand({100});  // the state of the default generator does not matter, only its seed
  const auto again = drawing_datasets();
  for (size_t i = again.size(); i-- > 0;) {
    EXPECT_EQ(all_of(again[i], 1), second_epoch[i]) << detail::describe(*again[i]);
    EXPECT_EQ(all_of(again[i]), expected[i]) << detail::describe(*again[i]);
  }
  torch::manual_seed(6);
  for (size_t i = 0; i < again.size(); ++i) EXPECT_NE(all_of(again[i]), expected[i]) << detail::describe(*again[i]);
}

TEST(FunctionRandomTest, TheDefaultGeneratorStaysAsItIs) {
  torch::manual_seed(5);
  const double expected = draw();
  torch::manual_seed(5);
  for (const NodePtr& node : drawing_datasets()) all_of(node);
  EXPECT_EQ(draw(), expected);
}

TEST(FunctionRandomTest, SkippedElementsHaveTheirNumbers) {
  for (const NodePtr& node : drawing_datasets()) expect_skip_is_exact(node, {0});
}

TEST(FunctionRandomTest, ElementsAndTheDatasetsOfElementsDrawOtherNumbers) {
  const auto outer = range(4).flat_map([](int64_t) {
    const double first = draw();
    return range(2).map([first](int64_t) { return std::tuple{first, draw()}; });
  });
  std::set<double> all;
  for (const auto& [first, own] : outer) {
    all.insert(first);
    all.insert(own);
  }
  EXPECT_EQ(all.size(), 12U);
}

/// What a shuffle and a function draw in one branch.
Dataset<std::tuple<int64_t, double>> branch() {
  return range(30).shuffle(30).map([](int64_t i) { return std::tuple{i, draw()}; });
}

TEST(RandomBranchTest, TheFirstBranchIsAsAloneAndOthersDiffer) {
  torch::manual_seed(3);
  const Texts alone = all_of(branch());
  const auto pairs = zip(branch(), branch(), branch());
  Texts first;
  std::set<Texts> different;
  std::vector<Texts> parts(3);
  for (const auto& [a, b, c] : pairs) {
    parts[0].push_back(text_of(detail::encoded(a)));
    parts[1].push_back(text_of(detail::encoded(b)));
    parts[2].push_back(text_of(detail::encoded(c)));
  }
  EXPECT_EQ(parts[0], alone);
  EXPECT_EQ(std::set<Texts>(parts.begin(), parts.end()).size(), 3U);
  expect_well_behaved(pairs);

  const Texts joined = all_of(branch().concatenate(branch()));
  EXPECT_EQ(Texts(joined.begin(), joined.begin() + 30), alone);
  EXPECT_NE(from(joined, 30), alone);

  const auto sampled = sample_from<std::tuple<int64_t, double>>({branch(), branch()});
  const Texts both = all_of(sampled);
  EXPECT_EQ(std::set<std::string>(both.begin(), both.end()).size(), 60U);
  for (const std::string& text : alone) EXPECT_NE(std::find(both.begin(), both.end(), text), both.end());
}

TEST(RandomBranchTest, OneDatasetInTwoBranchesHasTwoOrders) {
  const auto shuffled = range(20).shuffle(20);
  bool differ = false;
  for (const auto& [a, b] : zip(shuffled, shuffled)) differ = differ || a != b;
  EXPECT_TRUE(differ);
  std::set<Texts> orders;
  const auto nested = zip(zip(shuffled, shuffled), zip(shuffled, shuffled)).collect();
  for (int part = 0; part < 4; ++part) {
    Texts order;
    for (const auto& [first, second] : nested) {
      const auto& [a, b] = part < 2 ? first : second;
      order.push_back(std::to_string(part % 2 == 0 ? a : b));
    }
    orders.insert(order);
  }
  EXPECT_EQ(orders.size(), 4U);
}

TEST(RandomBranchTest, DatasetsOfElementsHaveOtherOrdersThanTheirInput) {
  for (const ShuffleOptions options : {ShuffleOptions{}, ShuffleOptions{.reshuffle_each_iteration = false}}) {
    const auto shuffled = [options](int64_t) { return range(20).shuffle(20, options); };
    const std::vector<int64_t> outer = shuffled(0).collect();
    for (const bool interleaved : {false, true}) {
      std::vector<int64_t> seen;
      const auto input = shuffled(0).map([&](int64_t i) { return seen.push_back(i), i; });
      const auto inner = interleaved ? input.interleave(shuffled, {.cycle_length = 1}) : input.flat_map(shuffled);
      const std::vector<int64_t> all = inner.collect();
      EXPECT_EQ(std::vector<int64_t>(seen.end() - 20, seen.end()), outer) << "the input keeps its numbers";
      EXPECT_NE(std::vector<int64_t>(all.begin(), all.begin() + 20), outer);
    }
  }
}

TEST(RandomBranchTest, EqualSeedsOfTheUserKeepBranchesTogether) {
  const auto images = range(20).shuffle(20, {.seed = 7});
  const auto labels = range(100, 120).shuffle(20, {.seed = 7});
  for (const auto& [image, label] : zip(images, labels)) EXPECT_EQ(image + 100, label);
}

TEST(RandomBranchTest, ACacheHasTheSameContentsInAllBranches) {
  const auto views = branch().cache();
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (const auto& [a, b] : zip(views, views)) EXPECT_EQ(a, b);
  }
  for (int epoch = 0; epoch < 2; ++epoch) {
    std::set<bool> equal;
    for (const auto& [a, b] : zip(branch().cache(), branch().cache())) equal.insert(std::get<1>(a) == std::get<1>(b));
    EXPECT_EQ(equal, std::set<bool>{false});
  }
}

}  // namespace
}  // namespace lockstep::data
