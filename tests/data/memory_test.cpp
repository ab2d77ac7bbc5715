#include <atomic>
#include <filesystem>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>

#include "lockstep/data/element/private_memory.h"
#include "lockstep/data/files.h"
#include "lockstep/data/formats/records/example_builder.h"
#include "lockstep/data/formats/records/record_writer.h"
#include "lockstep/data/parse_example.h"
#include "tests/data/formats/temporary_folder.h"
#include "tests/data/pipelines.h"

namespace lockstep::data {
namespace {

using namespace tests;  // NOLINT

/// What the buffers of all elements of an epoch hold, in bytes, while all of them live. Pages of files count nothing.
template <class T>
size_t held_bytes(const Dataset<T>& dataset) {
  std::vector<Element> elements;
  const auto iterator = detail::node_of(dataset)->iterator({});
  for (Element element; iterator->next(element);) elements.push_back(std::move(element));
  size_t bytes = 0;
  for (const Element& element : elements) {
    for (const Leaf& leaf : element.leaves) {
      if (const auto* row = leaf.as<Row>()) bytes += row->buffer->held_bytes();
      if (const auto* part = leaf.as<Bytes>()) bytes += part->buffer()->held_bytes();
    }
  }
  return bytes;
}

std::string write_records(const TemporaryFolder& folder, int count, size_t size, Compression compression = {}) {
  const std::string file = folder / "records";
  RecordWriter writer(file, {.compression = compression == Compression::Auto ? Compression::None : compression});
  for (int i = 0; i < count; ++i) {
    ExampleBuilder example;
    example.set("image", std::string_view(std::string(size, static_cast<char>(i))));
    example.set("values", std::vector<float>{1, 2, static_cast<float>(i)});
    writer.write(example.serialize());
  }
  writer.close();
  return file;
}

TEST(MemoryTest, ACacheHoldsTheElementsAndNoFiles) {
  const TemporaryFolder folder;
  const std::string file = write_records(folder, 10, 1000);
  const auto records = tfrecords(file);
  const auto values = records.map(parse_example({{"values", FixedLen{at::kFloat, {3}}}}));
  EXPECT_EQ(held_bytes(records), 0U) << "pointers into the file";
  const auto cached_records = records.cache();
  const auto cached_values = values.cache();
  const Texts expected_records = all_of(cached_records);
  const Texts expected_values = all_of(cached_values);
  EXPECT_GT(held_bytes(cached_records), 10'000U);
  EXPECT_LT(held_bytes(cached_records), 12'000U);
  EXPECT_EQ(held_bytes(cached_values), 10U * 12);
  // A cache that pointed into the file would end the process here.
  std::filesystem::resize_file(file, 0);
  EXPECT_EQ(all_of(cached_records), expected_records);
  EXPECT_EQ(all_of(cached_values), expected_values);
}

TEST(MemoryTest, ACacheHoldsNoWholeBatchesOrTables) {
  const at::Tensor table = at::arange(40'000).view({4, 10'000});
  const auto cached = from_tensor_slices(table).cache();
  all_of(cached);
  table.zero_();
  EXPECT_EQ(cached.collect().at(3)[9'999].item<int64_t>(), 39'999);
  const auto crops = range(4).map([](int64_t i) { return at::full({100'000}, i).slice(0, 0, 10); }).cache();
  crops.collect();
  for (const at::Tensor& crop : crops) EXPECT_LE(crop.storage().nbytes(), 1000U);
}

/// Batches of which it is known how many live.
Dataset<at::Tensor> counted_batches(std::atomic<int>& alive, int64_t batches, int64_t rows, int64_t width) {
  return range(batches).map([&alive, rows, width](int64_t i) {
    ++alive;
    auto memory = std::make_shared<std::vector<int64_t>>(static_cast<size_t>(rows * width), i);
    return at::from_blob(
        memory->data(), {rows, width}, [memory, &alive](void*) mutable { memory.reset(), --alive; }, at::kLong);
  });
}

TEST(MemoryTest, RowsThatWaitDoNotHoldTheirBatches) {
  std::atomic<int> alive = 0;
  {
    const auto rows = counted_batches(alive, 50, 8, 100).unbatch().shuffle(200, {.seed = 1});
    auto iterator = rows.iterator();
    int most = 0;
    while (iterator.next()) most = std::max(most, alive.load());
    EXPECT_LE(most, 3);
  }
  {
    const auto rows = counted_batches(alive, 50, 8, 100).unbatch().shuffle(200, {.seed = 1}).skip(100);
    auto iterator = rows.iterator();
    int most = 0;
    while (iterator.next()) most = std::max(most, alive.load());
    EXPECT_LE(most, 3) << "after a skip";
  }
  {
    const auto longest = [](const at::Tensor& row) { return row[0].item<int64_t>() + 1; };
    const auto rows = counted_batches(alive, 50, 8, 100).unbatch();
    const auto buckets = rows.bucket_by_length(longest, {10, 20, 30, 40}, {100, 100, 100, 100, 100});
    auto iterator = buckets.iterator();
    int most = 0;
    while (iterator.next()) most = std::max(most, alive.load());
    EXPECT_LE(most, 3) << "in buckets";
  }
  EXPECT_EQ(alive, 0);
}

TEST(MemoryTest, ValuesThatWaitDoNotHoldTheirRecords) {
  const TemporaryFolder folder;
  const std::string file = write_records(folder, 10, 100'000, Compression::Gzip);
  const auto values = tfrecords(file).map(parse_example({{"values", FixedLen{at::kFloat, {3}}}}));
  EXPECT_GE(held_bytes(values), 1'000'000U);
  EXPECT_EQ(held_bytes(values.shuffle(10)), 10U * 12);
}

TEST(MemoryTest, ATableIsNotCopiedByAShuffle) {
  const at::Tensor table = at::arange(40'000).view({4, 10'000});
  for (const char* address : addresses_of(from_tensor_slices(table).shuffle(4))) {
    const auto* begin = static_cast<const char*>(table.data_ptr());
    EXPECT_TRUE(address >= begin && address < begin + table.nbytes());
  }
}

}  // namespace
}  // namespace lockstep::data
