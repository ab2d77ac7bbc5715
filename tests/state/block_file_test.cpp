#include "lockstep/state/block_file.h"

#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/crc32c.h"
#include "lockstep/state/aligned_memory.h"
#include "lockstep/state/file_writer.h"
#include "tests/support/message_of.h"
#include "tests/support/test_folder.h"

namespace lockstep::tests {
namespace {

using detail::BlockFile;
using detail::kBlockBytes;
using ::testing::HasSubstr;

std::string numbered_bytes(size_t count) {
  std::string bytes(count, '\0');
  uint32_t number = 1;
  for (char& byte : bytes) byte = static_cast<char>((number = number * 1664525 + 1013904223) >> 24);
  return bytes;
}

std::vector<uint32_t> sums_of(const std::string& bytes) {
  std::vector<uint32_t> sums;
  for (size_t i = 0; i < bytes.size(); i += kBlockBytes) {
    sums.push_back(crc32c(std::string_view(bytes).substr(i, kBlockBytes)));
  }
  return sums;
}

TEST(WriteFile, WritesAllBytesAndTheirChecksums) {
  const TestFolder folder;
  const std::string bytes = numbered_bytes(static_cast<size_t>(9 * kBlockBytes + 4096 + 77));
  const std::string_view view = bytes;
  for (const bool direct : {false, true}) {
    for (const size_t size : {size_t{0}, size_t{5}, size_t{4096}, static_cast<size_t>(4 * kBlockBytes), bytes.size()}) {
      const std::string path = folder / ("file_" + std::to_string(direct) + std::to_string(size));
      const size_t third = size / 3;
      const std::vector<std::string_view> parts = {view.substr(0, third), {}, view.substr(third, size - third)};
      EXPECT_EQ(detail::write_file(path, parts, true, direct), sums_of(bytes.substr(0, size)));
      EXPECT_TRUE(bytes_of(path) == bytes.substr(0, size)) << size;
    }
  }
}

TEST(WriteFile, TakesManySmallParts) {
  const TestFolder folder;
  const std::string bytes = numbered_bytes(20000);
  std::vector<std::string_view> parts;
  for (size_t i = 0; i < bytes.size(); i += 4) parts.push_back(std::string_view(bytes).substr(i, 4));
  for (const bool direct : {false, true}) {
    const std::string path = folder / std::to_string(direct);
    EXPECT_EQ(detail::write_file(path, parts, false, direct), sums_of(bytes));
    EXPECT_EQ(bytes_of(path), bytes);
  }
}

TEST(WriteFile, KeepsAFileThatIsThere) {
  const TestFolder folder;
  write_bytes(folder / "file", "old");
  EXPECT_THAT(message_of([&] { detail::write_file(folder / "file", {"new"}, true, true); }), HasSubstr("exists"));
  EXPECT_EQ(bytes_of(folder / "file"), "old");
  EXPECT_THAT(message_of([&] { detail::write_file(folder / "no/file", {"new"}, true, true); }),
              HasSubstr("No such file"));
}

TEST(WriteFile, WritesAlignedMemoryFromWhereItIs) {
  const TestFolder folder;
  const int64_t size = 5 * kBlockBytes + 4096 + 77;
  const std::string bytes = numbered_bytes(static_cast<size_t>(size));
  const detail::AlignedMemory memory = detail::aligned_memory(6 * kBlockBytes);
  std::memcpy(memory.get(), bytes.data(), bytes.size());
  // A header of one page, one of half a page, and aligned memory in two parts that follow each other.
  for (const size_t header_size : {size_t{4096}, size_t{2048}}) {
    const std::string header = numbered_bytes(header_size);
    const std::string path = folder / std::to_string(header_size);
    const std::vector<std::string_view> parts = {
        header, {memory.get(), 1000}, {memory.get() + 1000, bytes.size() - 1000}};
    EXPECT_EQ(detail::write_file(path, parts, true, true), sums_of(header + bytes));
    EXPECT_TRUE(bytes_of(path) == header + bytes) << header_size;
  }
}

class BlockFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    write_bytes(path, bytes);
    sums = sums_of(bytes);
  }

  /// Reads the parts with these offsets and sizes, and compares them.
  void expect_parts(const std::vector<std::pair<int64_t, int64_t>>& parts) {
    const BlockFile file(path, sums);
    std::vector<std::string> read;
    std::vector<BlockFile::Range> ranges;
    for (const auto& [offset, size] : parts) read.emplace_back(static_cast<size_t>(size), '\0');
    for (size_t i = 0; i < parts.size(); ++i) ranges.push_back({parts[i].first, read[i]});
    file.read(ranges);
    for (size_t i = 0; i < parts.size(); ++i) {
      EXPECT_TRUE(read[i] == bytes.substr(static_cast<size_t>(parts[i].first), read[i].size())) << i;
    }
  }

  TestFolder folder;
  std::string path = folder / "file";
  std::string bytes = numbered_bytes(static_cast<size_t>(3 * kBlockBytes + 100));
  std::vector<uint32_t> sums;
};

TEST_F(BlockFileTest, ReadsParts) {
  expect_parts({{0, 3 * kBlockBytes + 100}});
  expect_parts({{5, 3}});
  expect_parts({{5, 3}, {8, 1}, {9, 0}, {kBlockBytes - 2, 5}, {2 * kBlockBytes, kBlockBytes + 100}});
  expect_parts({{3 * kBlockBytes + 99, 1}});
  expect_parts({});
  std::vector<std::pair<int64_t, int64_t>> many;
  for (int64_t i = 0; i < 3000; ++i) many.emplace_back(i * 700, 3);
  expect_parts(many);
  bytes = numbered_bytes(static_cast<size_t>(11 * kBlockBytes + 4097));
  SetUp();
  expect_parts({{1, 11 * kBlockBytes + 4090}});
  expect_parts({{3, 2 * kBlockBytes}, {6 * kBlockBytes, 5 * kBlockBytes + 4097}});
  sums.clear();
  expect_parts({{5, 3}, {kBlockBytes - 2, 5}});
}

TEST_F(BlockFileTest, FindsDamageOfTheBlocksThatItReads) {
  bytes[static_cast<size_t>(kBlockBytes) + 10] ^= 1;
  write_bytes(path, bytes);
  expect_parts({{0, 100}, {2 * kBlockBytes, 100}});
  EXPECT_THAT(message_of([&] { expect_parts({{2 * kBlockBytes - 1, 1}}); }), HasSubstr("is damaged"));
  EXPECT_THAT(message_of([&] { BlockFile(path, sums).verify(); }), HasSubstr("from 1048576 to 2097152"));
}

TEST_F(BlockFileTest, RefusesAFileOfAnotherLength) {
  write_bytes(path, bytes.substr(0, 2 * kBlockBytes));
  EXPECT_THAT(message_of([&] { BlockFile(path, sums); }), HasSubstr("cut"));
  EXPECT_THROW(BlockFile(folder.path(), {}), DataError);
  EXPECT_THROW(BlockFile(folder / "absent", {}), DataError);
  const BlockFile file(path, {});
  std::string target(10, '\0');
  const BlockFile::Range range{2 * kBlockBytes - 5, target};
  EXPECT_THAT(message_of([&] { file.read({&range, 1}); }), HasSubstr("ends too early"));
}

TEST_F(BlockFileTest, NoticesAFileThatIsCutWhileItIsOpen) {
  const BlockFile file(path, sums);
  std::filesystem::resize_file(path, 100);
  EXPECT_THAT(message_of([&] { file.verify(); }), HasSubstr("ends too early"));
}

}  // namespace
}  // namespace lockstep::tests
