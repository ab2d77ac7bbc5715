#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/xla/graph/emit.h"
#include "lockstep/xla/graph/mlir/types.h"
#include "lockstep/xla/graph/ops/build.h"
#include "lockstep/xla/graph/origin.h"
#include "lockstep/xla/graph/trace_difference.h"
#include "tests/cluster/expect_error.h"

namespace lockstep::xla {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kInf = std::numeric_limits<double>::infinity();

Value input(Ints shape, Dtype dtype = at::kFloat, LayoutPtr layout = nullptr) {
  auto data = std::make_unique<ArgumentData>();
  data->layout = layout;
  return argument(std::move(data), dtype, shape);
}

Value seed() { return integer(7, at::kLong, /*always_argument=*/true); }

Trace traced(const std::vector<Value>& values) {
  std::vector<Trace::Result> results;
  for (const Value& value : values) results.push_back({.value = value});
  return collect(std::move(results));
}

/// Numbers are constants but for those that never are.
EmitOptions options_for(const Trace& trace, int replicas = 1, int partitions = 1) {
  EmitOptions options{.replicas = replicas, .partitions = partitions, .number_is_argument = {}};
  for (const Node* number : trace.numbers) options.number_is_argument.push_back(number->always_argument);
  return options;
}

std::string text_of(const Trace& trace, int replicas = 1, int partitions = 1) {
  return emit(trace, options_for(trace, replicas, partitions));
}

std::string text_of(const Value& value, int replicas = 1, int partitions = 1) {
  return text_of(traced({value}), replicas, partitions);
}

TEST(GraphTest, ShapesBroadcastAsLibTorchDoes) {
  EXPECT_THAT(add(input({2, 3}), input({3}))->shape, ElementsAre(2, 3));
  EXPECT_THAT(add(input({4, 1}), input({1, 5}))->shape, ElementsAre(4, 5));
  EXPECT_THAT(compare(Comparison::LT, input({0, 1}), input({3}))->shape, ElementsAre(0, 3));
  EXPECT_THAT(select(input({2, 1}, at::kBool), input({3}), number(0, at::kFloat))->shape, ElementsAre(2, 3));
  EXPECT_EQ(compare(Comparison::LT, input({2}), input({2}))->dtype, at::kBool);
}

TEST(GraphTest, ShapesOfBuilders) {
  const Value a = input({2, 3, 4});
  EXPECT_THAT(transpose(a, {2, 0, 1})->shape, ElementsAre(4, 2, 3));
  EXPECT_THAT(slice(a, {0, 1, 0}, {2, 3, 1})->shape, ElementsAre(2, 2, 1));
  EXPECT_THAT(pad(a, 0, {0, -1, 2}, {1, 0, 0})->shape, ElementsAre(3, 2, 6));
  EXPECT_THAT(concatenate({a, input({2, 5, 4})}, 1)->shape, ElementsAre(2, 8, 4));
  EXPECT_THAT(sum(a, {2, 0})->shape, ElementsAre(3));
  EXPECT_THAT(sum(a, {2, 0}, true)->shape, ElementsAre(1, 3, 1));
  EXPECT_THAT(dot(a, input({2, 4, 5}), {0}, {0}, {2}, {1})->shape, ElementsAre(2, 3, 5));
  EXPECT_THAT(take(a, input({7, 6}, at::kLong), 1)->shape, ElementsAre(2, 7, 6, 4));
  EXPECT_THAT(all_gather(a, 5)->shape, ElementsAre(5, 2, 3, 4));
  EXPECT_THAT(random_uniform(seed(), at::kHalf, {2, 2})->shape, ElementsAre(2, 2));
  EXPECT_EQ(sort(a, 1, false).indices->dtype, at::kLong);
}

TEST(GraphTest, WhatChangesNothingIsTheOperand) {
  const Value a = input({2, 3});
  for (const Value& same : {reshape(a, {2, 3}), broadcast(a, {2, 3}), convert(a, at::kFloat), transpose(a, {0, 1}),
                            slice(a, {0, 0}, {2, 3}), pad(a, 1, {0, 0}, {0, 0}), reverse(a, {}),
                            reduce(Combiner::Add, a, {}), concatenate({a}, 0), annotate(a, nullptr)}) {
    EXPECT_EQ(same, a) << describe(*same);
  }
}

TEST(GraphTest, AddingZeroStaysWhereItChangesBits) {
  EXPECT_NE(plus(input({2}, at::kInt), 0)->op, Op::Argument) << "the number may be another one next time";
  EXPECT_NE(times(input({2}), 1)->op, Op::Argument);
}

TEST(GraphTest, CopiesOfOneNumberStayThat) {
  const Value moved = broadcast(reshape(fill(3, at::kFloat, {2, 3}), {6, 1}), {6, 4});
  EXPECT_EQ(moved->op, Op::Broadcast);
  EXPECT_EQ(moved->operands[0]->op, Op::Number);
}

TEST(GraphTest, IntegersAreExact) {
  const int64_t large = (int64_t{1} << 53) + 1;
  EXPECT_EQ(integer(large, at::kLong)->integer, large);
  EXPECT_EQ(fill_integer(large, at::kLong, {2})->operands[0]->integer, large);
  EXPECT_TRUE(is_number(integer(large - 1, at::kLong), std::ldexp(1.0, 53)));
  EXPECT_FALSE(is_number(integer(large, at::kLong), std::ldexp(1.0, 53)));
  EXPECT_EQ(convert(integer(large, at::kLong), at::kInt)->integer, 1);
}

TEST(GraphTest, NumbersAreWhatTheirDtypeHolds) {
  EXPECT_EQ(number(0.1, at::kFloat)->number, 0.1f);
  EXPECT_EQ(number(0.1, at::kDouble)->number, 0.1);
  EXPECT_EQ(number(1 + 1.0 / 4096, at::kHalf)->number, 1);
  EXPECT_EQ(number(0.5, at::kBool)->integer, 1);
  EXPECT_EQ(number(-2.7, at::kInt)->integer, -2);
  EXPECT_EQ(number(kInf, at::kLong)->integer, std::numeric_limits<int64_t>::max());
  EXPECT_EQ(integer(300, at::kByte)->integer, 44);
  EXPECT_EQ(convert(number(2.5, at::kFloat), at::kLong)->integer, 2);
}

TEST(GraphTest, NumbersThatAreAlwaysArgumentsAreNotFolded) {
  EXPECT_EQ(convert(seed(), at::kFloat)->op, Op::Convert);
  EXPECT_FALSE(is_number(seed(), 7));
}

TEST(GraphTest, ErrorsNameTheFunction) {
  const OriginGuard origin("aten::add");
  EXPECT_ERROR(add(input({2, 3}), input({4})), c10::ValueError, "[aten::add] shapes [2, 3] and [4] do not broadcast");
  EXPECT_ERROR(add(input({2}), input({2}, at::kInt)), c10::ValueError, "operands are of one dtype: Float and Int");
  EXPECT_ERROR(reshape(input({2, 3}), {5}), c10::ValueError, "shape=[2, 3], asked for [5]");
  EXPECT_ERROR(slice(input({4}), {1}, {5}), c10::ValueError, "begin=[1], end=[5], shape=[4]");
  EXPECT_ERROR(transpose(input({2, 3}), {0, 0}), c10::ValueError, "names each dimension once: [0, 0]");
  EXPECT_ERROR(sum(input({2}), {1}), c10::ValueError, "dim=1, shape=[2]");
  EXPECT_ERROR(dot(input({2, 3}), input({2, 3}), {}, {}, {1}, {0}), c10::ValueError, "contracted");
  EXPECT_ERROR(scatter(Combiner::Add, input({2, 3}), input({4}, at::kLong), input({4, 2})), c10::ValueError,
               "expected [4, 3]");
  EXPECT_ERROR(mlir_type(at::kComplexFloat), c10::TypeError, "ComplexFloat");
}

TEST(GraphTest, WindowsHaveAsManyPositionsAsTheResult) {
  const Window window{.size = {2}, .stride = {2}, .low = {1}, .high = {0}, .dilation = {}};
  EXPECT_THAT(reduce_window(Combiner::Maximum, input({5}), -kInf, window, {3})->shape, ElementsAre(3));
  EXPECT_ERROR(reduce_window(Combiner::Maximum, input({5}), -kInf, window, {2}), c10::ValueError, "has [3] positions");
  const Window wide{.size = {2}, .stride = {1}, .low = {0}, .high = {0}, .dilation = {3}};
  EXPECT_THAT(reduce_window(Combiner::Add, input({5}), 0, wide, {2})->shape, ElementsAre(2));
}

TEST(GraphTest, DescribesWhatWasTraced) {
  const OriginGuard origin("aten::exp");
  EXPECT_EQ(describe(*unary(UnaryOp::Exponential, input({4}))),
            "unary exponential -> tensor<4xf32> (traced from aten::exp)");
}

TEST(GraphTest, LongChainsAreReleasedWithoutRecursion) {
  struct Watched : ArgumentData {
    explicit Watched(bool* gone) : gone(gone) {}
    ~Watched() override { *gone = true; }
    bool* gone;
  };
  bool gone = false;
  Value chain = argument(std::make_unique<Watched>(&gone), at::kFloat, {1});
  for (int i = 0; i < 1'000'000; ++i) chain = unary(UnaryOp::Negate, std::move(chain));
  chain.reset();
  EXPECT_TRUE(gone);
}

TEST(TraceTest, OperandsComeBeforeTheirUse) {
  const Value a = input({2}), b = unary(UnaryOp::Negate, a);
  const Trace trace = traced({add(b, a), b});
  ASSERT_EQ(trace.nodes.size(), 3u);
  EXPECT_EQ(trace.nodes[0], a.get());
  EXPECT_EQ(trace.nodes[1], b.get());
  EXPECT_THAT(trace.arguments, ElementsAre(a.get()));
}

Value step(int64_t batch, double rate, UnaryOp activation) {
  const Value hidden = unary(activation, dot(input({batch, 4}), input({4, 3}), {}, {}, {1}, {0}));
  return times(sum(slice(hidden, {0, 1}, {batch, 3}), {0}), rate);
}

TEST(TraceTest, EqualComputationsHaveEqualKeys) {
  const Trace first = traced({step(8, 0.1, UnaryOp::Tanh)}), second = traced({step(8, 0.2, UnaryOp::Tanh)});
  EXPECT_EQ(first.key, second.key) << "the values of numbers are no part of it";
  EXPECT_EQ(first.hash, second.hash);
  EXPECT_EQ(first.skeleton, second.skeleton);
  EXPECT_FALSE(first_difference(first, second));
}

TEST(TraceTest, OtherSizesHaveTheSameSkeleton) {
  const Trace first = traced({step(8, 0.1, UnaryOp::Tanh)}), second = traced({step(16, 0.1, UnaryOp::Tanh)});
  EXPECT_NE(first.key, second.key);
  EXPECT_EQ(first.skeleton, second.skeleton);
  const auto difference = first_difference(first, second);
  ASSERT_TRUE(difference);
  EXPECT_TRUE(difference->sizes_only);
  EXPECT_EQ(difference->position, 0u);
  EXPECT_EQ(difference->first, "argument -> tensor<8x4xf32>");
  EXPECT_EQ(difference->second, "argument -> tensor<16x4xf32>");
}

TEST(TraceTest, OtherOperationsAreNamed) {
  const Trace first = traced({step(8, 0.1, UnaryOp::Tanh)}), second = traced({step(16, 0.1, UnaryOp::Logistic)});
  EXPECT_NE(first.skeleton, second.skeleton);
  const auto difference = first_difference(first, second);
  ASSERT_TRUE(difference);
  EXPECT_FALSE(difference->sizes_only);
  EXPECT_EQ(difference->position, 3u);
  EXPECT_EQ(difference->first, "unary tanh -> tensor<8x3xf32>");
  EXPECT_EQ(difference->second, "unary logistic -> tensor<16x3xf32>");
}

TEST(TraceTest, AShorterTraceEndsInNothing) {
  const Trace first = traced({unary(UnaryOp::Tanh, input({2}))}),
              second = traced({unary(UnaryOp::Tanh, unary(UnaryOp::Tanh, input({2})))});
  const auto difference = first_difference(first, second);
  ASSERT_TRUE(difference);
  EXPECT_EQ(difference->position, 2u);
  EXPECT_EQ(difference->first, "nothing");
  EXPECT_EQ(difference->second, "unary tanh -> tensor<2xf32>");
}

TEST(TraceTest, WhatAKeyTellsApart) {
  const auto key = [](const Value& value) { return traced({value}).key; };
  const Value a = input({4, 4});
  EXPECT_NE(key(pad(a, 0, {1, 0}, {0, 0})), key(pad(a, 1, {1, 0}, {0, 0})));
  EXPECT_NE(key(sort(a, 0, true).values), key(sort(a, 0, false).values));
  EXPECT_NE(key(integer(1, at::kLong)), key(integer(1, at::kLong, true)));
  EXPECT_NE(key(input({4})), key(input({4}, at::kFloat, tiled_layout({2}))));
  EXPECT_NE(key(annotate(a, tiled_layout({2, 1}))), key(annotate(a, tiled_layout({1, 2}))));
  const Window window{.size = {2, 2}, .stride = {2, 2}, .low = {0, 0}, .high = {0, 0}, .dilation = {}};
  EXPECT_NE(key(reduce_window(Combiner::Add, a, 0, window, {2, 2})),
            key(reduce_window(Combiner::Add, a, 1, window, {2, 2})));
  const Value b = unary(UnaryOp::Negate, a), c = unary(UnaryOp::Exponential, a);
  EXPECT_NE(traced({b, c}).key, traced({c, b}).key);
  EXPECT_NE(collect({{.value = b}}).key, collect({{.value = b, .layout = replicated_layout()}}).key);
}

TEST(TraceTest, TheDifferenceMayBeInTheResults) {
  const Value a = input({2}), b = unary(UnaryOp::Negate, a), c = unary(UnaryOp::Tanh, b);
  const Trace one = traced({c}), two = traced({c, b});
  const auto difference = first_difference(one, two);
  ASSERT_TRUE(difference);
  EXPECT_FALSE(difference->sizes_only);
  EXPECT_EQ(difference->first, "nothing");
  EXPECT_EQ(difference->second, "result 1: unary negate -> tensor<2xf32>");
}

TEST(TraceTest, CollectivesNeedOthers) {
  const Value a = input({2});
  EXPECT_FALSE(traced({unary(UnaryOp::Negate, a)}).needs_others);
  EXPECT_TRUE(traced({unary(UnaryOp::Negate, all_reduce(Combiner::Add, a, 2))}).needs_others);
  EXPECT_TRUE(traced({all_gather(a, 2)}).needs_others);
}

TEST(TraceTest, StoragesTakeOverTheMemoryOfWhatTheyHeld) {
  const Value weight = input({4}), read = input({4}), other_shape = input({2}), laid_out = input({4});
  read->owners = 1;
  const Value updated = unary(UnaryOp::Negate, weight);
  const Trace trace = collect({
      {.value = add(updated, read), .layout = nullptr, .before = read.get()},
      {.value = updated, .layout = nullptr, .before = weight.get()},
      {.value = add(updated, sum(other_shape, {0})), .layout = nullptr, .before = other_shape.get()},
      {.value = unary(UnaryOp::Tanh, laid_out), .layout = tiled_layout({2}), .before = laid_out.get()},
  });
  EXPECT_THAT(trace.arguments, ElementsAre(weight.get(), read.get(), other_shape.get(), laid_out.get()));
  EXPECT_THAT(trace.donated_to, ElementsAre(1, -1, -1, -1));
  EXPECT_THAT(text_of(trace, 1, 2), HasSubstr("tf.aliasing_output = 1 : i32}, %p1"));
}

TEST(TraceTest, NumberBits) {
  EXPECT_NE(number_bits(*number(0.0, at::kFloat)), number_bits(*number(-0.0, at::kFloat)));
  EXPECT_EQ(number_bits(*integer(-1, at::kLong)), ~uint64_t{0});
}

TEST(LayoutTest, EqualLayoutsAreOneObject) {
  EXPECT_EQ(tiled_layout({2, 1}), tiled_layout({2, 1}));
  EXPECT_NE(tiled_layout({2, 1}), tiled_layout({1, 2}));
  EXPECT_EQ(assigned_layout(1), assigned_layout(1));
  EXPECT_FALSE(is_tiled(replicated_layout()));
  EXPECT_ERROR(tiled_layout({0}), c10::ValueError, "tiles=[0]");
}

TEST(EmitTest, ASmallProgram) {
  EXPECT_EQ(text_of(times(add(input({2, 3}), input({3})), 0.5)),
            R"(module @step attributes {mhlo.num_replicas = 1 : i32, mhlo.num_partitions = 1 : i32} {
func.func @main(%p0: tensor<2x3xf32>, %p1: tensor<3xf32>) -> (tensor<2x3xf32>) {
%n2 = stablehlo.broadcast_in_dim %p1, dims = [1] : (tensor<3xf32>) -> tensor<2x3xf32>
%n3 = stablehlo.add %p0, %n2 : tensor<2x3xf32>
%n4 = stablehlo.constant dense<0x3F000000> : tensor<f32>
%n5 = stablehlo.broadcast_in_dim %n4, dims = [] : (tensor<f32>) -> tensor<2x3xf32>
%n6 = stablehlo.multiply %n3, %n5 : tensor<2x3xf32>
return %n6 : tensor<2x3xf32>
}
}
)");
}

