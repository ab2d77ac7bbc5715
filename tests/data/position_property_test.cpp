#include <torch/types.h>
#include <torch/utils.h>

#include "tests/data/pipelines.h"

namespace lockstep::data {
namespace {

using namespace tests;  // NOLINT

/// Random pipelines of numbers, the same for the same seed.
class RandomPipelines {
 public:
  explicit RandomPipelines(uint64_t seed, bool with_errors) : random_(seed), with_errors_(with_errors) {}

  Dataset<int64_t> make() {
    Dataset<int64_t> dataset = source();
    for (uint64_t left = 1 + random_.below(7); left > 0; --left) dataset = transformed(dataset);
    return dataset;
  }

 private:
  Dataset<int64_t> source() {
    const auto size = static_cast<int64_t>(random_.below(14));
    if (random_.below(5) == 0) return generated(size);
    if (!with_errors_ || random_.below(3) == 0) return range(size);
    return failing(size, {static_cast<int64_t>(random_.below(14)), static_cast<int64_t>(random_.below(14))});
  }

  static Dataset<int64_t> numbers(const Dataset<at::Tensor>& rows) {
    return rows.map([](const at::Tensor& row) { return row.item<int64_t>(); });
  }

  Dataset<int64_t> transformed(const Dataset<int64_t>& input) {
    const auto number = static_cast<int64_t>(1 + random_.below(5));
    switch (random_.below(14)) {
      case 0:
        return input.shuffle(number);
      case 1:
        return input.shuffle(20, {.seed = 4});
      case 2:
        return numbers(input.batch(number).unbatch());
      case 3:
        return numbers(input.batch(2).rebatch(number).unbatch());
      case 4:
        return input.filter([](int64_t i) { return i % 3 != 1; });
      case 5:
        return input.flat_map([](int64_t i) { return range(i, i + i % 3); });
      case 6:
        return input.interleave([](int64_t i) { return range(i, i + 2 + i % 2).shuffle(2); },
                                {.cycle_length = number, .block_length = 2});
      case 7:
        return sample_from<int64_t>({input, source()});
      case 8:
        return input.concatenate(source());
      case 9:
        return zip(input, range(30)).map([](int64_t a, int64_t b) { return a + 100 * b; });
      case 10:
        return input.shard(2, number % 2);
      case 11:
        return input.skip(number).take(9);
      case 12:
        return input.repeat(2);
      default:
        return input.map([](int64_t i) { return i + torch::randint(0, 2, {1}).item<int64_t>(); }, {.num_threads = 2});
    }
  }

  detail::SmallRandom random_;
  bool with_errors_;
};

constexpr size_t kMostElements = 200;

Texts rest_of_iterator(Iterator<int64_t>& iterator, size_t limit = kMostElements) {
  Texts texts;
  while (texts.size() < limit) {
    try {
      const auto element = iterator.next();
      if (!element) break;
      texts.push_back(std::to_string(*element));
    } catch (const std::exception&) {
      texts.emplace_back("error");
    }
  }
  return texts;
}

/// Shards and the rest behind `skip` are parts of what `next` gives, errors included.
void expect_exact_parts(uint64_t seed) {
  const auto dataset = RandomPipelines(seed, /*with_errors=*/true).make();
  SCOPED_TRACE(c10::str("seed ", seed, ": ", dataset.str()));
  const Texts all = all_of(dataset, 1, kMostElements);
  if (all.size() == kMostElements) return;
  for (size_t index = 0; index < 3; ++index) {
    Texts expected;
    for (size_t i = index; i < all.size(); i += 3) expected.push_back(all[i]);
    ASSERT_EQ(all_of(dataset.shard(3, static_cast<int64_t>(index)), 1, kMostElements), expected) << "shard " << index;
  }
  for (const int64_t count : {1, 3, 8, 20}) {
    ASSERT_EQ(all_of(dataset.skip(count), 1, kMostElements), from(all, static_cast<size_t>(count))) << count;
  }
}

/// Wherever an iterator stops, errors included, a restored one goes on with exactly the same.
void expect_exact_positions(uint64_t seed, bool with_errors) {
  const auto dataset = RandomPipelines(seed, with_errors).make();
  SCOPED_TRACE(c10::str("seed ", seed, ": ", dataset.str()));
  auto whole = dataset.iterator_of_epoch(1);
  const Texts all = rest_of_iterator(whole);
  for (size_t stop = 0; stop <= all.size(); stop += 1 + seed % 3) {
    auto iterator = dataset.iterator_of_epoch(1);
    rest_of_iterator(iterator, stop);
    auto restored = RandomPipelines(seed, with_errors).make().iterator();
    ASSERT_NO_THROW(restored.restore(Position::parse(iterator.position().str()))) << "after " << stop;
    ASSERT_EQ(rest_of_iterator(restored, kMostElements - stop), from(all, stop)) << "after " << stop;
  }
}

TEST(PositionPropertyTest, PositionsOfRandomPipelinesAreExact) {
  for (uint64_t seed = 0; seed < 500 && !::testing::Test::HasFatalFailure(); ++seed) {
    expect_exact_positions(seed, /*with_errors=*/false);
  }
}

TEST(PositionPropertyTest, PositionsOfRandomPipelinesAreExactAfterErrors) {
  for (uint64_t seed = 0; seed < 500 && !::testing::Test::HasFatalFailure(); ++seed) {
    expect_exact_positions(seed, /*with_errors=*/true);
  }
}

TEST(PositionPropertyTest, PartsOfRandomPipelinesAreExactWithErrors) {
  for (uint64_t seed = 0; seed < 500 && !::testing::Test::HasFatalFailure(); ++seed) expect_exact_parts(seed);
}

}  // namespace
}  // namespace lockstep::data
