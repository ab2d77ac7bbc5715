// The state of tables that are updated by rows, where it is stored in another way than it is saved.

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/adagrad.h>
#include <torch/types.h>

#include "lockstep/lockstep.h"
#include "tests/conformance/strategies.h"

namespace lockstep::conformance {
namespace {

using ::testing::HasSubstr;

/// A table. One that is not contiguous is not updated by rows, as one on a GPU.
struct RowTableImpl : torch::nn::Module {
  RowTableImpl(at::ScalarType dtype, bool by_rows) {
    table = register_parameter("table", by_rows ? torch::zeros({6, 4}, dtype) : torch::zeros({4, 6}, dtype).t());
  }
  torch::Tensor table;
};
TORCH_MODULE(RowTable);

class StateRows : public ::testing::Test {
 protected:
  StateRows() : strategy(mirrored("CPU", 2, at::kCPU).make()), scope(strategy.scope()) {}

  auto adagrad(at::ScalarType dtype, bool by_rows, double start = 0) const {
    const auto model = module<RowTable>(dtype, by_rows);
    return optimizer<torch::optim::Adagrad>(model, torch::optim::AdagradOptions(0.1).initial_accumulator_value(start));
  }

  /// The state of an optimizer with these sums.
  template <class O>
  static State state_with(const O& adagrad, const torch::Tensor& sum, bool by_rows = true) {
    State state = adagrad.state();
    state.set("table.sum", sum);
    state.set("table.step", 3);
    if (by_rows) state.set("table.rows", true);
    return state;
  }

  Strategy strategy;
  decltype(strategy.scope()) scope;
  torch::Tensor sum = torch::rand({6, 4}) + 0.1;
};

TEST_F(StateRows, NarrowTablesTakeTheWideStateOfRowsAndBack) {
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    const auto whole = adagrad(dtype, false);
    ASSERT_TRUE(whole.load_state(state_with(whole, sum)).complete());
    const State narrow = whole.state();
    EXPECT_EQ(narrow.tensor("table.sum").dtype, dtype);
    EXPECT_TRUE(torch::equal(narrow.tensor("table.sum").read(), sum.to(dtype)));
    EXPECT_TRUE(narrow.flag("table.rows"));

    const auto rows = adagrad(dtype, true);
    ASSERT_TRUE(rows.load_state(narrow).complete());
    EXPECT_EQ(rows.state().tensor("table.sum").dtype, at::kFloat);
    EXPECT_TRUE(torch::equal(rows.state().tensor("table.sum").read(), sum.to(dtype).to(at::kFloat)));
    EXPECT_EQ(rows.state().integer("table.step"), 3);

    ASSERT_TRUE(rows.load_state(state_with(rows, sum)).complete());
    EXPECT_TRUE(torch::equal(rows.state().tensor("table.sum").read(), sum));
  }
}

TEST_F(StateRows, OtherDtypesAreRefused) {
  const auto whole = adagrad(at::kBFloat16, false);
  const auto error_of = [&](const State& state) {
    try {
      whole.load_state(state);
    } catch (const c10::ValueError& error) {
      return std::string(error.what_without_backtrace());
    }
    return std::string();
  };
  EXPECT_THAT(error_of(state_with(whole, sum.to(at::kDouble))), HasSubstr("float64 in the state"));
  EXPECT_THAT(error_of(state_with(whole, sum.to(at::kHalf))), HasSubstr("float16 in the state"));
  EXPECT_THAT(error_of(state_with(whole, sum, false)), HasSubstr("float32 in the state, bfloat16 of the object"));
}

TEST_F(StateRows, AStartValueNeedsNoCopyOfTheTable) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const auto rows = adagrad(dtype, true, 0.3);
    const torch::Tensor values = sum.to(dtype == at::kDouble ? at::kDouble : at::kFloat);
    ASSERT_TRUE(rows.load_state(state_with(rows, values)).complete());
    const State first = rows.state();
    const State second = rows.state();
    const StatePiece& piece = first.tensor("table.sum").pieces.at(0);
    EXPECT_NE(piece.flipped, 0U);
    EXPECT_EQ(piece.values.data_ptr(), second.tensor("table.sum").pieces.at(0).values.data_ptr());
    EXPECT_TRUE(torch::equal(first.tensor("table.sum").read(), values));
    const auto other = adagrad(dtype, true, 0.3);
    ASSERT_TRUE(other.load_state(first).complete());
    EXPECT_TRUE(torch::equal(other.state().tensor("table.sum").read(), values));
    EXPECT_TRUE(torch::equal(first.tensor("table.sum").read(), values));
  }
}

}  // namespace
}  // namespace lockstep::conformance
