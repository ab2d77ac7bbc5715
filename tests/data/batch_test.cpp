#include <torch/data/example.h>
#include <torch/types.h>

#include "lockstep/data/element/named.h"
#include "tests/data/pipelines.h"

namespace lockstep::data {
namespace {

using namespace tests;  // NOLINT

TEST(BatchTest, JoinsEverySizeAndRemainder) {
  for (int64_t size = 0; size <= 20; ++size) {
    for (const int64_t batch : {1, 2, 3, 8, 9, 30}) {
      for (const bool drop : {false, true}) {
        const auto batches = range(size).batch(batch, {.drop_remainder = drop});
        int64_t next = 0;
        int64_t count = 0;
        for (const at::Tensor& each : batches) {
          EXPECT_EQ(each.size(0), std::min(batch, size - next));
          for (int64_t i = 0; i < each.size(0); ++i) EXPECT_EQ(each[i].item<int64_t>(), next++);
          ++count;
        }
        EXPECT_EQ(next, drop ? size / batch * batch : size);
        EXPECT_EQ(batches.cardinality(), Cardinality::exactly(count));
      }
    }
  }
  for (const int64_t batch : {1, 4, 9}) {
    expect_well_behaved(range(13).batch(batch));
    expect_well_behaved(range(13).batch(batch, {.drop_remainder = true}));
  }
  EXPECT_THROW(range(1).batch(0), c10::ValueError);
}

TEST(BatchTest, NumbersBecomeTensorsOfTheirType) {
  const auto dtype = [](auto number) {
    return from_vector(std::vector{number, number}).batch(2).collect().front().scalar_type();
  };
  EXPECT_EQ(dtype(int8_t{1}), at::kChar);
  EXPECT_EQ(dtype(uint8_t{1}), at::kByte);
  EXPECT_EQ(dtype(int16_t{1}), at::kShort);
  EXPECT_EQ(dtype(int32_t{1}), at::kInt);
  EXPECT_EQ(dtype(int64_t{1}), at::kLong);
  EXPECT_EQ(dtype(size_t{1}), at::kLong);
  EXPECT_EQ(dtype(1.0F), at::kFloat);
  EXPECT_EQ(dtype(1.0), at::kDouble);
  EXPECT_EQ(from_vector(std::vector<double>{0.5, 2}).map([](double x) { return x > 1; }).batch(2).collect()[0].dtype(),
            at::kBool);
}

TEST(BatchTest, EveryDtypeAndShapeIsCopiedExactly) {
  for (const auto dtype : {at::kBool, at::kByte, at::kShort, at::kLong, at::kHalf, at::kBFloat16, at::kFloat,
                           at::kComplexFloat, at::kComplexDouble}) {
    for (const std::vector<int64_t>& row : std::vector<std::vector<int64_t>>{{}, {1}, {3}, {2, 3}, {0, 2}}) {
      std::vector<int64_t> sizes{5};
      sizes.insert(sizes.end(), row.begin(), row.end());
      const at::Tensor table = at::randint(0, 2, sizes, at::kLong).to(dtype);
      at::Tensor all = at::cat(from_tensor_slices(table).batch(2).collect());
      EXPECT_TRUE(at::equal(all, table)) << dtype << row;
      const auto transposed = from_tensor_slices(table).map([](const at::Tensor& t) { return t.clone().t_(); });
      EXPECT_TRUE(row.size() != 2 || transposed.batch(5).collect()[0].size(1) == row[1]);
    }
  }
}

TEST(BatchTest, KeepsStructure) {
  struct Sample {
    at::Tensor image;
    at::Tensor label;
  };
  const auto samples = range(4)
                           .map([](int64_t i) {
                             return Sample{at::full({2}, i), at::full({}, i)};
                           })
                           .batch(3)
                           .collect();
  EXPECT_TRUE(at::equal(samples[0].label, at::arange(3)));
  const auto texts = from_vector(std::vector<std::string>{"a", "bc", "d"}).enumerate().batch(2).collect();
  EXPECT_EQ(texts[0].second, (List<std::string>{"a", "bc"}));
  EXPECT_EQ(texts[1].second, List<std::string>{"d"});
  const auto maps = range(2).map([](int64_t i) { return std::map<std::string, int64_t>{{"x", i}, {"y", -i}}; });
  EXPECT_TRUE(at::equal(maps.batch(2).collect()[0].at("y"), -at::arange(2)));
  const auto examples =
      range(2).map([](int64_t i) { return torch::data::Example<>(at::full({1}, i), at::full({}, i)); });
  EXPECT_TRUE(at::equal(examples.batch(2).collect()[0].target, at::arange(2)));
  const auto named = range(2).map([](int64_t i) {
    Named element;
    element.set("number", i);
    element.set("text", std::string("t"));
    return element;
  });
  const Named batch = named.batch(2).collect()[0];
  EXPECT_TRUE(at::equal(batch["number"], at::arange(2)));
  EXPECT_EQ(batch.get<List<std::string>>("text").size(), 2);
  EXPECT_THROW(batch["text"], c10::TypeError);
  EXPECT_THROW(batch["nothing"], c10::ValueError);
}

TEST(BatchTest, SaysWhatDoesNotFit) {
  const auto ragged = range(3).map([](int64_t i) { return at::zeros({i + 1}); });
  try {
    ragged.batch(3).collect();
    ADD_FAILURE() << "must throw";
  } catch (const c10::ValueError& error) {
    EXPECT_NE(std::string(error.what()).find("element 1 of the batch"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("padded_batch"), std::string::npos);
  }
  const auto mixed = range(2).map([](int64_t i) { return at::zeros({1}, i == 0 ? at::kFloat : at::kLong); });
  EXPECT_THROW(mixed.batch(2).collect(), c10::ValueError);
  const auto keys = range(2).map([](int64_t i) { return std::map<std::string, int64_t>{{i == 0 ? "a" : "b", i}}; });
  EXPECT_THROW(keys.batch(2).collect(), c10::ValueError);
}

TEST(BatchTest, ABatchIsItsOwnCopy) {
  const at::Tensor table = at::zeros({4, 2});
  const auto batches = from_tensor_slices(table).batch(2).collect();
  table.fill_(1);
  EXPECT_TRUE(at::equal(batches[0], at::zeros({2, 2})));
}

TEST(BatchTest, LeavesOutWhatCouldNotBeMade) {
  const auto failing = range(6).map([](int64_t i) {
    if (i == 1) throw std::runtime_error("one");
    return i;
  });
  EXPECT_EQ(all_of(failing.batch(3)), (Texts{"error", "{0 2 3}", "{4 5}"}));
}

}  // namespace
}  // namespace lockstep::data
