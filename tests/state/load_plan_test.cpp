#include "lockstep/state/load_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.h"

namespace lockstep::tests {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(LoadPlan, ReadsIntoMemoryAndThenCallsTheRest) {
  State state;
  state.set("model.weight", at::arange(6, at::kFloat).view({2, 3}));
  state.set("model.steps", 4);
  at::Tensor weight = at::zeros({2, 3});
  bool read_before = false;
  detail::LoadPlan plan(state);
  auto part = plan.all().below("model");
  part.after([&] { read_before = weight[1][2].item<float>() == 5.0F; });
  part.read("weight", weight);
  EXPECT_EQ(part.integer_or("steps", 0), 4);
  EXPECT_TRUE(plan.execute({}).complete());
  EXPECT_TRUE(read_before);
}

TEST(LoadPlan, FillsATensorThatIsNotContiguous) {
  State state;
  state.set("x", at::arange(6, at::kFloat).view({2, 3}));
  at::Tensor x = at::zeros({3, 2}).t();
  detail::LoadPlan plan(state);
  plan.all().read("x", x);
  plan.execute({});
  EXPECT_TRUE(x.equal(at::arange(6, at::kFloat).view({2, 3})));
}

TEST(LoadPlan, ListsEverythingAndChangesNothing) {
  State state;
  state.set("good", at::ones({2}));
  state.set("shape", at::ones({3, 4}));
  state.set("dtype", at::ones({2}, at::kDouble));
  state.set("kind", 3);
  state.set("extra", 3);
  at::Tensor good = at::zeros({2});
  detail::LoadPlan plan(state);
  auto part = plan.all();
  part.read("good", good);
  part.read("shape", at::zeros({3, 5}));
  part.read("dtype", at::zeros({2}));
  part.read("kind", at::zeros({2}));
  part.read("lost", at::zeros({2}));
  const std::string message = message_of<c10::ValueError>([&] { plan.execute({}); });
  EXPECT_THAT(message, HasSubstr("shape: shape [3, 4] in the state, [3, 5] of the object"));
  EXPECT_THAT(message, HasSubstr("dtype: float64 in the state, float32 of the object"));
  EXPECT_THAT(message, HasSubstr("kind: integer in the state, tensor of the object"));
  EXPECT_TRUE(good.equal(at::zeros({2})));

  const LoadResult result = plan.execute({.strict = false});
  EXPECT_THAT(result.missing, ElementsAre("lost"));
  EXPECT_THAT(result.unexpected, ElementsAre("extra"));
  EXPECT_EQ(result.unfitting.size(), 3U);
  EXPECT_TRUE(good.equal(at::ones({2})));
}

TEST(LoadPlan, NumbersHaveTheirTypes) {
  State state;
  state.set("integer", 3);
  state.set("number", 0.5);
  state.set("text", "words");
  detail::LoadPlan plan(state);
  auto part = plan.all();
  EXPECT_EQ(part.number_or("integer", 0), 3.0);
  EXPECT_EQ(part.number_or("number", 0), 0.5);
  EXPECT_EQ(part.text_or("text", ""), "words");
  EXPECT_TRUE(plan.problems().complete());
  EXPECT_EQ(part.integer_or("number", -1), -1);
  EXPECT_EQ(part.integer_or("absent", -2), -2);
  EXPECT_EQ(plan.problems().unfitting.size(), 1U);
  EXPECT_THAT(plan.problems().missing, ElementsAre("absent"));
}

}  // namespace
}  // namespace lockstep::tests
