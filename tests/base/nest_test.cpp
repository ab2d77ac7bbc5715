#include "lockstep/base/nest.h"

#include <array>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include <gtest/gtest.h>
#include <torch/data/example.h>
#include <torch/types.h>

namespace lockstep {
namespace {

struct Batch {
  at::Tensor images;
  std::vector<at::Tensor> labels;
  int epoch = 0;
};

struct Sample {
  Batch batch;
  std::optional<at::Tensor> weight;
  std::string name;
};

using Everything = std::tuple<at::Tensor, std::pair<at::Tensor, int>, std::array<at::Tensor, 2>,
                              std::map<std::string, std::vector<at::Tensor>>, std::optional<Sample>>;

/// A nest of every kind of node, with random lengths and tensors that carry their number.
Everything random_nest(std::mt19937& random, int& next) {
  const auto leaf = [&] { return at::scalar_tensor(next++, at::kLong); };
  const auto leaves = [&] {
    std::vector<at::Tensor> tensors(random() % 4);
    for (at::Tensor& tensor : tensors) tensor = leaf();
    return tensors;
  };
  Everything nest;
  std::get<0>(nest) = leaf();
  std::get<1>(nest) = {leaf(), static_cast<int>(random())};
  std::get<2>(nest) = {leaf(), leaf()};
  for (size_t i = random() % 4; i > 0; --i) std::get<3>(nest)["key" + std::to_string(9 - i)] = leaves();
  if (random() % 2 == 0) {
    Sample sample;
    sample.batch = {leaf(), leaves(), static_cast<int>(random())};
    if (random() % 2 == 0) sample.weight = leaf();
    sample.name = "sample";
    std::get<4>(nest) = sample;
  }
  return nest;
}

TEST(Nest, FlattensInOneOrderAndRebuilds) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    int count = 0;
    const Everything nest = random_nest(random, count);
    const std::vector<at::Tensor> flat = nest::flatten(nest);
    ASSERT_EQ(flat.size(), static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) EXPECT_EQ(flat[i].item<int>(), i);

    std::vector<at::Tensor> others;
    for (const at::Tensor& tensor : flat) others.push_back(tensor + 1000);
    const std::vector<at::Tensor> again = nest::flatten(nest::rebuild(nest, others));
    ASSERT_EQ(again.size(), others.size());
    for (size_t i = 0; i < again.size(); ++i) EXPECT_TRUE(again[i].is_same(others[i]));
    for (int i = 0; i < count; ++i) EXPECT_EQ(nest::flatten(nest)[i].item<int>(), i) << "the nest itself is unchanged";
  }
}

TEST(Nest, MapsTensorsAndKeepsEverythingElse) {
  std::mt19937 random(3);
  int count = 0;
  Everything nest = random_nest(random, count);
  std::get<4>(nest) = Sample{{at::ones({2}), {}, 7}, std::nullopt, "kept"};
  const Everything doubled = nest::map_tensors([](const at::Tensor& t) { return t * 2; }, nest);
  EXPECT_EQ(std::get<1>(doubled).second, std::get<1>(nest).second);
  EXPECT_EQ(std::get<4>(doubled)->name, "kept");
  EXPECT_EQ(std::get<4>(doubled)->batch.epoch, 7);
  const auto before = nest::flatten(nest);
  const auto after = nest::flatten(doubled);
  ASSERT_EQ(before.size(), after.size());
  for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(at::equal(after[i], before[i] * 2));
}

TEST(Nest, StructsAreWalkedFieldByField) {
  Sample sample{{at::ones({2}), {at::zeros({1}), at::zeros({1})}, 3}, at::full({1}, 5.0), "x"};
  EXPECT_EQ(nest::flatten(sample).size(), 4u);
  int leaves = 0;
  nest::for_each_leaf([&](auto&) { ++leaves; }, sample);
  EXPECT_EQ(leaves, 6) << "four tensors, a number and a text";
  nest::for_each_tensor([](at::Tensor& tensor) { tensor = tensor + 1; }, sample);
  EXPECT_EQ(sample.weight->item<double>(), 6.0);
}

TEST(Nest, ExamplesAreNests) {
  const torch::data::Example<> example{at::ones({2}), at::zeros({1})};
  const auto flat = nest::flatten(example);
  ASSERT_EQ(flat.size(), 2u);
  EXPECT_TRUE(flat[0].is_same(example.data));
  EXPECT_TRUE(flat[1].is_same(example.target));
}

TEST(Nest, OptionalsMayBeEmpty) {
  std::tuple<std::optional<at::Tensor>, std::optional<at::Tensor>> nest{std::nullopt, at::ones({})};
  EXPECT_EQ(nest::flatten(nest).size(), 1u);
  EXPECT_FALSE(std::get<0>(nest::map_tensors([](const at::Tensor& t) { return t; }, nest)).has_value());
}

TEST(Nest, MapsAreWalkedInTheOrderOfTheirKeys) {
  const std::map<std::string, at::Tensor> nest{{"b", at::full({}, 2)}, {"a", at::full({}, 1)}};
  EXPECT_EQ(nest::flatten(nest)[0].item<int>(), 1);
  const std::unordered_map<int, at::Tensor> unordered{{1, at::ones({})}};
  EXPECT_EQ(nest::flatten(unordered).size(), 1u);
}

TEST(Nest, LeavesAndNodes) {
  static_assert(nest::kIsLeaf<at::Tensor>);
  static_assert(nest::kIsLeaf<int> && nest::kIsLeaf<std::string> && nest::kIsLeaf<std::vector<bool>>);
  static_assert(!nest::kIsLeaf<Batch> && !nest::kIsLeaf<std::vector<int>>);
  EXPECT_TRUE(nest::flatten(5).empty());
  EXPECT_TRUE(nest::flatten(std::tuple<>()).empty());
}

TEST(Nest, RebuildWithTooFewTensorsFails) {
  EXPECT_THROW(nest::rebuild(std::pair{at::ones({}), at::ones({})}, {at::ones({})}), c10::Error);
}

}  // namespace
}  // namespace lockstep
