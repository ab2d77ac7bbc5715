#include "lockstep/state/state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/state/flip_bits.h"
#include "lockstep/state/load_plan.h"
#include "tests/support/message_of.h"

namespace lockstep::tests {
namespace {

using ::testing::HasSubstr;

State example_state() {
  State state;
  state.set("first.weight", at::arange(6, at::kFloat).view({2, 3}));
  state.set("first.steps", 7);
  state.set("first.rate", 0.5);
  state.set("second.name", "text");
  state.set("second.on", true);
  return state;
}

TEST(State, ReturnsWhatWasSet) {
  const State state = example_state();
  EXPECT_EQ(state.size(), 5U);
  EXPECT_TRUE(state.tensor("first.weight").read().equal(at::arange(6, at::kFloat).view({2, 3})));
  EXPECT_EQ(state.integer("first.steps"), 7);
  EXPECT_EQ(state.number("first.rate"), 0.5);
  EXPECT_EQ(state.number("first.steps"), 7.0);
  EXPECT_EQ(state.text("second.name"), "text");
  EXPECT_TRUE(state.flag("second.on"));
  EXPECT_EQ(state.find("third"), nullptr);
}

TEST(State, ErrorsNameWhatThereIs) {
  const State state = example_state();
  EXPECT_THAT(message_of<c10::ValueError>([&] { state.tensor("first.bias"); }), HasSubstr("first.weight"));
  EXPECT_THAT(message_of<c10::ValueError>([&] { state.tensor("first.steps"); }),
              HasSubstr("must be a tensor: name=first.steps is an integer"));
  EXPECT_THROW(State().set("", 1), c10::ValueError);
}

TEST(State, BelowAndAddAreInverse) {
  const State state = example_state();
  State again;
  again.add("first", state.below("first"));
  again.add("second", state.below("second"));
  EXPECT_EQ(again.size(), state.size());
  EXPECT_TRUE(again.has("first.weight"));
  EXPECT_TRUE(state.below("fir").empty());
}

TEST(State, TensorIsTheMemoryItself) {
  at::Tensor values = at::zeros({4});
  State state;
  state.set("x", values);
  values.fill_(3);
  EXPECT_TRUE(state.tensor("x").read().equal(at::full({4}, 3.0F)));
}

TEST(State, TensorThatIsNotContiguousHasItsValues) {
  const at::Tensor values = at::arange(6).view({2, 3}).t();
  EXPECT_TRUE(StateTensor(values).read().equal(values));
}

TEST(State, PiecesMustCoverTheTensorOnce) {
  StateTensor tensor;
  tensor.sizes = {4};
  tensor.pieces = {{0, at::zeros({2})}};
  EXPECT_THAT(message_of<c10::ValueError>([&] { tensor.read(); }), HasSubstr("wrong from element 2"));
  tensor.pieces = {{0, at::zeros({2})}, {1, at::zeros({3})}};
  EXPECT_THROW(tensor.read(), c10::ValueError);
  tensor.pieces = {{0, at::zeros({2})}, {2, at::ones({2})}};
  EXPECT_TRUE(tensor.read().equal(at::tensor({0.0F, 0.0F, 1.0F, 1.0F})));
}

TEST(State, FlippedBitsAreValuesForReaders) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    const at::Tensor values = at::randn({7}).to(dtype);
    const at::Tensor stored = values.clone();
    const uint64_t bits = dtype == at::kFloat ? 0x3dcccccdU : 0x3fb999999999999aU;
    detail::flip_bits(stored, bits);
    EXPECT_FALSE(stored.equal(values));
    StateTensor tensor(stored);
    tensor.pieces[0].flipped = bits;
    EXPECT_TRUE(tensor.read().equal(values));
    const at::Tensor part = at::empty({3}, dtype);
    detail::read_tensors({{&tensor, {{2, part}}}});
    EXPECT_TRUE(part.equal(values.slice(0, 2, 5)));
    // The memory is the object's own.
    EXPECT_EQ(tensor.pieces[0].values.data_ptr(), stored.data_ptr());
  }
}

TEST(State, WhatOthersHoldIsGathered) {
  StateTensor tensor;
  tensor.sizes = {2};
  tensor.gather = [] { return at::ones({2}); };
  EXPECT_TRUE(tensor.read().equal(at::ones({2})));
}

}  // namespace
}  // namespace lockstep::tests