TEST(EmitTest, NumbersMayBeArguments) {
  const Trace trace =
      traced({number(0.1, at::kFloat), number(0.2, at::kDouble), integer(3, at::kInt), number(1, at::kHalf)});
  EmitOptions options;
  options.number_is_argument = {1, 1, 1, 0};
  const std::string text = emit(trace, options);
  EXPECT_THAT(text, HasSubstr("@main(%floats: tensor<2xf64>, %integers: tensor<1xi64>)"));
  EXPECT_THAT(text, HasSubstr("%n1_part = stablehlo.slice %floats [1:2] : (tensor<2xf64>) -> tensor<1xf64>"));
  EXPECT_THAT(text, HasSubstr("%n2 = stablehlo.convert %n2_wide : (tensor<i64>) -> tensor<i32>"));
  EXPECT_THAT(text, HasSubstr("%n3 = stablehlo.constant dense<0x3C00> : tensor<f16>"));
}

TEST(EmitTest, LiteralsOfAllDtypes) {
  const auto literal = [](const Value& number) {
    const std::string text = text_of(number);
    const size_t begin = text.find("dense<") + 6;
    return text.substr(begin, text.find('>', begin) - begin);
  };
  EXPECT_EQ(literal(number(kInf, at::kFloat)), "0x7F800000");
  EXPECT_EQ(literal(number(-kInf, at::kDouble)), "0xFFF0000000000000");
  EXPECT_EQ(literal(number(std::nan(""), at::kBFloat16)), "0x7FC0");
  EXPECT_EQ(literal(integer(std::numeric_limits<int64_t>::min(), at::kLong)), "-9223372036854775808");
  EXPECT_EQ(literal(integer(-1, at::kByte)), "255");
  EXPECT_EQ(literal(integer(5, at::kBool)), "true");
}

