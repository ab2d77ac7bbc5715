#include <ATen/ops/full.h>
#include <gmock/gmock.h>

#include "tests/data/pipelines.h"

namespace lockstep::data {
namespace {

using namespace tests;  // NOLINT
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// The number i, i times.
Dataset<at::Tensor> ragged(int64_t n) {
  return range(n).map([](int64_t i) { return at::full({i}, i, at::kLong); });
}

TEST(PaddedBatchTest, PadsToTheLargest) {
  EXPECT_THAT(all_of(ragged(4).padded_batch(2)), ElementsAre("[2, 1]{0 1}", "[2, 3]{2 2 0 3 3 3}"));
  EXPECT_THAT(all_of(ragged(3).padded_batch(3, {.padding_values = {-1}})), ElementsAre("[3, 2]{-1 -1 1 -1 2 2}"));
  EXPECT_THAT(all_of(ragged(3).padded_batch(2, {.padded_shapes = {PartialShape{3}}})),
              ElementsAre("[2, 3]{0 0 0 1 0 0}", "[1, 3]{2 2 0}"));
}

TEST(PaddedBatchTest, PadsEveryDimension) {
  const auto squares = range(1, 3).map([](int64_t i) { return at::full({i, 3 - i, 2}, i, at::kFloat); });
  EXPECT_THAT(all_of(squares.padded_batch(2, {.padding_values = {9}})),
              ElementsAre("[2, 2, 2, 2]{1 1 1 1 9 9 9 9 2 2 9 9 2 2 9 9}"));
}

TEST(PaddedBatchTest, TakesAllSizesAndRemainders) {
  for (const int64_t rows : {0, 1, 5, 6}) {
    for (const int64_t size : {1, 2, 3, 9}) {
      for (const bool drop : {false, true}) {
        expect_well_behaved(ragged(rows).padded_batch(size, {.drop_remainder = drop}));
        EXPECT_EQ(all_of(range(rows).padded_batch(size, {.drop_remainder = drop})),
                  all_of(range(rows).batch(size, {.drop_remainder = drop})));
      }
    }
  }
}

TEST(PaddedBatchTest, TextsBecomeLists) {
  const auto pairs = range(3).map([](int64_t i) { return std::tuple{at::full({i}, i, at::kLong), std::to_string(i)}; });
  EXPECT_THAT(all_of(pairs.padded_batch(3, {.padding_values = {5, 0}})),
              ElementsAre("[3, 2]{5 5 1 5 2 2}, list b'0' b'1' b'2'"));
}

TEST(PaddedBatchTest, KnowsWhatComesOut) {
  const auto batched = range(5).map([](int64_t i) { return at::full({2}, i, at::kLong); }).padded_batch(2);
  EXPECT_EQ(str(batched.element_spec()), "TensorSpec(shape=(None, 2), dtype=int64)");
  EXPECT_EQ(detail::node_of(batched)->batch_size(), 2);
  EXPECT_EQ(batched.cardinality(), Cardinality::exactly(3));
}

TEST(PaddedBatchTest, SaysWhatDoesNotFit) {
  const auto mixed = range(2).map([](int64_t i) { return i == 0 ? at::full({1}, 1.0) : at::full({1, 1}, 1.0); });
  EXPECT_THAT(message_of([&] { mixed.padded_batch(2).collect(); }), HasSubstr("one dtype and number of dimensions"));
  EXPECT_THAT(message_of([] { ragged(5).padded_batch(9, {.padded_shapes = {PartialShape{3}}}).collect(); }),
              HasSubstr("larger than what it is padded to: padded_shape=(3,)"));
  EXPECT_THROW(ragged(2).padded_batch(0), c10::ValueError);
  EXPECT_THROW(ragged(2).padded_batch(1, {.padding_values = {1, 2}}), c10::ValueError);
  EXPECT_THROW(ragged(2).padded_batch(1, {.padded_shapes = {{}, {}}}), c10::ValueError);
}

TEST(PaddedBatchTest, AnErrorLosesNothingElse) {
  EXPECT_THAT(all_of(failing(5, {1}).padded_batch(2)), ElementsAre("error", "{0 2}", "{3 4}"));
}

TEST(BucketByLengthTest, PutsSimilarLengthsTogether) {
  const auto length = [](const at::Tensor& t) { return t.numel(); };
  const auto sizes =
      from_vector<int64_t>({1, 5, 2, 6, 1, 9}).map([](int64_t i) { return at::full({i}, i, at::kLong); });
  const auto buckets = sizes.bucket_by_length(length, {3, 6}, {2, 2, 1});
  EXPECT_THAT(all_of(buckets), ElementsAre("[2, 2]{1 0 2 2}", "[1, 6]{6 6 6 6 6 6}", "[1, 9]{9 9 9 9 9 9 9 9 9}",
                                           "[1, 1]{1}", "[1, 5]{5 5 5 5 5}"));
  expect_well_behaved(buckets);
  expect_well_behaved(sizes.bucket_by_length(length, {3, 6}, {2, 2, 2}, {.drop_remainder = true}));
  EXPECT_EQ(str(buckets.element_spec()), "TensorSpec(shape=(None, None), dtype=int64)");
}

TEST(BucketByLengthTest, PadsSequencesToTheBoundaryIfAsked) {
  const auto pairs = from_vector<int64_t>({1, 2, 4}).map([](int64_t i) {
    return std::tuple{at::full({i}, i, at::kLong), at::full({3}, 7, at::kLong)};
  });
  const auto length = [](const at::Tensor& t, const at::Tensor&) { return t.numel(); };
  const auto buckets =
      pairs.bucket_by_length(length, {4, 6}, {2, 1, 1}, {.padding_value = 8, .pad_to_bucket_boundary = true});
  EXPECT_THAT(all_of(buckets),
              ElementsAre("[2, 3]{1 8 8 2 2 8}, [2, 3]{7 7 7 7 7 7}", "[1, 5]{4 4 4 4 8}, [1, 3]{7 7 7}"));
  const auto too_long = pairs.bucket_by_length(length, {4}, {2, 1}, {.pad_to_bucket_boundary = true});
  EXPECT_THAT(message_of([&] { too_long.collect(); }), HasSubstr("length=4, last boundary=4"));
}

TEST(BucketByLengthTest, ChecksItsArguments) {
  const auto length = [](int64_t i) { return i; };
  EXPECT_THROW(range(3).bucket_by_length(length, {1, 2}, {1, 2}), c10::ValueError);
  EXPECT_THROW(range(3).bucket_by_length(length, {2, 2}, {1, 2, 3}), c10::ValueError);
  EXPECT_THROW(range(3).bucket_by_length(length, {2}, {1, 0}), c10::ValueError);
}

}  // namespace
}  // namespace lockstep::data
