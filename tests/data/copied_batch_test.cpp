#include <algorithm>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include <torch/types.h>

#include "lockstep/data/files.h"
#include "lockstep/data/formats/records/record_writer.h"
#include "lockstep/data/transforms.h"
#include "lockstep/device/host_copier.h"
#include "tests/data/formats/temporary_folder.h"
#include "tests/data/pipelines.h"

/// Large batches, which several threads copy where a GPU gets them.
namespace lockstep::data {
namespace {

using namespace tests;  // NOLINT

using Tensors = std::vector<at::Tensor>;

/// An iteration whose batches are copied by this many threads; by the iterating one for 0.
Iteration copied_by(int threads) {
  Iteration iteration;
  if (threads > 0) iteration.copier = std::make_shared<lockstep::detail::HostCopier>(threads);
  return iteration;
}

/// The tensors of the next element; none where it throws; nothing at the end.
std::optional<Tensors> next_tensors(NodeIterator& iterator) {
  Element element;
  try {
    if (!iterator.next(element)) return std::nullopt;
  } catch (const std::exception&) {
    return Tensors{};
  }
  Tensors tensors;
  for (const Leaf& leaf : element.leaves) {
    if (leaf.as<LeafList>() == nullptr) tensors.push_back(detail::to_tensor(leaf));
  }
  return tensors;
}

/// Expects that threads make the batches that one thread makes. Returns the number of bytes of the first one.
template <class T>
size_t expect_same_batches(const Dataset<T>& dataset, size_t limit = 20) {
  const NodePtr& node = detail::node_of(dataset);
  SCOPED_TRACE(detail::describe(*node));
  size_t bytes = 0;
  for (const int threads : {1, 3}) {
    const auto expected = node->iterator(copied_by(0));
    const auto copied = node->iterator(copied_by(threads));
    std::vector<Tensors> kept;  // later batches must not change earlier ones
    std::vector<Tensors> wanted;
    while (kept.size() < limit) {
      const auto want = next_tensors(*expected);
      const auto found = next_tensors(*copied);
      EXPECT_EQ(found.has_value(), want.has_value());
      if (!want || !found) break;
      wanted.push_back(*want);
      kept.push_back(*found);
    }
    EXPECT_FALSE(kept.empty());
    for (size_t i = 0; i < kept.size(); ++i) {
      EXPECT_EQ(kept[i].size(), wanted[i].size()) << "batch " << i;
      for (size_t part = 0; part < std::min(kept[i].size(), wanted[i].size()); ++part) {
        EXPECT_TRUE(at::equal(kept[i][part], wanted[i][part])) << "batch " << i << ", part " << part;
        EXPECT_EQ(kept[i][part].scalar_type(), wanted[i][part].scalar_type());
        bytes = bytes == 0 ? kept[i][part].nbytes() : bytes;
      }
    }
  }
  return bytes;
}

at::Tensor table(int64_t rows, int64_t columns, at::ScalarType dtype = at::kFloat) {
  return at::arange(rows * columns).remainder(1009).view({rows, columns}).to(dtype);
}

TEST(CopiedBatchTest, RowsInOrderAndShuffled) {
  const auto pairs = from_tensor_slices(std::tuple{table(1000, 1024), at::arange(1000)});
  EXPECT_GE(expect_same_batches(pairs.batch(300)), lockstep::detail::HostCopier::kLeastBytes);
  expect_same_batches(pairs.batch(300, {.drop_remainder = true}));
  expect_same_batches(pairs.shuffle(1000, {.seed = 3}).batch(300));
  expect_same_batches(pairs.shuffle(1000, {.seed = 3}).batch(300).repeat(2));
  expect_same_batches(pairs.repeat(3).batch(700));
  expect_same_batches(pairs.batch(300).unbatch().batch(280));
  expect_same_batches(pairs.batch(300).prefetch(2));
}

TEST(CopiedBatchTest, MoreThanWaitsForThreads) {
  EXPECT_GE(expect_same_batches(from_tensor_slices(table(700, 16384, at::kShort)).batch(650)), size_t{17} << 20);
}

TEST(CopiedBatchTest, ManyTypesAndSizes) {
  for (const auto dtype : {at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kHalf, at::kBFloat16, at::kFloat,
                           at::kDouble, at::kBool, at::kComplexFloat}) {
    // Below and above the size from which threads copy, also of a row.
    for (const int64_t columns : {1, 120, 511, 513, 2048}) {
      SCOPED_TRACE(c10::str(dtype, " ", columns));
      expect_same_batches(from_tensor_slices(table(1100, columns, dtype)).batch(1050));
    }
  }
}

TEST(CopiedBatchTest, NestedStructures) {
  using Inner = std::map<std::string, at::Tensor>;
  const auto rows = range(600).map([](int64_t i) {
    const at::Tensor large = at::full({2000}, i, at::kInt);
    return std::tuple{Inner{{"large", large}, {"small", at::full({2}, i)}, {"view", large.slice(0, 0, 1900, 2)}},
                      std::tuple{i, at::full({3, 300}, i).t(), std::string("text")}};
  });
  expect_same_batches(rows.batch(250));
}

TEST(CopiedBatchTest, TensorsThatAFunctionKeepsAreCopiedAtOnce) {
  const auto rows = range(600).map([buffer = at::empty({1024})](int64_t i) {
    buffer.fill_(i);
    return std::tuple{buffer, at::full({1024}, i)};
  });
  expect_same_batches(rows.batch(300));
}

TEST(CopiedBatchTest, MemoryThatATensorDoesNotOwnIsCopiedAtOnce) {
  const auto memory = std::make_shared<std::vector<float>>(1024);
  const auto rows = range(600).map([memory](int64_t i) {
    std::fill(memory->begin(), memory->end(), static_cast<float>(i));
    return at::from_blob(memory->data(), {1024}, at::kFloat);
  });
  expect_same_batches(rows.batch(300));
  const auto kept = rows.cache();
  for (int epoch = 0; epoch < 2; ++epoch) {
    float expected = 0;
    for (const at::Tensor& row : kept) EXPECT_EQ(row[0].item<float>(), expected++);
  }
}

TEST(CopiedBatchTest, AFailedElementIsMissing) {
  const auto rows = range(900).map([](int64_t i) {
    if (i % 100 == 37) throw std::runtime_error("bad element");
    return std::tuple{at::full({1024}, i, at::kFloat), i};
  });
  expect_same_batches(rows.batch(270));
  expect_same_batches(rows.ignore_errors().batch(270));
}

TEST(CopiedBatchTest, OddElementsAreLeftOut) {
  for (const std::vector<int64_t>& odd : std::vector<std::vector<int64_t>>{{0}, {5, 6, 7}, {299}, {0, 1, 2, 500}}) {
    const auto rows = range(900).map([odd](int64_t i) {
      const bool is_odd = std::find(odd.begin(), odd.end(), i) != odd.end();
      return std::tuple{i, at::full({is_odd ? 1000 : 1024}, i, at::kFloat)};
    });
    expect_same_batches(rows.batch(300));
  }
}

TEST(CopiedBatchTest, PaddedRows) {
  const auto rows = range(500).map([](int64_t i) { return at::full({i % 7 == 0 ? 3 : 1500, 2}, i, at::kFloat); });
  expect_same_batches(rows.padded_batch(220, {.padding_values = {-1}}));
  expect_same_batches(from_tensor_slices(table(500, 2000)).padded_batch(220));
  const auto length = [](const at::Tensor& row) { return row.size(0); };
  expect_same_batches(rows.bucket_by_length(length, {100}, {40, 300}));
}

TEST(CopiedBatchTest, RecordsOfFiles) {
  const TemporaryFolder folder;
  const std::string file = folder / "records";
  RecordWriter writer(file);
  for (int i = 0; i < 400; ++i) writer.write(std::string(4096, static_cast<char>(i)));
  writer.close();
  const auto decode = [](const Bytes& record) {
    return at::from_blob(const_cast<char*>(record.data()), {4096}, at::kByte).clone();  // NOLINT
  };
  for (const FileAccess access : {FileAccess::Map, FileAccess::Read}) {
    expect_same_batches(tfrecords(file, {.access = access}).map(decode).batch(300));
  }
}

TEST(CopiedBatchTest, BatchesThatAFunctionKeepsAreCopiedByThreads) {
  const at::Tensor kept = table(512, 1024);
  const auto batches = range(4).map([kept](int64_t) { return kept; });
  expect_same_batches(batches.unbatch().batch(300));
  expect_same_batches(Dataset<at::Tensor>(detail::make_rebatch(detail::node_of(batches), {200}, {})));
  expect_same_batches(Dataset<at::Tensor>(detail::make_split(detail::node_of(batches), 2)));
}

TEST(CopiedBatchTest, SkipsAreExact) {
  const NodePtr node = detail::node_of(from_tensor_slices(table(900, 1024)).batch(200));
  for (const int64_t count : {0, 1, 3, 4, 5}) {
    const auto iterator = node->iterator(copied_by(2));
    EXPECT_EQ(iterator->skip(count), count);
    const auto plain = node->iterator({});
    plain->skip(count);
    const auto found = next_tensors(*iterator);
    const auto want = next_tensors(*plain);
    ASSERT_EQ(found.has_value(), want.has_value()) << count;
    if (found) {
      EXPECT_TRUE(at::equal(found->front(), want->front())) << count;
    }
  }
}

}  // namespace
}  // namespace lockstep::data
