#include <fstream>

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/data/files.h"
#include "lockstep/data/formats/records/record_writer.h"
#include "tests/data/formats/temporary_folder.h"
#include "tests/data/pipelines.h"

namespace lockstep::data {
namespace {

using namespace tests;  // NOLINT
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// "0 0" .. "0 n-1" in file 0, and so on; each record has 16 + 3 bytes.
constexpr size_t kRecordSize = 19;

std::vector<std::string> write_files(const TemporaryFolder& folder, int files, int records,
                                     Compression compression = Compression::None) {
  std::vector<std::string> names;
  for (int file = 0; file < files; ++file) {
    names.push_back(folder / std::to_string(file));
    RecordWriter writer(names.back(), {.compression = compression});
    for (int i = 0; i < records; ++i) writer.write(std::to_string(file) + " " + std::to_string(i));
    writer.close();
  }
  return names;
}

void flip(const std::string& file, size_t offset) {
  std::string bytes = read_whole_file(file);
  bytes.at(offset) ^= 1;
  write_whole_file(file, bytes);
}

struct Lines {
  Lines() {
    log::set_sink([this](log::Level, std::string_view line) { lines.emplace_back(line); });
  }
  ~Lines() { log::set_sink({}); }
  std::vector<std::string> lines;
};

TEST(DamageTest, TheRecordsBehindADamagedPayloadAndTheNextFilesAreRead) {
  const TemporaryFolder folder;
  const auto files = write_files(folder, 2, 3);
  flip(files[0], kRecordSize + 12);
  EXPECT_THAT(all_of(tfrecords(files)), ElementsAre("b'0 0'", "error", "b'0 2'", "b'1 0'", "b'1 1'", "b'1 2'"));
  expect_well_behaved(tfrecords(files));
}

TEST(DamageTest, ADamagedLengthOrACutEndsItsFileOnly) {
  const TemporaryFolder folder;
  const auto files = write_files(folder, 3, 3);
  flip(files[0], kRecordSize + 3);
  write_whole_file(files[1], read_whole_file(files[1]).substr(0, kRecordSize + 14));
  EXPECT_THAT(all_of(tfrecords(files)),
              ElementsAre("b'0 0'", "error", "b'1 0'", "error", "b'2 0'", "b'2 1'", "b'2 2'"));
  expect_well_behaved(tfrecords(files));
}

TEST(DamageTest, AFileThatCannotBeOpenedIsOneError) {
  const TemporaryFolder folder;
  auto files = write_files(folder, 2, 2);
  files.insert(files.begin() + 1, folder / "missing");
  EXPECT_THAT(all_of(tfrecords(files)), ElementsAre("b'0 0'", "b'0 1'", "error", "b'1 0'", "b'1 1'"));
  expect_well_behaved(tfrecords(files));
  const auto each = [](const std::string& file) { return tfrecords(file); };
  expect_well_behaved(from_vector(files).flat_map(each));
  expect_well_behaved(from_vector(files).interleave(each, {.cycle_length = 2}));
}

/// A gzip file of one stored block: its contents may be anything.
std::string stored_gzip(const std::string& bytes) {
  uint32_t crc = ~uint32_t{0};
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xEDB88320U : 0U);
  }
  std::string file("\x1f\x8b\x08\0\0\0\0\0\0\x03\x01", 11);
  const auto add = [&](uint64_t number, int count) {
    for (int i = 0; i < count; ++i) file += static_cast<char>(number >> (8 * i));
  };
  add(bytes.size(), 2);
  add(~bytes.size(), 2);
  file += bytes;
  add(~crc, 4);
  add(bytes.size(), 4);
  return file;
}

TEST(DamageTest, CompressedFilesGoOnBehindAPayload) {
  const TemporaryFolder folder;
  const auto files = write_files(folder, 2, 3);
  flip(files[0], kRecordSize + 12);
  write_whole_file(files[0], stored_gzip(read_whole_file(files[0])));
  const auto records = tfrecords(files[0], {.compression = Compression::Gzip});
  EXPECT_THAT(all_of(records), ElementsAre("b'0 0'", "error", "b'0 2'"));
  expect_well_behaved(records);
}

TEST(DamageTest, CompressedFilesEndAtDamagedData) {
  const TemporaryFolder folder;
  const auto names = write_files(folder, 2, 400, Compression::Gzip);
  const std::string whole = read_whole_file(names[0]);
  write_whole_file(names[0], whole.substr(0, whole.size() / 2));
  const Texts texts = all_of(tfrecords(names), 0, 2000);
  EXPECT_EQ(std::count(texts.begin(), texts.end(), "error"), 1);
  EXPECT_EQ(texts.back(), "b'1 399'");
  EXPECT_GT(texts.size(), 401U);
}

