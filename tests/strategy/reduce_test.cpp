#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "lockstep/strategy/extended.h"
#include "lockstep/strategy/reduce/cross_device_ops.h"
#include "lockstep/strategy/reduce/reduce_value.h"
#include "lockstep/strategy/reduce/tree_reduce.h"
#include "lockstep/strategy/strategies/one_device.h"
#include "tests/strategy/replicas.h"

namespace lockstep {
namespace {

using tests::mirrored;

constexpr std::array kTypes{at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kInt,
                            at::kLong,  at::kShort,  at::kChar, at::kByte};

/// Values of several replicas, and their reduction.
struct ReduceArguments {
  std::vector<at::Tensor> values;
  std::vector<int64_t> axes;
  bool has_axis = false;

  PerReplica<at::Tensor> per_replica() const { return PerReplica<at::Tensor>(values); }
  ReduceAxis axis() const { return has_axis ? ReduceAxis(axes) : ReduceAxis(); }
};

class ReduceTest : public tests::ReplicasTest {
 protected:
  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

  std::vector<int64_t> pick_axes(int64_t rank) {
    std::vector<int64_t> axes;
    for (int64_t axis = 0; axis < rank; ++axis) {
      if (pick(0, 1) == 1) axes.push_back(pick(0, 1) == 1 ? axis : axis - rank);
    }
    return axes;
  }

  /// Zeros and ones, few enough for every type to hold their sum.
  ReduceArguments pick_arguments(int replicas, at::ScalarType type) {
    ReduceArguments arguments;
    const int64_t rank = pick(0, 3);
    std::vector<int64_t> shape;
    for (int64_t d = 0; d < rank; ++d) shape.push_back(pick(1, 3));
    arguments.has_axis = rank > 0 && pick(0, 2) > 0;
    if (arguments.has_axis) arguments.axes = pick_axes(rank);
    const bool uneven = std::count(arguments.axes.begin(), arguments.axes.end(), 0) +
                            std::count(arguments.axes.begin(), arguments.axes.end(), -rank) >
                        0;
    for (int r = 0; r < replicas; ++r) {
      if (uneven) shape[0] = pick(0, 2);
      arguments.values.push_back(at::randint(2, shape, at::kLong).to(type));
    }
    return arguments;
  }

  /// The reduction of the concatenation of all values, or of their stack if the first axis is not reduced.
  static at::Tensor plain(ReduceOp op, const ReduceArguments& arguments) {
    const at::ScalarType type = arguments.values[0].scalar_type();
    const bool nothing_to_divide = !arguments.has_axis && arguments.values.size() == 1;
    const at::ScalarType result_type = op == ReduceOp::Mean && !nothing_to_divide ? detail::mean_type(type) : type;
    at::Tensor total = at::zeros({}, at::kDouble);
    double count = 0;
    for (const at::Tensor& value : arguments.values) {
      const at::Tensor wide = value.to(at::kDouble);
      total = total + (arguments.axes.empty() ? wide : wide.sum(arguments.axes));
      double along = 1;
      for (int64_t axis : arguments.axes) along *= static_cast<double>(value.size(axis));
      count += along;
    }
    return (op == ReduceOp::Mean ? total / count : total).to(result_type);
  }