TEST(EmitTest, OutsideOfIntegersLiesTheEndOfTheirRange) {
  EXPECT_THAT(text_of(pad(input({2}, at::kInt), -kInf, {1}, {0})), HasSubstr("dense<-2147483648> : tensor<i32>"));
  EXPECT_THAT(text_of(reduce(Combiner::Minimum, input({2}, at::kLong), {0})), HasSubstr("dense<9223372036854775807>"));
}

TEST(EmitTest, ProductsAreExactIfAskedFor) {
  const Trace trace = traced({dot(input({2, 3}), input({3, 4}), {}, {}, {1}, {0})});
  EmitOptions options;
  EXPECT_THAT(emit(trace, options), HasSubstr("contracting_dims = [1] x [0], precision = [HIGHEST, HIGHEST] :"));
  options.full_precision = false;
  EXPECT_THAT(emit(trace, options), Not(HasSubstr("precision")));
}

TEST(EmitTest, LayoutsArePartsOfOneAxis) {
  const Value a = input({4, 6}, at::kFloat, tiled_layout({3, 2}));
  const Value whole = annotate(unary(UnaryOp::Negate, a), replicated_layout());
  const std::string text = text_of(annotate(whole, tiled_layout({1, 6})), 1, 6);
  EXPECT_THAT(text, HasSubstr("sdy.mesh @mesh = <[\"x\"=6]>"));
  EXPECT_THAT(text, HasSubstr("sdy.sharding = #sdy.sharding<@mesh, [{\"x\":(1)3}, {\"x\":(3)2}]>"));
  EXPECT_THAT(text, HasSubstr("sdy.sharding_constraint %n1 <@mesh, [{}, {}]> : tensor<4x6xf32>"));
  EXPECT_THAT(text, HasSubstr("sdy.sharding_constraint %n2 <@mesh, [{}, {\"x\"}]> : tensor<4x6xf32>"));
}

