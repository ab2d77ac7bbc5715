#include "lockstep/data/formats/stream/file_access.h"

#include <cstdlib>

#include <gmock/gmock.h>
#include <torch/types.h>

#include "lockstep/base/error.h"
#include "lockstep/data/files.h"
#include "lockstep/data/formats/archive/tar.h"
#include "lockstep/data/formats/numpy/npy.h"
#include "lockstep/data/formats/records/record_reader.h"
#include "lockstep/data/formats/records/record_writer.h"
#include "tests/data/formats/temporary_folder.h"
#include "tests/data/formats/written_records.h"
#include "tests/data/pipelines.h"

namespace lockstep::data {
namespace {

using namespace tests;  // NOLINT
using ::testing::AllOf;
using ::testing::HasSubstr;

/// Sets the variable for the time of a test.
class AccessVariable {
 public:
  explicit AccessVariable(const char* value) { ::setenv("LOCKSTEP_FILE_ACCESS", value, 1); }
  ~AccessVariable() { ::unsetenv("LOCKSTEP_FILE_ACCESS"); }
};

bool owns_its_memory(const Bytes& bytes) { return bytes.buffer()->held_bytes() > 0; }

TEST(FileAccessTest, RecordsAreTheSame) {
  const TemporaryFolder folder;
  const std::vector<size_t> sizes{0, 1, 70'000, 3, 2'500'000, 0, 900'000, 12, 1'048'560, 40};
  for (const Compression compression : {Compression::None, Compression::Gzip, Compression::Zlib}) {
    const std::string file = write_records(folder / "records", sizes, compression);
    for (const FileAccess access : kBoth) {
      for (int64_t skip = 0; skip <= 10; ++skip) {
        RecordReader reader(file, {.access = access});
        EXPECT_EQ(reader.skip(skip), skip);
        EXPECT_EQ(reader.compression(), compression);
        auto i = static_cast<size_t>(skip);
        for (Bytes record; reader.next(record); ++i) {
          ASSERT_TRUE(record.view() == std::string(sizes.at(i), static_cast<char>('a' + i)))
              << access << " " << compression << " record " << i;
        }
        EXPECT_EQ(i, sizes.size());
      }
    }
  }
}

TEST(FileAccessTest, WellBehavedDatasetsInBothWays) {
  const TemporaryFolder folder;
  const std::vector<std::string> files{write_records(folder / "a", {3, 0, 5}), write_records(folder / "b", {}),
                                       write_records(folder / "c", {2, 2})};
  write_whole_file(folder / "lines", "one\r\ntwo\n\nlast");
  write_whole_file(folder / "fixed", "HHaabbccF");
  write_whole_file(folder / "table", "1,x\n2,\"y\nz\"\n3,\n");
  for (const FileAccess access : kBoth) {
    expect_well_behaved(tfrecords(files, {.access = access}));
    EXPECT_EQ(all_of(tfrecords(files, {.access = access})), all_of(tfrecords(files)));
    const auto lines = text_lines(folder / "lines", {.access = access});
    EXPECT_EQ(all_of(lines), (Texts{"b'one'", "b'two'", "b''", "b'last'"}));
    expect_well_behaved(lines);
    const auto fixed = fixed_length_records(
        folder / "fixed", {.record_bytes = 2, .header_bytes = 2, .footer_bytes = 1, .access = access});
    EXPECT_EQ(all_of(fixed), (Texts{"b'aa'", "b'bb'", "b'cc'"}));
    expect_well_behaved(fixed);
    EXPECT_THROW(fixed_length_records(folder / "fixed", {.record_bytes = 5, .access = access}).collect(), DataError);
    const auto rows = csv<std::tuple<int64_t, std::string>>(folder / "table", {.access = access});
    EXPECT_EQ(all_of(rows), (Texts{"1, b'x'", "2, b'y\\nz'", "3, b''"}));
    expect_well_behaved(rows);
    EXPECT_THAT(message_of([&] { tfrecords(folder / "none", {.access = access}).collect(); }), HasSubstr("none"));
    EXPECT_THAT(message_of([&] { tfrecords(folder / "", {.access = access}).collect(); }), HasSubstr("a plain file"));
  }
}

TEST(FileAccessTest, TarShardsInBothWays) {
  const TemporaryFolder folder;
  try {
    TarWriter shard(folder / "a.tar");
    for (int i = 0; i < 5; ++i) {
      shard.write(std::to_string(i) + ".bin", std::string(static_cast<size_t>(i) * 700'000, 'x'));
      shard.write(std::to_string(i) + ".cls", std::to_string(i));
    }
    shard.close();
  } catch (const c10::NotImplementedError& error) {
    GTEST_SKIP() << error.what_without_backtrace();
  }
  for (const FileAccess access : kBoth) {
    const auto samples = tar_samples(folder / "a.tar", access);
    const auto all = samples.collect();
    ASSERT_EQ(all.size(), 5U);
    EXPECT_EQ(all[4].get<Bytes>("bin").size(), 2'800'000U);
    EXPECT_EQ(all[4].get<std::string>("cls"), "4");
    std::string cut = read_whole_file(folder / "a.tar");
    write_whole_file(folder / "cut.tar", cut.substr(0, 1'000'000));
    const auto some = tar_samples(folder / "cut.tar", access);
    const Texts rest = rest_of(*detail::node_of(some)->iterator({}));
    ASSERT_EQ(rest.size(), 3U);  // the third sample is cut
    EXPECT_EQ(std::count(rest.begin(), rest.end(), "error"), 1);
    EXPECT_EQ(rest.back(), "error");
    expect_skip_is_exact(detail::node_of(some), {0});
  }
}

// Nobody knows whether the file behind a damaged header belongs to the sample before it.
TEST(FileAccessTest, TheSampleBeforeADamagedHeaderOfATarShardIsWholeIfItHasTheKindsOfTheOneBefore) {
  const TemporaryFolder folder;
  try {
    TarWriter shard(folder / "a.tar");
    for (int i = 0; i < 4; ++i) {
      shard.write(std::to_string(i) + ".bin", std::string(100, 'x'));
      shard.write(std::to_string(i) + ".cls", std::to_string(i));
    }
    shard.close();
  } catch (const c10::NotImplementedError& error) {
    GTEST_SKIP() << error.what_without_backtrace();
  }
  const std::string whole = read_whole_file(folder / "a.tar");
  // Every file has a header and contents of 512 bytes.
  for (const auto& [damaged, samples] :
       std::vector<std::pair<size_t, size_t>>{{1, 0}, {2, 0}, {3, 1}, {4, 2}, {6, 3}}) {
    std::string bytes = whole;
    bytes[damaged * 1024 + 150] = 'z';  // its checksum
    write_whole_file(folder / "damaged.tar", bytes);
    for (const FileAccess access : kBoth) {
      const auto some = detail::node_of(tar_samples(folder / "damaged.tar", access));
      const Texts rest = rest_of(*some->iterator({}));
      EXPECT_EQ(rest.size(), samples + 1) << damaged;
      EXPECT_EQ(rest.back(), "error");
      EXPECT_EQ(std::count(rest.begin(), rest.end(), "error"), 1);
      expect_skip_is_exact(some, {0});
    }
  }
}

TEST(FileAccessTest, DamageIsTheSame) {
  const TemporaryFolder folder;
  const std::string whole = read_whole_file(write_records(folder / "whole", {10, 20, 30, 40}));
  for (size_t at = 0; at < whole.size(); at += 3) {
    for (const bool cut : {false, true}) {
      std::string bytes = whole;
      bytes[at] ^= 4;
      write_whole_file(folder / "bad", cut ? whole.substr(0, at) : bytes);
      const std::vector<std::string> files{folder / "bad", folder / "whole"};
      const Texts expected = all_of(tfrecords(files, {.access = FileAccess::Map}));
      EXPECT_EQ(all_of(tfrecords(files, {.access = FileAccess::Read})), expected) << at << " " << cut;
      expect_skip_is_exact(detail::node_of(tfrecords(files, {.access = FileAccess::Read})), {0});
    }
  }
}

TEST(FileAccessTest, TheVariableSelects) {
  const TemporaryFolder folder;
  const std::string file = write_records(folder / "records", {10});
  const auto owns = [&] { return owns_its_memory(tfrecords(file).collect().at(0)); };
  EXPECT_FALSE(owns()) << "a local file is mapped";
  {
    const AccessVariable variable("read");
    EXPECT_TRUE(owns());
    EXPECT_FALSE(owns_its_memory(tfrecords(file, {.access = FileAccess::Map}).collect().at(0))) << "options win";
  }
  {
    const AccessVariable variable("map");
    EXPECT_FALSE(owns());
    EXPECT_TRUE(owns_its_memory(tfrecords(file, {.access = FileAccess::Read}).collect().at(0)));
  }
  const AccessVariable variable("mmap");
  EXPECT_THAT(message_of(owns), HasSubstr("must be auto, map or read: LOCKSTEP_FILE_ACCESS=\"mmap\""));
}

TEST(FileAccessTest, KnowsNetworkFileSystemsAndWhatIsLargerThanMemory) {
  EXPECT_TRUE(detail::is_network_file_system(0x6969));
  EXPECT_TRUE(detail::is_network_file_system(0xFFFFFFFFFF534D42)) << "a number with a sign";
  EXPECT_FALSE(detail::is_network_file_system(0xEF53)) << "ext4";
  EXPECT_GT(detail::memory_bytes(), uint64_t{1} << 20);
  const uint64_t before = detail::OpenedBytes::add(~uint64_t{0}, 1, 100);
  EXPECT_EQ(detail::OpenedBytes::add(~uint64_t{0}, 1, 100), before) << "a file counts once";
  EXPECT_EQ(detail::OpenedBytes::add(~uint64_t{0}, 1, 40), before - 60) << "it has another size now";
  EXPECT_EQ(detail::OpenedBytes::add(~uint64_t{0}, 2, 10), before - 50);
  const TemporaryFolder folder;
  const std::string file = write_records(folder / "records", {10});
  EXPECT_EQ(detail::resolve_access(FileAccess::Auto, file), FileAccess::Map);
  detail::OpenedBytes::add(~uint64_t{0}, 3, detail::memory_bytes());
  EXPECT_EQ(detail::resolve_access(FileAccess::Auto, file), FileAccess::Read);
  detail::OpenedBytes::add(~uint64_t{0}, 3, 0);
  EXPECT_EQ(detail::resolve_access(FileAccess::Auto, file), FileAccess::Map);
}

}  // namespace
}  // namespace lockstep::data