  std::mt19937 random_{7};
};

TEST_F(ReduceTest, IsThePlainComputationOnAllValues) {
  for (int replicas = 1; replicas <= kMaxReplicas; ++replicas) {
    const MirroredStrategy strategy = mirrored(replicas);
    for (at::ScalarType type : kTypes) {
      for (int round = 0; round < 12; ++round) {
        const ReduceArguments arguments = pick_arguments(replicas, type);
        SCOPED_TRACE(c10::str("replicas=", replicas, " type=", type, " shape=", arguments.values[0].sizes(),
                              " axes=", arguments.axes, " has_axis=", arguments.has_axis));
        for (ReduceOp op : {ReduceOp::Sum, ReduceOp::Mean}) {
          const at::Tensor actual = strategy.reduce(op, arguments.per_replica(), arguments.axis());
          const at::Tensor expected = plain(op, arguments);
          ASSERT_EQ(actual.scalar_type(), expected.scalar_type()) << op;
          ASSERT_EQ(actual.sizes(), expected.sizes()) << op;
          ASSERT_TRUE(at::allclose(actual.to(at::kDouble), expected.to(at::kDouble), 1e-2, 1e-6, /*equal_nan=*/true))
              << op << ": " << actual << " is not " << expected;
        }
      }
    }
  }
}

TEST_F(ReduceTest, AlongTheFirstAxisIsTheReductionOfTheBatch) {
  const MirroredStrategy strategy = mirrored(3);
  const at::Tensor batch = at::randn({7, 2}, at::kDouble);
  const PerReplica<at::Tensor> parts{batch.slice(0, 0, 5), batch.slice(0, 5, 7), batch.slice(0, 7, 7)};
  EXPECT_TRUE(at::allclose(strategy.reduce("mean", parts, 0), batch.mean(0)));
  EXPECT_TRUE(at::allclose(strategy.reduce("sum", parts, {0, 1}), batch.sum()));
  EXPECT_TRUE(strategy.reduce("max", parts, 0).equal(batch.amax(0)));
  EXPECT_TRUE(strategy.reduce("min", parts, {-1, 0}).equal(batch.min()));
}

TEST_F(ReduceTest, SameBitsAsAllReduce) {
  for (int replicas = 1; replicas <= kMaxReplicas; ++replicas) {
    const MirroredStrategy strategy = mirrored(replicas);
    for (at::ScalarType type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
      std::vector<at::Tensor> values;
      for (int r = 0; r < replicas; ++r) values.push_back(at::randn({1000}).mul(100).to(type));
      const PerReplica<at::Tensor> value(values);
      for (ReduceOp op : {ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Min, ReduceOp::Max}) {
        const auto inside =
            strategy.run([&](const at::Tensor& own) { return get_replica_context().all_reduce(op, own); }, value);
        const at::Tensor outside = strategy.reduce(op, value);
        for (const at::Tensor& each : inside) {
          EXPECT_TRUE(each.equal(outside)) << "replicas=" << replicas << " type=" << type << " op=" << op;
        }
      }
    }
  }
}

TEST_F(ReduceTest, NothingAlongTheAxis) {
  const MirroredStrategy strategy = mirrored(2);
  const PerReplica<at::Tensor> empty{at::zeros({0, 2}), at::zeros({0, 2})};
  EXPECT_TRUE(strategy.reduce("sum", empty, 0).equal(at::zeros({2})));
  EXPECT_TRUE(strategy.reduce("mean", empty, 0).isnan().all().item<bool>());
  EXPECT_THROW(strategy.reduce("max", empty, 0), c10::ValueError);
}

TEST_F(ReduceTest, KeepsTheStructure) {
  const MirroredStrategy strategy = mirrored(2);
  const auto values = strategy.run([] {
    const at::Tensor own = at::full({2}, tests::replica_id() + 1.0);
    return std::tuple(own, std::map<std::string, at::Tensor>{{"a", own * 10}}, std::vector<at::Tensor>{own});
  });
  const auto [first, map, list] = strategy.reduce("sum", values, 0);
  EXPECT_EQ(first.item<double>(), 6);
  EXPECT_EQ(map.at("a").item<double>(), 60);
  EXPECT_EQ(list.at(0).item<double>(), 6);
}

TEST_F(ReduceTest, ValueThatIsTheSameEverywhere) {
  const MirroredStrategy strategy = mirrored(2);
  const at::Tensor same = at::tensor({1.0f, 3.0f});
  EXPECT_TRUE(strategy.reduce("mean", same).equal(same));
  EXPECT_EQ(strategy.reduce("mean", same, 0).item<float>(), 2);
  EXPECT_THROW(strategy.reduce("sum", same), c10::ValueError);
  EXPECT_THROW(strategy.reduce("sum", same, 0), c10::ValueError);
  EXPECT_THROW(strategy.reduce("sum", 1), c10::ValueError);
  EXPECT_EQ(strategy.reduce("sum", 0).item<int>(), 0);
  const Mirrored<at::Tensor> mirrored_value{same, same};
  EXPECT_TRUE(strategy.reduce("mean", mirrored_value).equal(same));
  EXPECT_THROW(strategy.reduce("sum", mirrored_value), c10::ValueError);
  EXPECT_TRUE(mirrored(1).reduce("sum", same).equal(same));
  EXPECT_TRUE(OneDeviceStrategy("CPU:0").reduce("sum", same).equal(same));
}

TEST_F(ReduceTest, WrongArguments) {
  const MirroredStrategy strategy = mirrored(2);
  const PerReplica<at::Tensor> uneven{at::zeros({1}), at::zeros({2})};
  EXPECT_THROW(strategy.reduce("sum", uneven), c10::ValueError);
  EXPECT_THROW(strategy.reduce("sum", uneven, 1), c10::ValueError);
  EXPECT_THROW(strategy.reduce("mean", uneven, -2), c10::ValueError);
  EXPECT_THROW(strategy.reduce("mean", uneven, {0, -1}), c10::ValueError);
  const PerReplica<at::Tensor> bools{at::ones({2}, at::kBool), at::ones({2}, at::kBool)};
  EXPECT_THROW(strategy.reduce("sum", bools), c10::ValueError);
  EXPECT_THROW(strategy.reduce("mean", bools, 0), c10::TypeError);
  EXPECT_TRUE(mirrored(1).reduce("sum", PerReplica<at::Tensor>{bools[0]}).equal(bools[0]));
}

TEST_F(ReduceTest, GatherIsTheConcatenation) {
  for (int replicas = 1; replicas <= kMaxReplicas; ++replicas) {
    const MirroredStrategy strategy = mirrored(replicas);
    for (at::ScalarType type : {at::kFloat, at::kBFloat16, at::kByte, at::kBool, at::kComplexFloat}) {
      for (int64_t axis : {0, 1, 2, -1, -2, -3}) {
        std::vector<at::Tensor> values;
        for (int r = 0; r < replicas; ++r) {
          std::vector<int64_t> shape{2, 3, 2};
          shape[(axis + 3) % 3] = pick(0, 3);
          values.push_back(at::randint(2, shape, at::kLong).to(type));
        }
        EXPECT_TRUE(strategy.gather(PerReplica<at::Tensor>(values), axis).equal(at::cat(values, axis)))
            << "replicas=" << replicas << " type=" << type << " axis=" << axis;
      }
    }
  }
}

TEST_F(ReduceTest, GatherOfWhatCannotBeConcatenated) {
  const MirroredStrategy strategy = mirrored(2);
  EXPECT_THROW(strategy.gather(PerReplica<at::Tensor>{at::ones({}), at::ones({})}, 0), c10::ValueError);
  EXPECT_THROW(strategy.gather(PerReplica<at::Tensor>{at::ones({2}), at::ones({2})}, 1), c10::ValueError);
  EXPECT_THROW(strategy.gather(PerReplica<at::Tensor>{at::ones({2}), at::ones({2, 1})}, 0), c10::ValueError);
  EXPECT_THROW(strategy.gather(PerReplica<at::Tensor>{at::ones({1, 2}), at::ones({1, 3})}, 0), c10::ValueError);
  const IndexedSlices slices{at::tensor({0}), at::ones({1, 2}), {3, 2}};
  EXPECT_THROW(strategy.gather(slices, 0), c10::NotImplementedError);
  EXPECT_THROW(strategy.gather(PerReplica<IndexedSlices>{slices, slices}, 0), c10::NotImplementedError);
  const at::Tensor same = at::ones({2});
  EXPECT_TRUE(strategy.gather(same, 0).is_same(same)) << "what is the same everywhere is not repeated";
  EXPECT_EQ(mirrored(1).gather(PerReplica<at::Tensor>{at::scalar_tensor(3)}, 0).dim(), 0);
}

TEST_F(ReduceTest, EveryImplementationGivesTheSameBits) {
  std::vector<at::Tensor> values;
  for (int r = 0; r < kMaxReplicas; ++r) values.push_back(at::randn({100}) * 100);
  const PerReplica<at::Tensor> value(values);
  const at::Tensor expected = detail::tree_reduce(ReduceOp::Sum, values);
  const ReductionToOneDevice to_one("CPU:1");
  const HierarchicalCopyAllReduce hierarchical(2);
  for (const CrossDeviceOps* ops : std::initializer_list<const CrossDeviceOps*>{&to_one, &hierarchical}) {
    const auto copies = ops->reduce("sum", value, Destinations(value));
    ASSERT_EQ(copies.size(), kMaxReplicas);
    for (const at::Tensor& copy : copies) EXPECT_TRUE(copy.equal(expected)) << ops->name();
    const auto batch = ops->batch_reduce("sum", {{value, Destinations("CPU:0")}, {value, Destinations(value)}});
    EXPECT_EQ(batch[0].size(), 1);
    EXPECT_TRUE(batch[1][kMaxReplicas - 1].equal(expected)) << ops->name();
  }
  EXPECT_THROW(NcclAllReduce().reduce("sum", value, Destinations("CPU:0")), c10::ValueError);
  EXPECT_THROW(HierarchicalCopyAllReduce(-1), c10::ValueError);
  EXPECT_THROW(Destinations(""), c10::ValueError);
}

/// Counts its reductions.
class CountingCopies final : public HierarchicalCopyAllReduce {
 public:
  using HierarchicalCopyAllReduce::HierarchicalCopyAllReduce;
  mutable int count = 0;

