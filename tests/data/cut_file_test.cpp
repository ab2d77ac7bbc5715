#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

#include <gmock/gmock.h>
#include <torch/types.h>

#include "lockstep/base/error.h"
#include "lockstep/data/files.h"
#include "lockstep/data/formats/numpy/npy.h"
#include "lockstep/data/formats/records/record_reader.h"
#include "tests/data/formats/temporary_folder.h"
#include "tests/data/formats/written_records.h"
#include "tests/data/pipelines.h"

// Files that are cut while they are read.
namespace lockstep::data {
namespace {

using namespace tests;  // NOLINT
using ::testing::AllOf;
using ::testing::HasSubstr;

/// Pages of this machine in pages of 4 KiB: files are as many times larger.
int64_t page_scale() { return ::sysconf(_SC_PAGESIZE) / 4096; }
/// What is left of a file: two pages.
int64_t left_bytes() { return 2 * ::sysconf(_SC_PAGESIZE); }
size_t scaled(int64_t bytes) { return static_cast<size_t>(bytes * page_scale()); }

TEST(CutFileTest, IsAnErrorAndTheNextFileIsRead) {
  for (const FileAccess access : kBoth) {
    const TemporaryFolder folder;
    const std::string file = write_records(folder / "records", std::vector<size_t>(3000, scaled(1000)));
    const std::string next = write_records(folder / "next", {7});
    const auto records = tfrecords(std::vector{file, next}, {.access = access});
    auto iterator = records.iterator();
    ASSERT_TRUE(iterator.next());
    std::filesystem::resize_file(file, left_bytes());
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
  const auto record_bytes = static_cast<int64_t>(scaled(1000));
  write_whole_file(folder / "fixed", std::string(scaled(100'000), 'x'));
  const auto rows = fixed_length_records(folder / "fixed", {.record_bytes = record_bytes, .access = FileAccess::Map});
  const auto parse = [](const Bytes& bytes) { return std::count(bytes.view().begin(), bytes.view().end(), 'x'); };
  const auto counted = rows.shuffle(100, {.seed = 1}).map(parse);
  auto iterator = counted.iterator();
  EXPECT_EQ(iterator.next(), record_bytes);
  std::filesystem::resize_file(folder / "fixed", left_bytes());
  int64_t errors = 0;
  int64_t values = 0;
  for (bool more = true; more;) {
    try {
      const auto value = iterator.next();
      more = value.has_value();
      if (more) {
        EXPECT_EQ(*value, record_bytes) << "zeros must not be taken for data";
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
  for (const auto& [size, left] : std::vector<std::pair<size_t, int64_t>>{
           {3000, 100}, {scaled(12'000), left_bytes() + 100}, {scaled(12'000), 100}}) {
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
    write_whole_file(folder / "fixed", std::string(scaled(100'000), 'x'));
    return fixed_length_records(folder / "fixed",
                                {.record_bytes = static_cast<int64_t>(scaled(1000)), .access = FileAccess::Map})
        .shuffle(100, {.seed = 1});
  };
  const auto cut = [&] { std::filesystem::resize_file(folder / "fixed", left_bytes()); };
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

/// Reads a page of a mapped file behind its end.
void read_unreadable_page(const std::string& file) {
  write_whole_file(file, std::string(scaled(100'000), 'x'));
  const Bytes bytes =
      fixed_length_records(file, {.record_bytes = static_cast<int64_t>(scaled(100'000)), .access = FileAccess::Map})
          .collect()
          .at(0);
  std::filesystem::resize_file(file, left_bytes());
  EXPECT_EQ(bytes.view()[bytes.size() - 1], 0);
  std::filesystem::remove(file);
}

// While a function runs, another thread meets a page of another file that cannot be read.
TEST(CutFileTest, AnUnreadablePageIsNoErrorOfOtherFiles) {
  const TemporaryFolder folder;
  write_whole_file(folder / "sound", std::string(100'000, 'x'));
  const auto rows = fixed_length_records(folder / "sound", {.record_bytes = 10'000, .access = FileAccess::Map});
  const auto read_beside = [&] { std::thread([&] { read_unreadable_page(folder / "other"); }).join(); };
  const auto size_of = [&](const Bytes& bytes) { return read_beside(), static_cast<int64_t>(bytes.size()); };
  EXPECT_EQ(rows.map(size_of).collect(), std::vector<int64_t>(10, 10'000));
  EXPECT_EQ(range(3).map([&](int64_t i) { return read_beside(), i; }).collect().size(), 3U);
  EXPECT_EQ(rows.flat_map([&](const Bytes& bytes) { return range(size_of(bytes) / 10'000); }).collect().size(), 10U);

  // The error of a file that is cut names this one, whatever else fails.
  const auto cut_rows = [&] {
    write_whole_file(folder / "cut", std::string(scaled(100'000), 'x'));
    return fixed_length_records(folder / "cut",
                                {.record_bytes = static_cast<int64_t>(scaled(10'000)), .access = FileAccess::Map});
  };
  const auto sum_of = [&](const Bytes& bytes) {
    std::filesystem::resize_file(folder / "cut", left_bytes());
    const auto sum = std::count(bytes.view().begin(), bytes.view().end(), 'x');
    return read_beside(), sum;
  };
  EXPECT_THAT(message_of([&] { cut_rows().map(sum_of).collect(); }), HasSubstr("cut\""));
  EXPECT_THAT(message_of([&] { cut_rows().flat_map([&](const Bytes& b) { return range(sum_of(b)); }).collect(); }),
              HasSubstr("cut\""));
  // What a function reads beside its element counts, too.
  const auto read_here = [&](int64_t i) { return read_unreadable_page(folder / "other"), i; };
  EXPECT_THAT(message_of([&] { range(3).map(read_here).collect(); }), HasSubstr("other\""));
}

TEST(CutFileTest, RowsTextsAndTables) {
  const TemporaryFolder folder;
  std::string lines;
  for (int64_t i = 0; i < 4000 * page_scale(); ++i) lines += "1," + std::string(20, 'y') + "\n";
  const auto expect_error = [&](auto dataset, int64_t taken) {
    write_whole_file(folder / "text", lines);
    auto iterator = dataset().iterator();
    for (int64_t i = 0; i < taken; ++i) ASSERT_TRUE(iterator.next());
    std::filesystem::resize_file(folder / "text", left_bytes());
    int errors = 0;
    int calls = 0;
    for (bool more = true; more && calls < 10'000 * page_scale(); ++calls) {
      try {
        more = iterator.next().has_value();
      } catch (const DataError&) {
        ++errors;
      }
    }
    EXPECT_EQ(errors, 1);
    EXPECT_LT(calls, 4000 * page_scale());
    std::filesystem::remove(folder / "text");
  };
  expect_error([&] { return text_lines(folder / "text", {.access = FileAccess::Map}); }, 3);
  expect_error([&] { return csv<std::tuple<int64_t, std::string>>(folder / "text", {.access = FileAccess::Map}); }, 3);
}

TEST(CutFileTest, ACacheFileThatIsCutIsAnError) {
  const TemporaryFolder folder;
  const auto made = range(100).map([](int64_t i) { return at::full({1000 * page_scale()}, i); });
  const auto cached = made.cache(folder / "cache");
  EXPECT_EQ(all_of(cached, 0, 200).size(), 100U);
  auto iterator = made.cache(folder / "cache").batch(10).iterator();
  ASSERT_TRUE(iterator.next());
  std::filesystem::resize_file(folder / "cache", left_bytes());
  int batches = 0;
  std::string message = "no error";
  while (message == "no error" && batches < 20) message = message_of([&] { iterator.next(), ++batches; });
  EXPECT_THAT(message, HasSubstr("[cache]"));
}

TEST(CutFileDeathTest, AnArrayThatAUserReadsEndsTheProcessWithItsName) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const TemporaryFolder folder;
  save_npy(folder / "x.npy", at::ones({100'000 * page_scale()}));
  EXPECT_DEATH(
      {
        const at::Tensor x = load_npy(folder / "x.npy");
        std::filesystem::resize_file(folder / "x.npy", left_bytes());
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
        void* memory =
            ::mmap(nullptr, static_cast<size_t>(::sysconf(_SC_PAGESIZE)), PROT_READ, MAP_SHARED, ::fileno(other), 0);
        std::exit(*static_cast<volatile char*>(memory));
      },
      ::testing::ExitedWithCode(42), "");
}

}  // namespace
}  // namespace lockstep::data
