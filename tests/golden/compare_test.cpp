#include "tests/golden/compare.h"

#include <gtest/gtest.h>

namespace lockstep::golden {
namespace {

Json tensor(const char* dtype, Json data) {
  return {{"dtype", dtype}, {"shape", Json::array({data.size()})}, {"data", std::move(data)}};
}

bool equal(const Json& expected, const Json& actual) { return !mismatch(expected, actual); }

bool passes(const char* error_type, const char* message, const Outcome& outcome) {
  Case one;
  one.error_type = error_type;
  one.error_message = message;
  return !mismatch(one, outcome);
}

TEST(CompareTest, ToleranceFollowsTheDtype) {
  EXPECT_TRUE(equal(tensor("float32", {1.0}), tensor("float32", {1.0 + 5e-7})));
  EXPECT_FALSE(equal(tensor("float32", {1.0}), tensor("float32", {1.0 + 5e-6})));
  EXPECT_FALSE(equal(tensor("float64", {1.0}), tensor("float64", {1.0 + 5e-7})));
  EXPECT_TRUE(equal(tensor("float16", {1.0}), tensor("float16", {1.0005})));
  EXPECT_FALSE(equal(tensor("float16", {1.0}), tensor("float16", {1.005})));
  EXPECT_TRUE(equal(tensor("bfloat16", {1.0}), tensor("bfloat16", {1.005})));
  EXPECT_FALSE(equal(tensor("int32", {1000000000}), tensor("int32", {1000000001})));
}

TEST(CompareTest, DtypeShapeAndKindAreExact) {
  EXPECT_FALSE(equal(tensor("float32", {1.0}), tensor("float64", {1.0})));
  EXPECT_FALSE(equal(tensor("float32", {1.0}), tensor("float32", {1.0, 1.0})));
  EXPECT_FALSE(equal({{"dtype", "float32"}, {"shape", Json::array()}, {"data", {1.0}}}, tensor("float32", {1.0})));
  EXPECT_FALSE(equal(tensor("float32", {1.0}), 1.0));
  EXPECT_FALSE(equal({{"tuple", {1, 2}}}, Json::array({1, 2})));
  EXPECT_FALSE(equal({{"per_replica", {1}}}, {{"mirrored", {1}}}));
  EXPECT_FALSE(equal(true, 1));
  EXPECT_FALSE(equal(nullptr, 0));
}

TEST(CompareTest, KnowsNumbersThatJsonLacks) {
  EXPECT_TRUE(equal(tensor("float32", {"NaN", "Infinity"}), tensor("float32", {"NaN", "Infinity"})));
  EXPECT_FALSE(equal(tensor("float32", {"NaN"}), tensor("float32", {0.0})));
  EXPECT_FALSE(equal(tensor("float32", {"Infinity"}), tensor("float32", {"-Infinity"})));
}

TEST(CompareTest, SaysWhere) {
  const auto found = mismatch({{"dict", {{"a", {1, 2}}}}}, {{"dict", {{"a", {1, 3}}}}});
  EXPECT_EQ(found, "at .dict.a[1]: expected 2, got 3");
}

TEST(CompareTest, ErrorsAgreeByTheirKind) {
  EXPECT_TRUE(passes("ValueError", "", Outcome::of_error("ValueError", "[x] y")));
  EXPECT_TRUE(passes("RuntimeError", "", Outcome::of_error("ContextError", "[x] y")));
  EXPECT_FALSE(passes("ValueError", "", Outcome::of_error("NotImplementedError", "[x] y")));
  EXPECT_FALSE(passes("ValueError", "", Outcome::of_error("InternalError", "[x] y")));
  EXPECT_FALSE(passes("ValueError", "", Outcome::of_error("Harness", "x")));
  EXPECT_FALSE(passes("ValueError", "", Outcome::of_value(1)));
  EXPECT_TRUE(passes("ValueError", "", Outcome::does_not_compile("types")));
}

TEST(CompareTest, AccidentsTakeAnyClearError) {
  EXPECT_TRUE(passes("AttributeError", "", Outcome::of_error("NotImplementedError", "[x] y")));
  EXPECT_TRUE(passes("TypeError", "unhashable type: 'list'", Outcome::of_error("IndexError", "[x] y")));
  EXPECT_TRUE(passes("Crash", "", Outcome::of_error("std::exception", "[x] y")));
  EXPECT_FALSE(passes("Crash", "", Outcome::of_error("std::exception", "bad_alloc")));
  EXPECT_FALSE(passes("AttributeError", "", Outcome::of_error("InternalError", "[x] y")));
}

TEST(CompareTest, AValueIsNoErrorAndAnErrorNoValue) {
  Case one;
  one.out = 1;
  EXPECT_FALSE(mismatch(one, Outcome::of_value(1)));
  EXPECT_TRUE(mismatch(one, Outcome::of_value(2)));
  EXPECT_TRUE(mismatch(one, Outcome::of_error("ValueError", "[x] y")));
  EXPECT_TRUE(mismatch(one, Outcome::does_not_compile("types")));
}

}  // namespace
}  // namespace lockstep::golden