 protected:
  at::Tensor do_reduce(ReduceOp op, at::ArrayRef<at::Tensor> components, c10::Device device) const override {
    ++count;
    return HierarchicalCopyAllReduce::do_reduce(op, components, device);
  }
};

TEST_F(ReduceTest, BatchesAreReducedInPacks) {
  std::vector<CrossDeviceOps::ValueAndDestinations> batch;
  std::vector<at::Tensor> expected;
  for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{2, 3}, {}, {0}, {5}}) {
    std::vector<at::Tensor> values;
    for (int r = 0; r < 3; ++r) values.push_back(at::randn(shape));
    expected.push_back(detail::tree_reduce(ReduceOp::Mean, values));
    batch.emplace_back(PerReplica<at::Tensor>(values), Destinations("CPU:0"));
  }
  const std::vector<at::Tensor> integers(3, at::full({2}, 7, at::kLong));
  expected.push_back(at::full({2}, 7.0, at::kDouble));
  batch.emplace_back(PerReplica<at::Tensor>(integers), Destinations("CPU:0"));
  for (const auto& [num_packs, reductions] : {std::pair{0, 5}, {1, 2}, {2, 4}, {3, 4}, {100, 2}}) {
    const CountingCopies ops(num_packs);
    const auto reduced = ops.batch_reduce("mean", batch);
    ASSERT_EQ(reduced.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(reduced[i][0].equal(expected[i])) << "num_packs=" << num_packs << " value " << i;
    }
    EXPECT_EQ(ops.count, reductions) << "num_packs=" << num_packs;
  }
}

