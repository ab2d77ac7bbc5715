#include "lockstep/strategy/variable/variable.h"

#include <numeric>
#include <optional>
#include <sstream>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/device/device_scope.h"
#include "lockstep/strategy/extended.h"
#include "lockstep/strategy/strategies/one_device.h"
#include "tests/strategy/replicas.h"

namespace lockstep {
namespace {

using tests::mirrored;
using tests::replica_id;

constexpr std::array kSynchronizations{VariableSynchronization::OnWrite, VariableSynchronization::OnRead};
constexpr std::array kAggregations{VariableAggregation::None, VariableAggregation::Sum, VariableAggregation::Mean,
                                   VariableAggregation::OnlyFirstReplica};

enum class Where { Replica, Scope, Outside, Update };
enum class Op { Assign, Add, Sub };
/// What is written: the number 6 or 0, the tensor 6, or 2 and 3 and so on, one for each replica.
enum class Operand { Number, Zero, Tensor, Own };

/// One combination of all properties that a write depends on.
struct Write {
  int replicas;
  VariableSynchronization synchronization;
  VariableAggregation aggregation;
  Where where;
  Op op;
  Operand operand;

  bool on_read() const { return synchronization == VariableSynchronization::OnRead; }
  bool sums() const { return aggregation == VariableAggregation::Sum; }
  bool is_number() const { return operand == Operand::Number || operand == Operand::Zero; }
  bool everywhere() const { return where == Where::Scope || where == Where::Outside; }

  double value(int replica) const {
    if (operand == Operand::Own) return replica + 2;
    return operand == Operand::Zero ? 0 : 6;
  }
};

double apply(Op op, double before, double value) {
  return op == Op::Assign ? value : op == Op::Add ? before + value : before - value;
}

/// The rules, with plain numbers.
struct Model {
  static constexpr double kInitial = 1;

  static bool is_error(const Write& write) {
    if (write.on_read() && write.everywhere()) {
      return (write.sums() && write.op != Op::Assign) || write.operand == Operand::Own;
    }
    return !write.on_read() && write.where == Where::Replica && write.sums() && write.replicas > 1 &&
           write.operand == Operand::Number;
  }

  /// The value that copy `i` takes.
  static double taken(const Write& write, int i) {
    const int n = write.replicas;
    if (write.on_read() && write.everywhere()) return write.sums() ? write.value(i) / n : write.value(i);
    if (write.on_read() || write.where != Where::Replica) return write.value(i);
    double sum = 0;
    for (int r = 0; r < n; ++r) sum += write.value(r);
    switch (write.aggregation) {
      case VariableAggregation::None:
        return write.value(i);
      case VariableAggregation::Sum:
        return write.is_number() ? write.value(0) : sum;
      case VariableAggregation::Mean:
        return sum / n;
      case VariableAggregation::OnlyFirstReplica:
        return write.value(0);
    }
    return 0;
  }

  static std::vector<double> copies(const Write& write) {
    std::vector<double> result;
    for (int i = 0; i < write.replicas; ++i) result.push_back(apply(write.op, kInitial, taken(write, i)));
    return result;
  }

  /// The value of a read outside of replicas; nothing for an error.
  static std::optional<double> read(const Write& write, const std::vector<double>& copies) {
    if (!write.on_read() || write.aggregation == VariableAggregation::OnlyFirstReplica) return copies[0];
    if (write.aggregation == VariableAggregation::None) return std::nullopt;
    const double sum = std::accumulate(copies.begin(), copies.end(), 0.0);
    return write.sums() ? sum : sum / write.replicas;
  }
};

std::vector<double> numbers(const std::vector<at::Tensor>& tensors) {
  std::vector<double> result;
  for (const at::Tensor& tensor : tensors) result.push_back(tensor.item<double>());
  return result;
}

at::Tensor scalar(double value) { return at::scalar_tensor(value, at::kDouble); }

class VariableTest : public tests::ReplicasTest {
 protected:
  static Variable make(const Strategy& strategy, VariableOptions options, const at::Tensor& initial) {
    const Scope scope = strategy.scope();
    return Variable(initial, options);
  }

