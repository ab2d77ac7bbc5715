#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/strategy/strategies/central_storage.h"
#include "lockstep/strategy/strategies/one_device.h"
#include "lockstep/strategy/variable/variable.h"
#include "tests/strategy/replicas.h"

namespace lockstep {
namespace {

using tests::mirrored;
using tests::replica_id;

using RowWrite = const Variable& (Variable::*)(const IndexedSlices&) const;

at::Tensor rows(std::initializer_list<double> values) { return at::tensor(values, at::kDouble); }

class ScatterTest : public tests::ReplicasTest {
 protected:
  static Variable make(const Strategy& strategy, VariableAggregation aggregation,
                       VariableSynchronization synchronization = VariableSynchronization::OnWrite) {
    const Scope scope = strategy.scope();
    return Variable(rows({4, 6, 8}), {.synchronization = synchronization, .aggregation = aggregation});
  }

  /// Replica i writes i + 2 to the rows i and i + 1.
  static void write_in_replicas(const Strategy& strategy, const Variable& variable, RowWrite write) {
    strategy.run([&] {
      const int id = replica_id();
      (variable.*write)({at::tensor({id, id + 1}), rows({id + 2.0, id + 2.0}), {3}});
    });
  }

  static void expect_copies(const Variable& variable, const std::vector<at::Tensor>& expected) {
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(at::allclose(variable.components()[i], expected[i])) << i << ": " << variable.components()[i];
    }
  }
};

TEST_F(ScatterTest, RowsOfReplicasAreCombined) {
  const MirroredStrategy strategy = mirrored(2);
  const auto after = [&](VariableAggregation aggregation, RowWrite write) {
    const Variable variable = make(strategy, aggregation);
    write_in_replicas(strategy, variable, write);
    return variable;
  };
  expect_copies(after(VariableAggregation::None, &Variable::scatter_add), {rows({6, 8, 8}), rows({4, 9, 11})});
  expect_copies(after(VariableAggregation::Sum, &Variable::scatter_add), {rows({6, 11, 11}), rows({6, 11, 11})});
  expect_copies(after(VariableAggregation::Mean, &Variable::scatter_sub), {rows({3, 3.5, 6.5}), rows({3, 3.5, 6.5})});
  expect_copies(after(VariableAggregation::Sum, &Variable::scatter_mul), {rows({8, 36, 24}), rows({8, 36, 24})});
  expect_copies(after(VariableAggregation::Sum, &Variable::scatter_div),
                {rows({2, 1, 8 / 3.0}), rows({2, 1, 8 / 3.0})});
  expect_copies(after(VariableAggregation::OnlyFirstReplica, &Variable::scatter_update),
                {rows({2, 2, 8}), rows({2, 2, 8})});
  expect_copies(after(VariableAggregation::None, &Variable::scatter_min), {rows({2, 2, 8}), rows({4, 3, 3})});
  expect_copies(after(VariableAggregation::OnlyFirstReplica, &Variable::scatter_max),
                {rows({4, 6, 8}), rows({4, 6, 8})});
}

TEST_F(ScatterTest, OutsideOfReplicasAllCopiesTakeTheRows) {
  const Variable variable = make(mirrored(2), VariableAggregation::Mean);
  variable.scatter_add({at::tensor({2, 2}), rows({1, 1}), {3}});
  expect_copies(variable, {rows({4, 6, 10}), rows({4, 6, 10})});
  variable.scatter_mul({at::tensor({0, 0}), rows({2, 3}), {3}});
  expect_copies(variable, {rows({24, 6, 10}), rows({24, 6, 10})});
}

TEST_F(ScatterTest, QuotientsOfIntegersAreTruncated) {
  const MirroredStrategy two = mirrored(2);
  const CentralStorageStrategy central({"CPU:0", "CPU:1"});
  const OneDeviceStrategy one("CPU:0");
  const IndexedSlices divisors{at::tensor({0, 1, 2, 2}), at::tensor({2, 2, 2, -3}), {3}};
  for (const Strategy* strategy : std::initializer_list<const Strategy*>{&two, &central, &one}) {
    const Scope scope = strategy->scope();
    const Variable variable(at::tensor({7, -7, 13}), {.aggregation = VariableAggregation::OnlyFirstReplica});
    variable.scatter_div(divisors);
    for (const at::Tensor& copy : variable.components()) {
      EXPECT_TRUE(copy.equal(at::tensor({3, -3, -2}))) << strategy->type_name() << ": " << copy;
    }
    EXPECT_THROW(variable.scatter_div({at::tensor({0}), at::tensor({0}), {3}}), c10::ValueError);
  }
  const Scope scope = two.scope();
  const Variable in_replicas(at::tensor({9}), {.aggregation = VariableAggregation::Sum});
  two.run([&] { in_replicas.scatter_div({at::tensor({0}), at::tensor({2}), {1}}); });
  EXPECT_EQ(in_replicas.components()[1].item<int64_t>(), 2) << "9 / 2 / 2";
}

TEST_F(ScatterTest, WhatCannotBeScattered) {
  const MirroredStrategy strategy = mirrored(2);
  const IndexedSlices some{at::tensor({0}), rows({1}), {3}};
  for (auto aggregation : {VariableAggregation::Sum, VariableAggregation::Mean}) {
    const Variable variable = make(strategy, aggregation);
    for (RowWrite write : {&Variable::scatter_min, &Variable::scatter_max, &Variable::scatter_update}) {
      EXPECT_THROW((variable.*write)(some), c10::NotImplementedError);
    }
  }
  const Variable on_read = make(strategy, VariableAggregation::Sum, VariableSynchronization::OnRead);
  EXPECT_THROW(on_read.scatter_add(some), c10::NotImplementedError);
  EXPECT_THROW(make(strategy, VariableAggregation::None).scatter_mul({at::tensor({3}), rows({1}), {3}}),
               c10::IndexError);
}

}  // namespace
}  // namespace lockstep
