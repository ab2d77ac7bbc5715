#include "lockstep/data/formats/records/record_writer.h"

#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/data/formats/records/record_reader.h"
#include "tests/data/formats/fixtures.h"
#include "tests/data/formats/temporary_folder.h"

namespace lockstep::data {
namespace {

using ::testing::HasSubstr;
using tests::message_of;
using tests::TemporaryFolder;

std::string compressible_bytes(size_t size) {
  std::string bytes(size, '\0');
  uint32_t state = 1;
  for (size_t i = 0; i < size; ++i) {
    state = state * 1664525 + 1013904223;
    bytes[i] = static_cast<char>(i % 3 == 0 ? state >> 24 : 0);
  }
  return bytes;
}

class RecordWriterTest : public ::testing::TestWithParam<Compression> {};

TEST_P(RecordWriterTest, WhatIsWrittenIsRead) {
  const std::vector<size_t> sizes{0, 1, 2, 3, 7, 8, 9, 100, 1000, 4096, 65535, 65536, 65537, 262144, 300000, 1 << 20};
  const TemporaryFolder folder;
  RecordWriter writer(folder / "file", {.compression = GetParam()});
  for (const size_t size : sizes) writer.write(compressible_bytes(size));
  EXPECT_EQ(writer.records_written(), static_cast<int64_t>(sizes.size()));
  writer.close();
  writer.close();
  EXPECT_THROW(writer.write("late"), c10::ValueError);

  RecordReader reader(folder / "file");
  EXPECT_EQ(reader.compression(), GetParam());
  Bytes record;
  for (const size_t size : sizes) {
    ASSERT_TRUE(reader.next(record)) << size;
    ASSERT_EQ(record, Bytes(compressible_bytes(size)));
  }
  EXPECT_FALSE(reader.next(record));
}

TEST_P(RecordWriterTest, AFileOfNoRecordsIsSound) {
  const TemporaryFolder folder;
  RecordWriter(folder / "file", {.compression = GetParam()}).close();
  RecordReader reader(folder / "file", {.compression = GetParam()});
  Bytes record;
  EXPECT_FALSE(reader.next(record));
}

TEST_P(RecordWriterTest, ReadersSeeFlushedRecords) {
  const TemporaryFolder folder;
  RecordWriter writer(folder / "file", {.compression = GetParam()});
  writer.write("one");
  writer.flush();
  RecordReader reader(folder / "file");
  Bytes record;
  ASSERT_TRUE(reader.next(record));
  EXPECT_EQ(record, Bytes("one"));
}

TEST_P(RecordWriterTest, TheDestructorAndAnotherWriterEndTheFile) {
  const TemporaryFolder folder;
  {
    RecordWriter writer(folder / "a", {.compression = GetParam()});
    writer.write("one");
    writer = RecordWriter(folder / "b", {.compression = GetParam()});
    writer.write("two");
  }
  for (const auto& [name, content] : {std::pair{"a", "one"}, std::pair{"b", "two"}}) {
    RecordReader reader(folder / name);
    Bytes record;
    ASSERT_TRUE(reader.next(record));
    EXPECT_EQ(record, Bytes(content));
    EXPECT_FALSE(reader.next(record));
  }
}

INSTANTIATE_TEST_SUITE_P(Compressions, RecordWriterTest,
                         ::testing::Values(Compression::None, Compression::Gzip, Compression::Zlib),
                         [](const auto& info) { return c10::str(info.param); });

TEST(RecordWriterErrorTest, NamesTheFileAndTheSystemsReason) {
  EXPECT_EQ(message_of([] { RecordWriter("/nowhere/file"); }),
            "[tfrecord_writer] the file must be writable: file=\"/nowhere/file\" (No such file or directory)");
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  RecordWriter writer("/dev/full");
  writer.write("lost");
  EXPECT_EQ(message_of([&] { writer.close(); }),
            "[tfrecord_writer] the file could not be written: file=\"/dev/full\" (No space left on device)");
}

TEST(RecordWriterErrorTest, RefusesToGuess) {
  EXPECT_THROW(RecordWriter("/tmp/x", {.compression = Compression::Auto}), c10::ValueError);
}

}  // namespace
}  // namespace lockstep::data