  static VariableOperand operand(const Write& write, int replica) {
    if (write.is_number()) return VariableOperand(write.value(replica));
    return scalar(write.value(replica));
  }

  static VariableOperand operand_outside(const Write& write) {
    if (write.operand != Operand::Own) return operand(write, 0);
    std::vector<at::Tensor> values;
    for (int r = 0; r < write.replicas; ++r) values.push_back(scalar(write.value(r)));
    return PerReplica<at::Tensor>(values);
  }

  static void call(const Variable& variable, Op op, const VariableOperand& value) {
    const Variable& returned = op == Op::Assign ? variable.assign(value)
                               : op == Op::Add  ? variable.assign_add(value)
                                                : variable.assign_sub(value);
    EXPECT_TRUE(returned.is_same(variable));
  }

  static void perform(const Strategy& strategy, const Variable& variable, const Write& write) {
    if (write.where == Where::Replica) {
      strategy.run([&] { call(variable, write.op, operand(write, replica_id())); });
    } else if (write.where == Where::Scope) {
      const Scope scope = strategy.scope();
      call(variable, write.op, operand_outside(write));
    } else if (write.where == Where::Outside) {
      call(variable, write.op, operand_outside(write));
    } else {
      strategy.extended().update(
          variable, [&](const at::Tensor&) { call(variable, write.op, operand(write, *get_update_replica_id())); });
    }
  }

