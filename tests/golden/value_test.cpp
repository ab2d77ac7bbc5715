#include "tests/golden/value.h"

#include <gtest/gtest.h>

#include "tests/golden/tensors.h"

namespace lockstep::golden {
namespace {

void expect_round_trip(const char* text) {
  const Json json = Json::parse(text);
  EXPECT_EQ(to_json(value_from_json(json)), json) << text;
}

TEST(ValueTest, ReadsAndWritesEveryNotation) {
  for (const char* text :
       {"null", "true", "3", "2.5", "\"a\"", "[1, [2, null]]", R"({"tuple": [1, {"tuple": []}]})",
        R"({"dict": {"a": 1, "b": {"dict": {}}}})", R"({"per_replica": [1, 2.5]})", R"({"mirrored": ["a", "a"]})",
        R"({"dtype": "float32", "shape": [2, 2], "data": [1.0, "NaN", "Infinity", -0.5]})",
        R"({"dtype": "bfloat16", "shape": [], "data": [3.0]})",
        R"({"dtype": "bool", "shape": [2], "data": [true, false]})",
        R"({"dtype": "int64", "shape": [0, 2], "data": []})",
        R"({"dtype": "complex64", "shape": [1], "data": [[1.0, -2.0]]})",
        R"({"variable": [{"dtype": "float16", "shape": [1], "data": [0.5]}]})",
        R"({"slices": {"indices": {"dtype": "int32", "shape": [1], "data": [1]},
            "values": {"dtype": "float32", "shape": [1, 2], "data": [1.0, 2.0]}, "dense_shape": [5, 2]}})"}) {
    expect_round_trip(text);
  }
}

TEST(ValueTest, MakesTensorsOfNestedLists) {
  EXPECT_EQ(to_json(tensor_from_json("float32", Json::parse("[[1, 2], [3, 4]]"))),
            Json::parse(R"({"dtype": "float32", "shape": [2, 2], "data": [1.0, 2.0, 3.0, 4.0]})"));
  EXPECT_EQ(to_json(tensor_from_json("int32", 7)), Json::parse(R"({"dtype": "int32", "shape": [], "data": [7]})"));
  EXPECT_EQ(to_json(tensor_from_json("float32", Json::parse("[[], []]")))["shape"], Json::parse("[2, 0]"));
  EXPECT_THROW(tensor_from_json("string", "a"), DoesNotCompile);
}

TEST(ValueTest, RefusesUnknownNotations) {
  EXPECT_THROW(value_from_json(Json::parse(R"({"copies": [1]})")), HarnessError);
  EXPECT_THROW(value_from_json(1).as<bool>(), HarnessError);
}

}  // namespace
}  // namespace lockstep::golden