TEST(DamageTest, AnInterleavedDatasetEnds) {
  const TemporaryFolder folder;
  const auto files = write_files(folder, 4, 3);
  flip(files[1], 3);
  flip(files[2], kRecordSize + 12);
  for (const int threads : {1, 3}) {
    const auto records = from_vector(files).interleave([](const std::string& file) { return tfrecords(file); },
                                                       {.cycle_length = 3, .num_threads = threads});
    Texts texts = all_of(records, 0, 100);
    std::sort(texts.begin(), texts.end());
    EXPECT_THAT(texts, ElementsAre("b'0 0'", "b'0 1'", "b'0 2'", "b'2 0'", "b'2 2'", "b'3 0'", "b'3 1'", "b'3 2'",
                                   "error", "error"))
        << threads;
    expect_skip_is_exact(detail::node_of(records), {0});
  }
}

// Every worker skips the records of the others: an error must not move the records behind it to another worker.
TEST(DamageTest, ShardsOfADamagedFileHaveEveryRecordOnce) {
  const TemporaryFolder folder;
  const auto files = write_files(folder, 3, 4);
  flip(files[0], 2 * kRecordSize + 12);
  flip(files[1], kRecordSize + 3);
  const Texts all = all_of(tfrecords(files));
  Texts shards;
  for (int64_t i = 0; i < 3; ++i) {
    for (const std::string& text : all_of(tfrecords(files).shard(3, i))) shards.push_back(text);
  }
  EXPECT_THAT(shards, ::testing::UnorderedElementsAreArray(all));
}

TEST(DamageTest, LinesTablesAndRecordsOfOneLengthGoOn) {
  const TemporaryFolder folder;
  write_whole_file(folder / "a.csv", "1,x\n2,y\"z\n3,\"u\"v,4\n5\n6,w\nbad,w\n7,q\n");
  write_whole_file(folder / "b.csv", "8,r\n");
  const std::vector<std::string> tables{folder / "a.csv", folder / "b.csv"};
  const auto rows = csv<std::tuple<int64_t, std::string>>(tables);
  EXPECT_THAT(all_of(rows),
              ElementsAre("1, b'x'", "error", "error", "error", "6, b'w'", "error", "7, b'q'", "8, b'r'"));
  expect_well_behaved(rows);

  write_whole_file(folder / "a", "aabbc");
  write_whole_file(folder / "b", "ddee");
  const auto pairs = fixed_length_records(std::vector{folder / "a", folder / "b"}, {.record_bytes = 2});
  EXPECT_THAT(all_of(pairs), ElementsAre("error", "b'dd'", "b'ee'"));
  expect_well_behaved(pairs);
}

TEST(DamageTest, DamagedCompressedTextsEnd) {
  const TemporaryFolder folder;
  const auto records = write_files(folder, 1, 500, Compression::Gzip);  // any compressed file serves
  const std::string whole = read_whole_file(records[0]);
  write_whole_file(folder / "cut", whole.substr(0, whole.size() / 2));
  write_whole_file(folder / "sound", "last\n");
  const std::vector<std::string> files{folder / "cut", folder / "sound"};
  const Texts lines = all_of(text_lines(files), 0, 5000);
  EXPECT_EQ(lines.back(), "b'last'");
  EXPECT_EQ(std::count(lines.begin(), lines.end(), "error"), 1);
  const auto fixed =
      fixed_length_records(std::vector{folder / "cut"}, {.record_bytes = 4, .compression = Compression::Gzip});
  EXPECT_EQ(all_of(fixed, 0, 5000).back(), "error");
  const auto rows = csv<std::tuple<std::string>>(std::vector{folder / "cut"}, {.compression = Compression::Gzip});
  EXPECT_LT(all_of(rows, 0, 5000).size(), 5000U);
}

TEST(DamageTest, ADamagedCacheFileIsOneError) {
  const TemporaryFolder folder;
  write_whole_file(folder / "cache", "no cache");
  const auto cached = range(3).cache(folder / "cache");
  EXPECT_THAT(all_of(cached), ElementsAre("error"));
  EXPECT_THAT(all_of(cached.ignore_errors({.log = false})), ElementsAre());
}

