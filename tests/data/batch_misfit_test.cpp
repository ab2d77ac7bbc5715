#include <set>

#include <torch/types.h>

#include "tests/data/pipelines.h"

namespace lockstep::data {
namespace {

using namespace tests;  // NOLINT

/// The numbers 0 .. n-1 as tensors of two values, those in `odd` as tensors of three, or of another dtype.
Dataset<at::Tensor> with_odd_ones(int64_t n, const std::set<int64_t>& odd, bool other_dtype) {
  return range(n).map([=](int64_t i) {
    const bool is_odd = odd.contains(i);
    return at::full({is_odd && !other_dtype ? 3 : 2}, i, is_odd && other_dtype ? at::kFloat : at::kLong);
  });
}

struct Found {
  std::multiset<int64_t> numbers;
  std::vector<int64_t> sizes;
  int errors = 0;
};

/// Goes through batches; an error is swallowed.
Found read_all(const Dataset<at::Tensor>& batches) {
  Found found;
  auto iterator = batches.iterator();
  while (found.errors < 50) {
    try {
      const auto batch = iterator.next();
      if (!batch) break;
      found.sizes.push_back(batch->size(0));
      for (int64_t row = 0; row < batch->size(0); ++row) {
        found.numbers.insert(batch->select(0, row).flatten()[0].item<int64_t>());
      }
    } catch (const c10::ValueError&) {
      ++found.errors;
    }
  }
  return found;
}

TEST(BatchMisfitTest, OneElementOfAnotherShapeLosesNoOther) {
  constexpr int64_t kElements = 37;
  for (const int64_t size : {2, 3, 8, 12, 40}) {
    for (const bool other_dtype : {false, true}) {
      // The last element may be a batch by itself, which is no error.
      for (int64_t odd = 0; odd < kElements - 1; ++odd) {
        SCOPED_TRACE(c10::str("batch size ", size, ", element ", odd));
        const Found found = read_all(with_odd_ones(kElements, {odd}, other_dtype).batch(size));
        EXPECT_EQ(found.errors, 1);
        EXPECT_EQ(found.numbers.size(), static_cast<size_t>(kElements - 1));
        EXPECT_EQ(found.numbers.count(odd), 0U);
        for (size_t i = 0; i + 1 < found.sizes.size(); ++i) EXPECT_EQ(found.sizes[i], size);
      }
    }
  }
}

TEST(BatchMisfitTest, SeveralElementsOfAnotherShapeAreSeveralErrors) {
  for (const std::set<int64_t>& odd : std::vector<std::set<int64_t>>{{1, 2, 3}, {3, 4, 9}, {5, 6, 7, 8, 9}}) {
    const Found found = read_all(with_odd_ones(24, odd, false).batch(12));
    EXPECT_EQ(found.errors, static_cast<int>(odd.size()));
    EXPECT_EQ(found.numbers.size(), 24 - odd.size());
    for (const int64_t each : odd) EXPECT_EQ(found.numbers.count(each), 0U);
  }
}

TEST(BatchMisfitTest, BatchesMayDifferInShape) {
  const auto by_four = range(12).map([](int64_t i) { return at::full({1 + i / 4}, i); });
  const Found found = read_all(by_four.batch(4));
  EXPECT_EQ(found.errors, 0);
  EXPECT_EQ(found.sizes, (std::vector<int64_t>{4, 4, 4}));
}

TEST(BatchMisfitTest, AnErrorOfTheInputDoesNotHideOneOfTheBatch) {
  const auto mixed = range(10).map([](int64_t i) {
    if (i == 4) throw c10::ValueError("bad element", {}, nullptr);
    return at::full({i == 3 ? 3 : 2}, i);
  });
  const Found found = read_all(mixed.batch(8));
  EXPECT_EQ(found.errors, 2);
  EXPECT_EQ(found.numbers, (std::multiset<int64_t>{0, 1, 2, 5, 6, 7, 8, 9}));
}

TEST(BatchMisfitTest, TensorsThatAreStackedAreComparedToo) {
  const auto with_gradient = range(9).map(
      [](int64_t i) { return at::full({i == 4 ? 3 : 2}, static_cast<double>(i), torch::kFloat).requires_grad_(); });
  const Found found = read_all(with_gradient.batch(4));
  EXPECT_EQ(found.errors, 1);
  EXPECT_EQ(found.numbers.size(), 8U);
}

TEST(BatchMisfitTest, PaddedBatchesLoseNoOtherEither) {
  for (int64_t odd = 0; odd < 12; ++odd) {
    SCOPED_TRACE(odd);
    const auto mixed = range(13).map([=](int64_t i) {
      return i == odd ? at::full({1, 2}, i) : at::full({1 + i % 3}, i);
    });
    const Found padded = read_all(mixed.padded_batch(5, {.padding_values = {-1.0}}));
    EXPECT_EQ(padded.errors, 1);
    EXPECT_EQ(padded.numbers.size(), 12U);
    EXPECT_EQ(padded.numbers.count(odd), 0U);
    const auto length = [](const at::Tensor& element) { return element.size(-1); };
    const Found bucketed = read_all(mixed.bucket_by_length(length, {10}, {5, 5}));
    EXPECT_EQ(bucketed.errors, 1);
    EXPECT_EQ(bucketed.numbers.size(), 12U);
  }
  const auto too_long = range(7).map([](int64_t i) { return at::full({i == 2 ? 9 : 2}, i); });
  const Found found = read_all(too_long.padded_batch(3, {.padded_shapes = {PartialShape{4}}}));
  EXPECT_EQ(found.errors, 1);
  EXPECT_EQ(found.numbers, (std::multiset<int64_t>{0, 1, 3, 4, 5, 6}));
}

}  // namespace
}  // namespace lockstep::data
