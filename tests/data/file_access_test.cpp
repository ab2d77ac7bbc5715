#include "lockstep/data/formats/stream/file_access.h"

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <sys/mman.h>

#include <gmock/gmock.h>
#include <torch/types.h>

#include "lockstep/base/error.h"
#include "lockstep/data/files.h"
#include "lockstep/data/formats/archive/tar.h"
#include "lockstep/data/formats/numpy/npy.h"
#include "lockstep/data/formats/records/record_reader.h"
#include "lockstep/data/formats/records/record_writer.h"
#include "tests/data/formats/temporary_folder.h"
#include "tests/data/pipelines.h"

namespace lockstep::data {
namespace {

using namespace tests;  // NOLINT
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr FileAccess kBoth[] = {FileAccess::Map, FileAccess::Read};

/// Sets the variable for the time of a test.
class AccessVariable {
 public:
  explicit AccessVariable(const char* value) { ::setenv("LOCKSTEP_FILE_ACCESS", value, 1); }
  ~AccessVariable() { ::unsetenv("LOCKSTEP_FILE_ACCESS"); }
};

std::string write_records(const std::string& file, const std::vector<size_t>& sizes,
                          Compression compression = Compression::None) {
  RecordWriter writer(file, {.compression = compression});
  char letter = 'a';
  for (const size_t size : sizes) writer.write(std::string(size, letter++));
  writer.close();
  return file;
}

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

// ---- Files that are cut while they are read.

constexpr int64_t kLeft = 8192;

TEST(CutFileTest, IsAnErrorAndTheNextFileIsRead) {
  for (const FileAccess access : kBoth) {
    const TemporaryFolder folder;
    const std::string file = write_records(folder / "records", std::vector<size_t>(3000, 1000));
    const std::string next = write_records(folder / "next", {7});
    const auto records = tfrecords(std::vector{file, next}, {.access = access});
    auto iterator = records.iterator();
    ASSERT_TRUE(iterator.next());
    std::filesystem::resize_file(file, kLeft);
    std::string message = "no error";
    int64_t read = 1;
    for (; message == "no error" && read < 5000; ++read) message = message_of([&] { iterator.next(); });
    EXPECT_THAT(message, AllOf(HasSubstr("[tfrecords]"), HasSubstr("file=\"" + file + "\""), HasSubstr("offset=")))
        << access;
    EXPECT_LT(read, 2000);
    const auto last = iterator.next();
    ASSERT_TRUE(last.has_value()) << access;
    EXPECT_EQ(last->size(), 7U);
    EXPECT_FALSE(iterator.next());
  }
}

TEST(CutFileTest, WhatWaitedInABufferIsAnErrorToo) {
  const TemporaryFolder folder;
  write_whole_file(folder / "fixed", std::string(100'000, 'x'));
  const auto rows = fixed_length_records(folder / "fixed", {.record_bytes = 1000, .access = FileAccess::Map});
  const auto parse = [](const Bytes& bytes) { return std::count(bytes.view().begin(), bytes.view().end(), 'x'); };
  const auto counted = rows.shuffle(100, {.seed = 1}).map(parse);
  auto iterator = counted.iterator();
  EXPECT_EQ(iterator.next(), 1000);
  std::filesystem::resize_file(folder / "fixed", kLeft);
  int64_t errors = 0;
  int64_t values = 0;
  for (bool more = true; more;) {
    try {
      const auto value = iterator.next();
      more = value.has_value();
      if (more) {
        EXPECT_EQ(*value, 1000) << "zeros must not be taken for data";
        ++values;
      }
    } catch (const DataError& error) {
      EXPECT_THAT(error.what_without_backtrace(), HasSubstr("fixed"));
      ++errors;
    }
  }
  EXPECT_GE(errors, 90);
  EXPECT_EQ(values + errors, 100) << "one error is that of the end of the file";
}

// The rest of the last page reads as zeros, without a signal.
TEST(CutFileTest, AFileThatIsCutInsideItsLastPageIsAnError) {
  const TemporaryFolder folder;
  const auto errors_of = [&](auto dataset, size_t size, int64_t left) {
    std::string lines;
    while (lines.size() < size) lines += "1," + std::string(7, 'y') + "\n";
    write_whole_file(folder / "file", lines);
    auto iterator = dataset().iterator();
    iterator.next();
    std::filesystem::resize_file(folder / "file", left);
    std::string message = "no error";
    for (bool more = true; more && message == "no error";) {
      message = message_of([&] { more = iterator.next().has_value(); });
    }
    std::filesystem::remove(folder / "file");
    return message;
  };
  for (const auto& [size, left] : std::vector<std::pair<size_t, int64_t>>{{3000, 100}, {12'000, 8292}, {12'000, 100}}) {
    const auto in_file = HasSubstr("file=\"" + (folder / "file") + "\"");
    EXPECT_THAT(errors_of([&] { return text_lines(folder / "file", {.access = FileAccess::Map}); }, size, left),
                in_file);
    EXPECT_THAT(
        errors_of([&] { return csv<std::tuple<int64_t, std::string>>(folder / "file", {.access = FileAccess::Map}); },
                  size, left),
        HasSubstr("file"));
    EXPECT_THAT(
        errors_of(
            [&] { return fixed_length_records(folder / "file", {.record_bytes = 10, .access = FileAccess::Map}); },
            size, left),
        in_file);
  }
}

TEST(CutFileTest, BytesThatALoopOrAFunctionReads) {
  const TemporaryFolder folder;
  const auto sum_of = [](const Bytes& bytes) { return std::count(bytes.view().begin(), bytes.view().end(), 'x'); };
  const auto rows = [&] {
    write_whole_file(folder / "fixed", std::string(100'000, 'x'));
    return fixed_length_records(folder / "fixed", {.record_bytes = 1000, .access = FileAccess::Map})
        .shuffle(100, {.seed = 1});
  };
  const auto cut = [&] { std::filesystem::resize_file(folder / "fixed", kLeft); };
  int64_t zeros = 0;
  EXPECT_THROW(
      {
        for (const Bytes& bytes : rows()) {
          cut();
          zeros += sum_of(bytes) == 0 ? 1 : 0;
        }
      },
      DataError);
  EXPECT_LE(zeros, 1) << "the error comes with the next element";
  std::filesystem::remove(folder / "fixed");
  const auto flat = rows().flat_map([&](const Bytes& bytes) { return cut(), range(sum_of(bytes)); });
  EXPECT_THROW(flat.collect(), DataError);
  std::filesystem::remove(folder / "fixed");
  const auto bucketed = rows().bucket_by_length([&](const Bytes& bytes) { return cut(), sum_of(bytes); }, {10}, {2, 2});
  EXPECT_THROW(bucketed.collect(), DataError);
}

TEST(CutFileTest, RowsTextsAndTables) {
  const TemporaryFolder folder;
  std::string lines;
  for (int i = 0; i < 4000; ++i) lines += "1," + std::string(20, 'y') + "\n";
  const auto expect_error = [&](auto dataset, int64_t taken) {
    write_whole_file(folder / "text", lines);
    auto iterator = dataset().iterator();
    for (int64_t i = 0; i < taken; ++i) ASSERT_TRUE(iterator.next());
    std::filesystem::resize_file(folder / "text", kLeft);
    int errors = 0;
    int calls = 0;
    for (bool more = true; more && calls < 10'000; ++calls) {
      try {
        more = iterator.next().has_value();
      } catch (const DataError&) {
        ++errors;
      }
    }
    EXPECT_EQ(errors, 1);
    EXPECT_LT(calls, 4000);
    std::filesystem::remove(folder / "text");
  };
  expect_error([&] { return text_lines(folder / "text", {.access = FileAccess::Map}); }, 3);
  expect_error([&] { return csv<std::tuple<int64_t, std::string>>(folder / "text", {.access = FileAccess::Map}); }, 3);
}

TEST(CutFileTest, ACacheFileThatIsCutIsAnError) {
  const TemporaryFolder folder;
  const auto made = range(100).map([](int64_t i) { return at::full({1000}, i); });
  const auto cached = made.cache(folder / "cache");
  EXPECT_EQ(all_of(cached, 0, 200).size(), 100U);
  auto iterator = made.cache(folder / "cache").batch(10).iterator();
  ASSERT_TRUE(iterator.next());
  std::filesystem::resize_file(folder / "cache", kLeft);
  int batches = 0;
  std::string message = "no error";
  while (message == "no error" && batches < 20) message = message_of([&] { iterator.next(), ++batches; });
  EXPECT_THAT(message, HasSubstr("[cache]"));
}

TEST(CutFileDeathTest, AnArrayThatAUserReadsEndsTheProcessWithItsName) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const TemporaryFolder folder;
  save_npy(folder / "x.npy", at::ones({100'000}));
  EXPECT_DEATH(
      {
        const at::Tensor x = load_npy(folder / "x.npy");
        std::filesystem::resize_file(folder / "x.npy", kLeft);
        std::exit(static_cast<int>(x.sum().item<float>()));
      },
      "could not be read.*x.npy.*offset=");
}

void leave_with_42(int) { ::_exit(42); }

TEST(CutFileDeathTest, OtherBusErrorsGoToTheHandlerThatWasThere) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const TemporaryFolder folder;
  const std::string file = write_records(folder / "records", std::vector<size_t>(100, 1000));
  EXPECT_EXIT(
      {
        std::signal(SIGBUS, leave_with_42);
        RecordReader reader(file, {.access = FileAccess::Map});  // installs the handler
        Bytes record;
        reader.next(record);
        // A mapping of somebody else.
        std::FILE* other = std::tmpfile();
        void* memory = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, ::fileno(other), 0);
        std::exit(*static_cast<volatile char*>(memory));
      },
      ::testing::ExitedWithCode(42), "");
}

}  // namespace
}  // namespace lockstep::data