TEST(IgnoreErrorsTest, LeavesOutWhatFails) {
  const auto good = failing(8, {0, 3, 4, 7}).ignore_errors({.log = false});
  EXPECT_THAT(all_of(good), ElementsAre("1", "2", "5", "6"));
  expect_well_behaved(good);
  expect_well_behaved(failing(8, {1, 2}).batch(2).ignore_errors({.log = false}));
  expect_well_behaved(range(5).ignore_errors());
  expect_well_behaved(range(0).ignore_errors());
  expect_well_behaved(failing(4, {1}).ignore_errors({.log = false}).cache());
  EXPECT_EQ(good.str(), "range(8).map().ignore_errors()");
  EXPECT_EQ(good.cardinality(), Cardinality::unknown());
  EXPECT_EQ(range(3).repeat().ignore_errors().cardinality(), Cardinality::infinite());
}

TEST(IgnoreErrorsTest, CountsAndReports) {
  const Lines log;
  const auto count = std::make_shared<std::atomic<int64_t>>(0);
  const auto good = failing(30, {1, 3}).ignore_errors({.count = count});
  EXPECT_EQ(all_of(good).size(), 28U);
  EXPECT_EQ(*count, 2);
  ASSERT_EQ(log.lines.size(), 3U);
  EXPECT_THAT(log.lines[0], HasSubstr("[ignore_errors] an element is left out: bad element"));
  EXPECT_THAT(log.lines[2], HasSubstr("[ignore_errors] 2 elements were left out: dataset=range(30).map()"));
  EXPECT_EQ(all_of(good).size(), 28U);
  EXPECT_EQ(*count, 4);
}

TEST(IgnoreErrorsTest, LogsTheFirstTenAndNothingWhereNothingFailsOrTheProgramSaysSo) {
  const Lines log;
  all_of(failing(20, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}).ignore_errors());
  EXPECT_EQ(log.lines.size(), 11U);
  all_of(range(20).ignore_errors());
  all_of(failing(20, {0, 1, 2}).ignore_errors({.log = false}));
  EXPECT_EQ(log.lines.size(), 11U);
}

TEST(IgnoreErrorsTest, ThrowsBeyondTheLimit) {
  const auto limited = failing(6, {0, 2, 4}).ignore_errors({.limit = 2, .log = false});
  EXPECT_THAT(all_of(limited), ElementsAre("1", "3", "error", "5"));
  EXPECT_THAT(all_of(limited), ElementsAre("1", "3", "error", "5")) << "the limit is of one iteration";
  EXPECT_THAT(all_of(failing(2, {0}).ignore_errors({.limit = 0})), ElementsAre("error", "1"));
  EXPECT_THROW(range(3).ignore_errors({.limit = -1}), c10::ValueError);
}

TEST(IgnoreErrorsTest, AnInputThatOnlyFailsIsAnError) {
  const auto endless = failing(1, {0}).repeat().ignore_errors({.log = false});
  EXPECT_THAT(message_of([&] { endless.iterator().next(); }), HasSubstr("the last error: bad element"));
}

TEST(IgnoreErrorsTest, ErrorsOfTheProgramAreThrown) {
  const auto wrong = range(3).map([](int64_t i) {
    LOCKSTEP_CHECK_CONTEXT(i != 1, "[test] not here");
    return i;
  });
  EXPECT_THAT(all_of(wrong.ignore_errors({.log = false})), ElementsAre("0", "error", "2"));
}

TEST(IgnoreErrorsTest, WorksBetweenThreads) {
  const auto records = range(40)
                           .interleave([](int64_t i) { return failing(5, {i % 5}).ignore_errors({.log = false}); },
                                       {.cycle_length = 4, .num_threads = 3})
                           .map(
                               [](int64_t i) {
                                 if (i == 2) throw std::runtime_error("bad");
                                 return i;
                               },
                               {.num_threads = 3})
                           .prefetch(2)
                           .ignore_errors({.log = false});
  const Texts texts = all_of(records, 0, 1000);
  EXPECT_EQ(texts.size(), 40U * 4 - 32U);
}

// A shard of a shuffle counts the elements ahead, and specs look at the first ones.
TEST(IgnoreErrorsTest, ErrorsAreCountedOnce) {
  const auto count = std::make_shared<std::atomic<int64_t>>(0);
  const auto records = failing(40, {1, 20}).ignore_errors({.log = false, .count = count});
  EXPECT_EQ(all_of(records.shuffle(8, {.seed = 1}).shard(4, 1)).size(), 10U);
  EXPECT_EQ(*count, 2);
  *count = 0;
  const auto mapped = records.map([](int64_t i) { return at::full({2}, i); });
  mapped.element_spec();
  EXPECT_EQ(*count, 0);
}

}  // namespace
}  // namespace lockstep::data
