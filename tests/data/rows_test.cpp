#include <ATen/ops/arange.h>
#include <gmock/gmock.h>

#include "tests/data/pipelines.h"

namespace lockstep::data {
namespace {

using namespace tests;  // NOLINT
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Dataset<at::Tensor> batches(int64_t rows, int64_t size, BatchOptions options = {}) {
  return range(rows).batch(size, options);
}

/// Sizes and contents of the batches that `sizes` cut from 0 .. rows-1, as they are defined.
Texts expected_rebatch(int64_t rows, const std::vector<int64_t>& sizes, bool drop_remainder) {
  Texts texts;
  int64_t row = 0;
  for (size_t turn = 0;; ++turn) {
    const int64_t size = sizes[turn % sizes.size()];
    const int64_t end = std::min(row + size, rows);
    if (size > 0 && (end == row || (drop_remainder && end < row + size))) return texts;
    std::string text;
    for (; row < end; ++row) text += (text.empty() ? "" : " ") + std::to_string(row);
    texts.push_back("{" + text + "}");
    if (size > static_cast<int64_t>(rows) && row == rows && !drop_remainder) return texts;
  }
}

TEST(RebatchTest, CutsTheRowsAnewWhateverTheBatchesWere) {
  for (const int64_t rows : {0, 1, 5, 8, 12}) {
    for (const int64_t size : {1, 2, 3, 4, 7}) {
      for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{
               {1}, {2}, {3}, {6}, {20}, {2, 2}, {1, 2}, {3, 1}, {0, 1}, {1, 0}, {2, 1, 1}, {1, 1, 1, 1, 0}}) {
        for (const bool drop : {false, true}) {
          const auto cut = batches(rows, size).rebatch(sizes, {.drop_remainder = drop});
          const Texts all = all_of(cut);
          EXPECT_EQ(all, expected_rebatch(rows, sizes, drop)) << cut.str();
          expect_skip_is_exact(detail::node_of(cut), {0});
        }
      }
    }
  }
}

TEST(RebatchTest, IsWellBehavedOnWhatHasNoCertainSizes) {
  expect_well_behaved(batches(7, 3).rebatch(2));
  expect_well_behaved(batches(7, 3).repeat(2).rebatch(4));
  expect_well_behaved(batches(7, 3).shuffle(9, {.seed = 1}).rebatch({1, 2}));
  expect_well_behaved(generated(7).batch(3).rebatch(2));
  expect_well_behaved(batches(7, 3).take(2).prefetch(1).rebatch(2));
  expect_well_behaved(batches(3, 2).repeat().rebatch(3));
}

TEST(RebatchTest, AnAlignedCutIsAView) {
  const auto input = batches(8, 8).cache();
  const char* whole = addresses_of(input).at(0);
  EXPECT_THAT(addresses_of(input.rebatch(4)), ElementsAre(whole, whole + 4 * sizeof(int64_t)));
  EXPECT_THAT(addresses_of(input.rebatch(8)), ElementsAre(whole));
}

TEST(RebatchTest, KnowsItsSizesWhereTheyAreCertain) {
  const auto shape = [](const auto& dataset) { return str(dataset.element_spec().leaves->front().shape); };
  EXPECT_EQ(shape(batches(8, 4, {.drop_remainder = true}).rebatch(2)), "(2,)");
  EXPECT_EQ(shape(batches(8, 4).rebatch(2)), "(None,)");
  EXPECT_EQ(shape(batches(8, 4).rebatch(6, {.drop_remainder = true})), "(6,)");
  EXPECT_EQ(shape(batches(8, 2, {.drop_remainder = true}).rebatch(6)), "(None,)");
  EXPECT_EQ(shape(batches(8, 4, {.drop_remainder = true}).rebatch({2, 2})), "(2,)");
  EXPECT_EQ(shape(batches(8, 4, {.drop_remainder = true}).rebatch({3, 1})), "(None,)");
  EXPECT_EQ(detail::node_of(batches(8, 4).rebatch(2))->batch_size(), std::nullopt);
}

TEST(RebatchTest, JoinsListsAndSeveralParts) {
  const auto named = range(5).map([](int64_t i) { return std::tuple{i, std::to_string(i)}; }).batch(2).rebatch(3);
  EXPECT_THAT(all_of(named), ElementsAre("{0 1 2}, list b'0' b'1' b'2'", "{3 4}, list b'3' b'4'"));
  expect_well_behaved(named);
}

TEST(RebatchTest, GoesOnAfterAnError) {
  const auto bad = batches(9, 3).map([](at::Tensor t) {
    if (t[0].item<int64_t>() == 3) throw std::runtime_error("bad");
    return t;
  });
  EXPECT_THAT(all_of(bad.rebatch(2)), ElementsAre("{0 1}", "error", "{2 6}", "{7 8}"));
}

TEST(RebatchTest, ChecksItsArguments) {
  EXPECT_THROW(batches(4, 2).rebatch(-1), c10::ValueError);
  EXPECT_THROW(batches(4, 2).rebatch(0), c10::ValueError);
  EXPECT_THROW(batches(4, 2).rebatch(std::vector<int64_t>{}), c10::ValueError);
  EXPECT_THAT(message_of([] { detail::make_rebatch(detail::node_of(range(4)), {2}, {}); }),
              HasSubstr("call batch first"));
}

TEST(SplitTest, CutsEachBatchIntoEqualParts) {
  for (const int64_t rows : {0, 1, 4, 5, 9}) {
    for (const int64_t size : {1, 2, 3, 5}) {
      for (const int64_t parts : {1, 2, 3, 5}) {
        const auto node = detail::make_split(detail::node_of(batches(rows, size)), parts);
        Texts expected;
        for (int64_t start = 0; start < rows; start += size) {
          const int64_t end = std::min(start + size, rows);
          const int64_t chunk = (end - start + parts - 1) / parts;
          for (int64_t part = 0; part < parts; ++part) {
            std::string text;
            for (int64_t row = start + part * chunk; row < std::min(start + (part + 1) * chunk, end); ++row) {
              text += (text.empty() ? "" : " ") + std::to_string(row);
            }
            expected.push_back("{" + text + "}");
          }
        }
        EXPECT_EQ(all_of(node), expected);
        expect_well_behaved(node);
      }
    }
  }
}

TEST(SplitTest, KnowsItsSizesWhereTheyDivide) {
  const auto shape = [](const NodePtr& node) { return str(node->spec().leaves->front().shape); };
  EXPECT_EQ(shape(detail::make_split(detail::node_of(batches(8, 4, {.drop_remainder = true})), 2)), "(2,)");
  EXPECT_EQ(shape(detail::make_split(detail::node_of(batches(8, 4, {.drop_remainder = true})), 3)), "(None,)");
  EXPECT_EQ(shape(detail::make_split(detail::node_of(batches(8, 4)), 2)), "(None,)");
  EXPECT_THAT(message_of([] { detail::make_split(detail::node_of(range(4)), 2); }), HasSubstr("call batch first"));
  EXPECT_THAT(message_of([] { all_of(detail::make_split(detail::node_of(generated(4)), 2)); }),
              HasSubstr("call batch first"));
}

TEST(UnbatchTest, IsTheReverseOfBatch) {
  for (const int64_t rows : {0, 1, 5, 8}) {
    for (const int64_t size : {1, 2, 3, 9}) {
      const auto there_and_back = batches(rows, size).unbatch();
      EXPECT_EQ(all_of(there_and_back), all_of(range(rows)));
      expect_well_behaved(there_and_back);
      expect_well_behaved(generated(rows).batch(size).unbatch());
    }
  }
  const auto texts = range(5).map([](int64_t i) { return std::pair{std::to_string(i), i}; });
  EXPECT_EQ(all_of(texts.batch(3).unbatch()), all_of(texts));
  EXPECT_EQ(batches(4, 2).unbatch().cardinality(), Cardinality::unknown());
  EXPECT_EQ(str(batches(4, 2).unbatch().element_spec()), "TensorSpec(shape=(), dtype=int64)");
}

TEST(UnbatchTest, CopiesNothing) {
  const at::Tensor rows = at::arange(12).reshape({2, 3, 2});
  const auto slices = addresses_of(from_tensor_slices(rows).unbatch());
  ASSERT_EQ(slices.size(), 6U);
  EXPECT_EQ(slices[4], static_cast<const char*>(rows.data_ptr()) + 8 * sizeof(int64_t));
}

TEST(UnbatchTest, PassesOverWholeBatchesWithoutMakingThem) {
  int calls = 0;
  const auto counted = range(100).map([&](int64_t i) { return ++calls, i; }).batch(8);
  for (const auto& rows : {counted.unbatch(), counted.rebatch(1)}) {
    auto iterator = rows.iterator_of_epoch(0);
    for (int i = 0; i < 90; ++i) iterator.next();
    calls = 0;
    auto restored = rows.iterator();
    restored.restore(iterator.position());
    EXPECT_LE(calls, 8);
    EXPECT_EQ(restored.next()->item<int64_t>(), 90);
  }
}

TEST(UnbatchTest, RowsOfAllPartsMustBeAsMany) {
  const auto uneven = range(2).map([](int64_t i) { return std::tuple{at::arange(i + 1), at::arange(1)}; }, {});
  EXPECT_THAT(all_of(uneven.unbatch()), ElementsAre("0, 0", "error"));
}

}  // namespace
}  // namespace lockstep::data