TEST_F(ReduceTest, HierarchicalCopiesCrossBetweenHalvesOnce) {
  EXPECT_EQ(detail::hierarchical_sources(1), (std::vector<size_t>{0}));
  EXPECT_EQ(detail::hierarchical_sources(2), (std::vector<size_t>{0, 0}));
  EXPECT_EQ(detail::hierarchical_sources(8), (std::vector<size_t>{0, 0, 0, 0, 0, 4, 4, 4}));
  EXPECT_EQ(detail::hierarchical_sources(6), (std::vector<size_t>{0, 0, 0, 0, 0, 4}));
}

struct Metrics {
  at::Tensor loss;
  int64_t count = 0;
  std::vector<at::Tensor> parts;
};

TEST_F(ReduceTest, StructsAndOptionalsKeepTheirType) {
  const MirroredStrategy strategy = mirrored(2);
  const auto metrics = strategy.run([] {
    const double id = tests::replica_id() + 1;
    return Metrics{at::full({2}, id), tests::replica_id() + 3, {at::full({1}, id * 10)}};
  });
  const Metrics sum = strategy.reduce("sum", metrics);
  EXPECT_TRUE(sum.loss.equal(at::full({2}, 3.0)));
  EXPECT_EQ(sum.count, 7);
  EXPECT_TRUE(sum.parts.at(0).equal(at::full({1}, 30.0)));
  EXPECT_THROW(strategy.reduce("mean", metrics), c10::TypeError) << "the mean of integers is no integer";
  const auto [first, maximum] = strategy.run([] {
    return std::pair(std::optional<at::Tensor>(at::full({2}, tests::replica_id() + 1.0)), std::optional<double>());
  });
  const std::optional<at::Tensor> reduced = strategy.reduce("sum", first);
  ASSERT_TRUE(reduced.has_value());
  EXPECT_TRUE(reduced->equal(at::full({2}, 3.0)));
  EXPECT_FALSE(strategy.reduce("max", maximum).has_value());
  const auto some = strategy.run(
      [] { return tests::replica_id() == 0 ? std::optional<at::Tensor>() : std::optional<at::Tensor>(at::ones({})); });
  EXPECT_THROW(strategy.reduce("sum", some), c10::ValueError);
  const std::optional<at::Tensor> gathered = strategy.gather(first, 0);
  EXPECT_TRUE(gathered->equal(at::tensor({1.0f, 1.0f, 2.0f, 2.0f})));
  const Metrics same{at::ones({2}), 1, {}};
  EXPECT_TRUE(strategy.reduce("max", same).loss.equal(at::ones({2}))) << "a struct that is the same on all replicas";
}

TEST_F(ReduceTest, BatchReduceToTakesPlainTensors) {
  const MirroredStrategy strategy = mirrored(2);
  const PerReplica<at::Tensor> own{at::full({2}, 1.0), at::full({2}, 3.0)};
  const at::Tensor same = at::full({1}, 5.0);
  const auto means = strategy.extended().batch_reduce_to("mean", {{own, "CPU:0"}, {same, "CPU:1"}, {own, own}});
  ASSERT_EQ(means.size(), 3);
  EXPECT_TRUE(means[0][0].equal(at::full({2}, 2.0)));
  EXPECT_TRUE(means[1][0].equal(same));
  EXPECT_EQ(means[2].size(), 2);
  EXPECT_THROW(strategy.extended().batch_reduce_to("sum", {{same, "CPU:0"}}), c10::ValueError);
  const std::vector<std::pair<PerReplica<at::Tensor>, Destinations>> pairs{{own, Destinations("CPU:0")}};
  EXPECT_TRUE(strategy.extended().batch_reduce_to("sum", pairs)[0][0].equal(at::full({2}, 4.0)));
}

}  // namespace
}  // namespace lockstep
