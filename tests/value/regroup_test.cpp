#include "lockstep/value/regroup.h"

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>
#include <torch/data/example.h>
#include <torch/types.h>

namespace lockstep {
namespace {

at::Tensor number(double value) { return at::scalar_tensor(value, at::kFloat); }

TEST(Regroup, TensorsOfReplicasAreKeptApart) {
  const PerReplica<at::Tensor> joined = regroup(std::vector{number(1), number(1)});
  EXPECT_FALSE(joined.is_bare()) << "equal, but not the same tensor";
  EXPECT_EQ(joined.size(), 2u);
}

TEST(Regroup, TheVerySameTensorStaysBare) {
  const at::Tensor shared = number(1);
  EXPECT_TRUE(regroup(std::vector{shared, shared}).is_bare());
  EXPECT_FALSE(regroup(std::vector{shared, shared}, Wrap::Always).is_bare());
}

TEST(Regroup, OneReplicaIsBareUnlessAlwaysWrapped) {
  EXPECT_TRUE(regroup(std::vector{5}).is_bare());
  EXPECT_FALSE(regroup(std::vector{5}, Wrap::Always).is_bare());
}

TEST(Regroup, NumbersHaveNoIdentity) {
  EXPECT_FALSE(regroup(std::vector{5, 5}).is_bare());
  EXPECT_FALSE(regroup(std::vector<std::string>{"a", "a"}).is_bare());
}

TEST(Regroup, NothingOnAllReplicasIsNothing) {
  using Maybe = std::optional<at::Tensor>;
  EXPECT_TRUE(regroup(std::vector<Maybe>{std::nullopt, std::nullopt}).is_bare());
  const at::Tensor shared = number(1);
  EXPECT_TRUE(regroup(std::vector<Maybe>{shared, shared}).is_bare());
  EXPECT_FALSE(regroup(std::vector<Maybe>{std::nullopt, shared}).is_bare());
}

TEST(Regroup, StructureComesFirst) {
  using Result = std::tuple<at::Tensor, std::map<std::string, std::vector<int>>>;
  const std::vector<Result> parts{{number(1), {{"a", {1, 2}}}}, {number(2), {{"a", {3, 4}}}}};
  const auto [tensor, dict] = regroup(parts);
  EXPECT_EQ(tensor[1].item<float>(), 2);
  EXPECT_EQ(dict.at("a")[0][1], 3);
  EXPECT_EQ(dict.at("a")[1][0], 2);
}

TEST(Regroup, ExamplesAndPairsKeepTheirType) {
  using Example = torch::data::Example<>;
  const auto example = regroup(std::vector<Example>{{number(1), number(2)}, {number(3), number(4)}});
  EXPECT_EQ(example.target[1].item<float>(), 4);
  const auto pair = regroup(std::vector<std::pair<int, double>>{{1, 2.0}, {3, 4.0}});
  EXPECT_EQ(pair.second[1], 4.0);
}

TEST(Regroup, StructsAreOneValue) {
  struct Metrics {
    at::Tensor loss;
    int count;
  };
  const PerReplica<Metrics> joined = regroup(std::vector<Metrics>{{number(1), 1}, {number(2), 2}});
  EXPECT_EQ(joined[1].count, 2);
}

TEST(Regroup, StructuresMustAgree) {
  using Dict = std::map<std::string, int>;
  EXPECT_THROW(regroup(std::vector<std::vector<int>>{{1}, {1, 2}}), c10::ValueError);
  EXPECT_THROW(regroup(std::vector<Dict>{{{"a", 1}}, {{"b", 1}}}), c10::ValueError);
  EXPECT_THROW(regroup(std::vector<Dict>{{{"a", 1}}, {{"a", 1}, {"b", 1}}}), c10::ValueError);
}

TEST(Select, ReplacesDistributedValuesAtAnyDepth) {
  const std::tuple value(PerReplica<int>{1, 2}, std::vector{Mirrored<int>{7, 7}}, 5,
                         std::map<std::string, PerReplica<int>>{{"a", {3, 4}}});
  const auto [first, list, plain, dict] = select(1, value);
  EXPECT_EQ(first, 2);
  EXPECT_EQ(list[0], 7);
  EXPECT_EQ(plain, 5);
  EXPECT_EQ(dict.at("a"), 4);
}

TEST(Select, IsTheReverseOfRegroup) {
  using Part = std::pair<std::vector<int>, std::tuple<std::string, double>>;
  const std::vector<Part> parts{{{1, 2}, {"a", 0.5}}, {{3, 4}, {"b", 1.5}}, {{5, 6}, {"c", 2.5}}};
  const auto joined = regroup(parts);
  for (int replica = 0; replica < 3; ++replica) EXPECT_EQ(select(replica, joined), parts[replica]);
  EXPECT_THROW(select(3, joined), c10::IndexError);
}

}  // namespace
}  // namespace lockstep