  static void expect_as_model(const Strategy& strategy, const Write& write) {
    const Variable variable =
        make(strategy, {.synchronization = write.synchronization, .aggregation = write.aggregation}, scalar(1));
    if (Model::is_error(write)) {
      EXPECT_THROW(perform(strategy, variable, write), c10::ValueError);
      EXPECT_EQ(numbers(variable.components()), std::vector<double>(write.replicas, 1)) << "nothing was written";
      return;
    }
    perform(strategy, variable, write);
    const std::vector<double> expected = Model::copies(write);
    EXPECT_EQ(numbers(variable.components()), expected);
    const auto inside = strategy.run([&] { return variable.read_value(); });
    for (int r = 0; r < write.replicas; ++r) EXPECT_EQ(inside.at(r).item<double>(), expected[r]);
    const auto whole = Model::read(write, expected);
    if (whole) {
      EXPECT_DOUBLE_EQ(variable.value().item<double>(), *whole);
    } else {
      EXPECT_THROW(variable.value(), c10::ValueError);
    }
  }
};

TEST_F(VariableTest, WritesAndReadsAsTheRulesSay) {
  for (int replicas : {1, 2, 4}) {
    const MirroredStrategy strategy = mirrored(replicas);
    for (auto synchronization : kSynchronizations) {
      for (auto aggregation : kAggregations) {
        for (Where where : {Where::Replica, Where::Scope, Where::Outside, Where::Update}) {
          for (Op op : {Op::Assign, Op::Add, Op::Sub}) {
            for (Operand operand : {Operand::Number, Operand::Zero, Operand::Tensor, Operand::Own}) {
              SCOPED_TRACE(c10::str("replicas=", replicas, " ", synchronization, " ", aggregation,
                                    " where=", static_cast<int>(where), " op=", static_cast<int>(op),
                                    " operand=", static_cast<int>(operand)));
              expect_as_model(strategy, {replicas, synchronization, aggregation, where, op, operand});
            }
          }
        }
      }
    }
  }
}

TEST_F(VariableTest, OneDeviceHasPlainVariables) {
  const OneDeviceStrategy strategy("CPU:0");
  for (auto synchronization : {VariableSynchronization::None, VariableSynchronization::OnRead}) {
    const Variable variable =
        make(strategy, {.synchronization = synchronization, .aggregation = VariableAggregation::Mean},
             at::scalar_tensor(1, at::kInt));
    strategy.run([&] { variable.assign_add(2); });
    variable.assign_add(1);
    EXPECT_EQ(variable.value().item<int>(), 4);
    EXPECT_FALSE(variable.is_distributed());
  }
}

TEST_F(VariableTest, WhatCannotBeMade) {
  const MirroredStrategy strategy = mirrored(2);
  EXPECT_THROW(make(strategy, {.synchronization = VariableSynchronization::None}, scalar(1)), c10::ValueError);
  EXPECT_THROW(make(strategy, {.aggregation = VariableAggregation::Mean}, at::ones({}, at::kInt)), c10::ValueError);
  EXPECT_THROW(make(strategy, {.trainable = true, .synchronization = VariableSynchronization::OnRead}, scalar(1)),
               c10::ValueError);
  EXPECT_THROW(make(strategy, {.synchronization = VariableSynchronization::OnRead}, scalar(1)).assign(at::ones({2})),
               c10::ValueError);
}

TEST_F(VariableTest, OnlyWhatIsWrittenTogetherIsTrained) {
  const MirroredStrategy strategy = mirrored(2);
  EXPECT_TRUE(make(strategy, {}, scalar(1)).trainable());
  EXPECT_TRUE(make(strategy, {}, scalar(1)).components()[1].requires_grad());
  EXPECT_FALSE(make(strategy, {.synchronization = VariableSynchronization::OnRead}, scalar(1)).trainable());
  EXPECT_FALSE(make(strategy, {.trainable = false}, scalar(1)).components()[0].requires_grad());
  EXPECT_FALSE(make(strategy, {}, at::ones({}, at::kInt)).components()[0].requires_grad());
}

TEST_F(VariableTest, IntegerSumKeepsItsRemainder) {
  for (int replicas = 1; replicas <= kMaxReplicas; ++replicas) {
    const Variable variable =
        make(mirrored(replicas),
             {.synchronization = VariableSynchronization::OnRead, .aggregation = VariableAggregation::Sum},
             at::zeros({2}, at::kInt));
    for (int value : {7, -7, 0, 1}) {
      variable.assign(at::tensor({value, 2 * value}, at::kInt));
      EXPECT_TRUE(variable.value().equal(at::tensor({value, 2 * value}, at::kInt))) << "replicas=" << replicas;
      const int64_t spread = (variable.components().front() - variable.components().back()).max().item<int64_t>();
      EXPECT_LE(spread, 1) << "parts are as equal as they can be";
    }
  }
  const Variable two =
      make(mirrored(2), {.synchronization = VariableSynchronization::OnRead, .aggregation = VariableAggregation::Sum},
           at::zeros({}, at::kLong));
  EXPECT_EQ(numbers(two.assign(7).components()), (std::vector<double>{4, 3}));
}

TEST_F(VariableTest, BooleansAreNotAdded) {
  const MirroredStrategy strategy = mirrored(2);
  const Variable variable = make(strategy, {.aggregation = VariableAggregation::Sum}, at::zeros({}, at::kBool));
  EXPECT_THROW(strategy.run([&] { variable.assign(at::ones({}, at::kBool)); }), c10::Error);
  EXPECT_TRUE(variable.assign(true).value().item<bool>());
}

TEST_F(VariableTest, MadeInsideRunIsOneVariable) {
  const MirroredStrategy strategy = mirrored(3);
  const Variable variable = strategy.run([] { return Variable(scalar(replica_id() + 1), {.name = "w"}); });
  EXPECT_EQ(numbers(variable.components()), (std::vector<double>{1, 1, 1})) << "replica 0's start";
  EXPECT_TRUE(strategy.extended().variable_created_in_scope(variable));
  const auto mismatching = [] { return Variable(scalar(1), {.name = replica_id() == 0 ? "a" : "z"}); };
  EXPECT_THROW(strategy.run(mismatching), ContextError);
  const auto only_one = [] {
    if (replica_id() == 0) const Variable made(scalar(1));
  };
  EXPECT_THROW(strategy.run(only_one), CollectiveError);
}

TEST_F(VariableTest, CopiesStartEqualAndApart) {
  const Variable variable = make(mirrored(3), {}, at::randn({4}));
  EXPECT_TRUE(variable.components()[2].equal(variable.components()[0]));
  EXPECT_NE(variable.components()[2].data_ptr(), variable.components()[0].data_ptr());
}

TEST_F(VariableTest, PassesThroughRunWhole) {
  const MirroredStrategy strategy = mirrored(2);
  const Variable variable = make(strategy, {}, scalar(1));
  const Variable result = strategy.run(
      [&](const Variable& argument) {
        EXPECT_TRUE(argument.is_same(variable));
        EXPECT_TRUE(argument.handle().is_same(variable.components()[replica_id()]));
        return argument;
      },
      variable);
  EXPECT_TRUE(result.is_same(variable));
  const Scope scope = strategy.scope();
  EXPECT_THROW(variable.handle(), c10::ValueError);
}

TEST_F(VariableTest, ReadOnTheCurrentDevice) {
  const MirroredStrategy strategy = mirrored(2);
  const Variable variable = make(strategy, {}, scalar(1));
  strategy.run([&] { variable.assign(scalar(replica_id() + 1)); });  // aggregation NONE: the copies differ
  EXPECT_EQ(variable.value().item<double>(), 1);
  const DeviceScope device("CPU:1");
  EXPECT_EQ(variable.value().item<double>(), 2);
}

TEST_F(VariableTest, AnotherStrategysVariableIsOutOfReach) {
  const Variable variable = make(mirrored(2), {}, scalar(1));
  const MirroredStrategy other = mirrored(3);
  const Scope scope = other.scope();
  EXPECT_THROW(variable.value(), ContextError);
  EXPECT_THROW(variable.assign(1.0), ContextError);
}

TEST_F(VariableTest, SyncOnReadScopeCombinesInsideReplicas) {
  const MirroredStrategy strategy = mirrored(3);
  for (auto aggregation : kAggregations) {
    const Variable variable =
        make(strategy, {.synchronization = VariableSynchronization::OnRead, .aggregation = aggregation}, scalar(0));
    const auto read_together = [&] {
      variable.assign(scalar(replica_id() + 1));
      const SyncOnReadScope together;
      return variable.read_value();
    };
    if (aggregation == VariableAggregation::None) {
      EXPECT_THROW(strategy.run(read_together), c10::ValueError);
      continue;
    }
    const double expected = aggregation == VariableAggregation::Sum    ? 6
                            : aggregation == VariableAggregation::Mean ? 2
                                                                       : 1;
    for (const at::Tensor& value : strategy.run(read_together)) EXPECT_EQ(value.item<double>(), expected);
    EXPECT_EQ(strategy.run([&] { return variable.read_value(); })[2].item<double>(), 3) << "outside of it the own copy";
  }
}

TEST_F(VariableTest, GradientsReachTheOwnCopy) {
  const MirroredStrategy strategy = mirrored(2);
  const Variable variable = make(strategy, {}, scalar(3));
  strategy.run([&] { (variable * scalar(replica_id() + 1)).backward(); });
  EXPECT_EQ(variable.components()[0].grad().item<double>(), 1);
  EXPECT_EQ(variable.components()[1].grad().item<double>(), 2);
}

TEST_F(VariableTest, PrintsAsOnTheApiPages) {
  const auto printed = [](const Variable& variable) {
    std::ostringstream text;
    text << variable;
    return text.str();
  };
  const at::Tensor one = at::ones({});
  EXPECT_EQ(printed(make(mirrored(2), {.name = "v"}, one)),
            "MirroredVariable:{\n"
            "  0: <tf.Variable 'v:0' shape=() dtype=float32, numpy=1.0>,\n"
            "  1: <tf.Variable 'v/replica_1:0' shape=() dtype=float32, numpy=1.0>\n"
            "}");
  EXPECT_TRUE(printed(make(mirrored(1), {.synchronization = VariableSynchronization::OnRead}, one))
                  .starts_with("SyncOnReadVariable:{\n  0: <tf.Variable 'Variable:0'"));
  EXPECT_EQ(printed(Variable(one)), "<tf.Variable 'Variable:0' shape=() dtype=float32, numpy=1.0>");
}

}  // namespace
}  // namespace lockstep
