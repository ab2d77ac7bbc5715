#include <torch/data/datasets/base.h>
#include <torch/data/example.h>
#include <torch/types.h>

#include "tests/data/pipelines.h"

namespace lockstep::data {
namespace {

using namespace tests;  // NOLINT

TEST(SourcesTest, RangeGoesBothWays) {
  EXPECT_EQ(all_of(range(3)), (Texts{"0", "1", "2"}));
  EXPECT_EQ(all_of(range(2, 9, 3)), (Texts{"2", "5", "8"}));
  EXPECT_EQ(all_of(range(5, 0, -2)), (Texts{"5", "3", "1"}));
  EXPECT_EQ(all_of(range(-1)), Texts{});
  EXPECT_EQ(range(5, 0, -2).cardinality(), Cardinality::exactly(3));
  EXPECT_THROW(range(0, 5, 0), c10::ValueError);
  expect_well_behaved(range(2, 20, 3));
}

TEST(SourcesTest, SlicesAreRowsOfAllTensors) {
  const at::Tensor x = at::arange(6).view({3, 2});
  const at::Tensor strided = at::arange(12, at::kFloat).view({4, 3}).t();
  expect_well_behaved(from_tensor_slices(std::tuple{x, strided}));
  const auto rows = from_tensor_slices(std::tuple{x, strided}).collect();
  ASSERT_EQ(rows.size(), 3);
  EXPECT_TRUE(at::equal(std::get<1>(rows[2]), strided[2]));
  EXPECT_EQ(from_tensor_slices(x).element_spec().leaves->front().shape, PartialShape{2});
  EXPECT_THROW(from_tensor_slices(std::tuple{x, at::zeros({2})}), c10::ValueError);
  EXPECT_THROW(from_tensor_slices(at::zeros({})), c10::ValueError);
  EXPECT_EQ(from_tensor_slices(at::zeros({0, 3})).collect().size(), 0);
}

TEST(SourcesTest, ElementsAreGivenAsTheyAre) {
  const auto once = from_tensors(std::pair{at::ones({2}), std::string("label")});
  ASSERT_EQ(once.collect().size(), 1);
  EXPECT_EQ(once.collect()[0].second, "label");
  struct Box {
    explicit Box(int size) : size(size) {}
    int size;
  };
  const auto boxes =
      from_vector(std::vector<Box>{Box(3), Box(4)}).map([](const Box& box) { return Box(box.size + 1); });
  EXPECT_EQ(boxes.collect()[1].size, 5);
  EXPECT_EQ(boxes.batch(2).collect()[0].size(), 2);
}

TEST(SourcesTest, GeneratorsStartAnewForEachIterator) {
  int started = 0;
  const auto numbers = from_generator([&] {
    ++started;
    return [i = int64_t{0}]() mutable { return i < 4 ? std::optional(i++) : std::nullopt; };
  });
  EXPECT_EQ(started, 0);
  EXPECT_EQ(all_of(numbers), (Texts{"0", "1", "2", "3"}));
  EXPECT_EQ(all_of(numbers), (Texts{"0", "1", "2", "3"}));
  EXPECT_EQ(started, 2);
  EXPECT_TRUE(numbers.cardinality().is_unknown());
  numbers.map([](int64_t i) { return at::full({2}, i); }).element_spec();
  EXPECT_EQ(started, 2) << "a generator must not be asked for a spec";
  expect_well_behaved(numbers);
}

TEST(SourcesTest, TakesDatasetsOfLibTorch) {
  struct Squares : torch::data::datasets::Dataset<Squares> {
    torch::data::Example<> get(size_t index) override {
      return {torch::full({2}, static_cast<double>(index)), torch::full({}, static_cast<double>(index * index))};
    }
    torch::optional<size_t> size() const override { return 5; }
  };
  const auto squares = from_torch(Squares());
  EXPECT_EQ(squares.cardinality(), Cardinality::exactly(5));
  const auto batches = squares.batch(5).collect();
  EXPECT_TRUE(at::allclose(batches[0].target, torch::tensor({0., 1., 4., 9., 16.}).to(at::kFloat)));
}

TEST(SourcesTest, StructuresOfAnyDepthComeBack) {
  struct Inner {
    at::Tensor x;
    int64_t number;
  };
  using Maybe = std::pair<std::optional<int64_t>, std::optional<int64_t>>;
  using Deep = std::tuple<std::vector<Inner>, std::map<std::string, std::array<double, 2>>, Maybe, std::string>;
  const Deep value{{{at::ones({1}), 7}, {at::zeros({2}), 8}}, {{"k", {1.5, 2.5}}}, {std::nullopt, 9}, "end"};
  const auto [inner, map, maybe, text] = from_tensors(value).collect()[0];
  ASSERT_EQ(inner.size(), 2);
  EXPECT_EQ(inner[1].number, 8);
  EXPECT_EQ(inner[1].x.size(0), 2);
  EXPECT_EQ(map.at("k")[1], 2.5);
  EXPECT_FALSE(maybe.first.has_value());
  EXPECT_EQ(maybe.second, 9);
  EXPECT_EQ(text, "end");
}

TEST(SourcesTest, EveryLoopIsAnotherEpoch) {
  const auto shuffled = range(20).shuffle(20, {.seed = 5});
  const auto first = shuffled.collect();
  const auto second = shuffled.collect();
  EXPECT_NE(first, second);
  EXPECT_EQ(range(20).shuffle(20, {.seed = 5}).collect(), first);
  auto again = shuffled.iterator_of_epoch(1);
  for (const int64_t value : second) EXPECT_EQ(again.next(), value);
}

TEST(PositionTest, GoesThroughTextAndBackExactly) {
  const auto dataset =
      range(50).shuffle(9, {.seed = 4}).map([](int64_t i) { return i * i; }, {.num_threads = 3}).batch(4);
  auto iterator = dataset.iterator();
  for (int i = 0; i < 5; ++i) iterator.next();
  const std::string saved = iterator.position().str();
  const auto same_program =
      range(50).shuffle(9, {.seed = 4}).map([](int64_t i) { return i * i; }, {.num_threads = 1}).batch(4);
  auto other = same_program.iterator_of_epoch(9);
  other.restore(Position::parse(saved));
  while (auto expected = iterator.next()) EXPECT_TRUE(at::equal(*other.next(), *expected));
  EXPECT_FALSE(other.next().has_value());
}

TEST(PositionTest, RefusesWhatDoesNotFit) {
  auto iterator = range(5).batch(2).iterator();
  EXPECT_THROW(iterator.restore(range(5).batch(3).iterator().position()), c10::ValueError);
  Position behind = iterator.position();
  behind.taken = 9;
  EXPECT_THROW(iterator.restore(behind), c10::ValueError);
  EXPECT_THROW(Position::parse("nonsense"), c10::ValueError);
}

}  // namespace
}  // namespace lockstep::data