TEST(EmitTest, LayoutsMeanNothingOnOneLogicalDevice) {
  const Value a = input({4});
  EXPECT_THAT(text_of(unary(UnaryOp::Negate, annotate(a, assigned_layout(0)))), Not(HasSubstr("sdy")));
}

TEST(EmitTest, LayoutsMustFitTheLogicalDevices) {
  EXPECT_ERROR(text_of(annotate(input({4}), tiled_layout({2})), 1, 4), c10::ValueError, "tiles=[2], logical devices=4");
  EXPECT_ERROR(annotate(input({4}), tiled_layout({2, 2})), c10::ValueError, "tiles=[2, 2], shape=[4]");
}

TEST(EmitTest, ReplicasOfSeveralPartitionsAreAnAxisOfTheMesh) {
  const Value a = input({4, 4}, at::kFloat, tiled_layout({2, 1}));
  const Trace trace = collect({{.value = all_reduce(Combiner::Add, a, 3), .layout = tiled_layout({1, 2})}});
  const std::string text = text_of(trace, 3, 2);
  EXPECT_THAT(text, HasSubstr("mhlo.num_replicas = 1 : i32, mhlo.num_partitions = 6 : i32"));
  EXPECT_THAT(text, HasSubstr("sdy.mesh @mesh = <[\"replica\"=3, \"x\"=2]>"));
  EXPECT_THAT(text,
              HasSubstr("sdy.manual_computation(%p0) in_shardings=[<@mesh, [{\"x\"}, {}]>] "
                        "out_shardings=[<@mesh, [{}, {\"x\"}]>] manual_axes={\"replica\"} (%p0_own: tensor<4x4xf32>)"));
  EXPECT_THAT(text, HasSubstr("replica_groups = dense<[[0, 2, 4], [1, 3, 5]]> : tensor<2x3xi64>"));
  EXPECT_THAT(text_of(trace, 1, 2), Not(HasSubstr("replica\"")));
  EXPECT_THAT(text_of(unary(UnaryOp::Negate, input({4})), 3, 1), Not(HasSubstr("sdy")));
}

TEST(EmitTest, CollectivesHaveOneGroupOfAllReplicas) {
  const Value a = input({2});
  EXPECT_THAT(text_of(all_reduce(Combiner::Maximum, a, 3), 3),
              HasSubstr("\"stablehlo.all_reduce\"(%p0) <{replica_groups = dense<[[0, 1, 2]]> : tensor<1x3xi64>}>"));
  EXPECT_THAT(text_of(all_gather(a, 2), 2), HasSubstr("(tensor<1x2xf32>) -> tensor<2x2xf32>"));
}

}  // namespace
}  // namespace lockstep::xla
