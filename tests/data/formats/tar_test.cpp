#include "lockstep/data/formats/archive/tar.h"

#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "tests/data/formats/fixtures.h"
#include "tests/data/formats/temporary_folder.h"

namespace lockstep::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using tests::message_of;
using tests::read_whole_file;
using tests::TemporaryFolder;
using tests::write_whole_file;

using Files = std::vector<std::pair<std::string, std::string>>;

void write_tar(const std::string& path, const Files& files, const TarWriterOptions& options = {}) {
  TarWriter writer(path, options);
  for (const auto& [name, contents] : files) writer.write(name, contents);
  writer.close();
}

Files read_all(TarReader reader) {
  Files files;
  for (TarEntry entry; reader.next(entry);) files.emplace_back(entry.name, entry.contents.str());
  return files;
}

Files some_files() {
  return {{"a.txt", "hello"},
          {"folder/empty.bin", ""},
          {"folder/large.bin", std::string(200000, 'x') + "end"},
          {std::string(300, 'n') + "/" + std::string(150, 'm') + ".txt", "long"},
          {"\u00e9\u4e2d.jpg", "name"}};
}

class TarRoundTripTest : public ::testing::TestWithParam<TarCompression> {};

TEST_P(TarRoundTripTest, FilesComeBack) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.tar";
  write_tar(path, some_files(), {.compression = GetParam()});
  EXPECT_EQ(read_all(TarReader(path)), some_files());
  EXPECT_EQ(read_all(TarReader::from_memory(read_whole_file(path))), some_files());
  write_tar(folder / "b.tar", some_files(), {.compression = GetParam()});
  EXPECT_EQ(read_whole_file(path), read_whole_file(folder / "b.tar"));
}

TEST_P(TarRoundTripTest, CutArchivesAreErrors) {
  const TemporaryFolder folder;
  write_tar(folder / "a.tar", {{"a.txt", std::string(3000, 'a')}, {"b.txt", "b"}}, {.compression = GetParam()});
  const Bytes whole(read_whole_file(folder / "a.tar"));
  for (size_t size : {size_t{0}, size_t{10}, whole.size() / 4, size_t{100}}) {
    if (size >= whole.size()) continue;
    EXPECT_THROW(read_all(TarReader::from_memory(whole.slice(0, size))), DataError) << size;
  }
}

INSTANTIATE_TEST_SUITE_P(Compressions, TarRoundTripTest,
                         ::testing::Values(TarCompression::None, TarCompression::Gzip, TarCompression::Zstd));

TEST(TarTest, FilesLieInTheArchive) {
  const TemporaryFolder folder;
  write_tar(folder / "a.tar", some_files());
  const Bytes archive(read_whole_file(folder / "a.tar"));
  TarReader reader = TarReader::from_memory(archive);
  uint64_t last_offset = 0;
  for (TarEntry entry; reader.next(entry); last_offset = entry.offset) {
    EXPECT_TRUE(entry.contents.empty() || entry.contents.buffer() == archive.buffer()) << entry.name;
    EXPECT_TRUE(entry.name == "a.txt" ? entry.offset == 0 : entry.offset > last_offset);
  }
}

TEST(TarTest, BytesOutliveTheReader) {
  const TemporaryFolder folder;
  write_tar(folder / "a.tar", {{"a.txt", "hello"}});
  TarEntry entry;
  EXPECT_TRUE(TarReader(folder / "a.tar").next(entry));
  std::filesystem::remove(folder / "a.tar");
  EXPECT_EQ(entry.contents.str(), "hello");
}

TEST(TarTest, ReadsWhatTarWrites) {
  const TemporaryFolder folder;
  const std::string source = folder / "source";
  std::filesystem::create_directories(source + "/inner");
  write_whole_file(source + "/inner/a.txt", "one");
  write_whole_file(source + "/inner/" + std::string(140, 'l') + ".txt", "two");
  std::filesystem::create_symlink("a.txt", source + "/inner/link.txt");
  std::filesystem::create_hard_link(source + "/inner/a.txt", source + "/inner/z_same.txt");
  for (const std::string options : {"--format=gnu -cf", "--format=posix -cf", "--format=gnu -czf"}) {
    const std::string command =
        "tar --sort=name -C '" + source + "' " + options + " '" + (folder / "a.tar") + "' inner";
    if (std::system((command + " 2>/dev/null").c_str()) != 0) GTEST_SKIP() << "no GNU tar here";
    EXPECT_THAT(read_all(TarReader(folder / "a.tar")),
                ElementsAre(Pair("inner/a.txt", "one"), Pair("inner/" + std::string(140, 'l') + ".txt", "two")));
  }
}

TEST(TarTest, TarReadsWhatIsWritten) {
  const TemporaryFolder folder;
  write_tar(folder / "a.tar", some_files());
  EXPECT_EQ(std::system(("tar -tf '" + (folder / "a.tar") + "' >'" + (folder / "list") + "' 2>&1").c_str()), 0);
  EXPECT_THAT(read_whole_file(folder / "list"), HasSubstr("folder/large.bin"));
}

TEST(TarTest, DamageIsNamed) {
  const TemporaryFolder folder;
  write_tar(folder / "a.tar", {{"a.txt", std::string(1000, 'a')}, {"b.txt", "b"}});
  std::string bytes = read_whole_file(folder / "a.tar");
  bytes[512 + 1024 + 5] = 'x';  // in the second header
  write_whole_file(folder / "bad.tar", bytes);
  TarReader reader(folder / "bad.tar");
  TarEntry entry;
  EXPECT_TRUE(reader.next(entry));
  EXPECT_THAT(message_of([&] { reader.next(entry); }), AllOf(HasSubstr("bad.tar"), HasSubstr("libarchive says")));
  EXPECT_FALSE(reader.next(entry)) << "the archive ends there";
  EXPECT_THAT(message_of([&] { TarReader(folder / "none.tar"); }), HasSubstr("none.tar"));
  EXPECT_THROW(read_all(TarReader::from_memory("this is no archive")), DataError);
}

TEST(TarTest, AnArchiveThatIsNotClosedDoesNotAppear) {
  const TemporaryFolder folder;
  {
    TarWriter writer(folder / "a.tar");
    writer.write("a.txt", "a");
    EXPECT_THROW(writer.write("", "a"), c10::ValueError);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder / ""));
  TarWriter writer(folder / "b.tar");
  writer.close();
  writer.close();
  EXPECT_THROW(writer.write("a.txt", "a"), c10::ValueError);
  EXPECT_TRUE(read_all(TarReader(folder / "b.tar")).empty());
  EXPECT_THROW(TarWriter(folder / "none/a.tar"), DataError);
}

TEST(TarSampleTest, NeighboursWithOneBasenameAreOneSample) {
  const TemporaryFolder folder;
  write_tar(folder / "a.tar", {{"x/001.jpg", "j1"},
                               {"x/001.SEG.png", "s1"},
                               {"x/001.cls", "c1"},
                               {"README", "passed over"},
                               {"x/.hidden", "passed over"},
                               {"x/002.jpg", "j2"},
                               {"y/002.jpg", "j3"},
                               {"a.b/003.jpg", "j4"}});
  TarSampleReader reader(folder / "a.tar");
  TarSample sample;
  ASSERT_TRUE(reader.next(sample));
  EXPECT_EQ(sample.key, "x/001");
  EXPECT_THAT(sample.files,
              ElementsAre(Pair("cls", Bytes("c1")), Pair("jpg", Bytes("j1")), Pair("seg.png", Bytes("s1"))));
  for (const std::string key : {"x/002", "y/002", "a.b/003"}) {
    ASSERT_TRUE(reader.next(sample));
    EXPECT_EQ(sample.key, key);
    EXPECT_EQ(sample.files.size(), 1u);
  }
  EXPECT_FALSE(reader.next(sample));
  EXPECT_FALSE(reader.next(sample));
}

TEST(TarSampleTest, Skips) {
  const TemporaryFolder folder;
  Files files;
  for (int i = 0; i < 10; ++i) {
    files.emplace_back(std::to_string(i) + ".a", "a");
    files.emplace_back(std::to_string(i) + ".b", "b");
  }
  write_tar(folder / "a.tar", files);
  TarSampleReader reader(folder / "a.tar");
  EXPECT_EQ(reader.skip(0), 0);
  EXPECT_EQ(reader.skip(3), 3);
  TarSample sample;
  ASSERT_TRUE(reader.next(sample));
  EXPECT_EQ(sample.key, "3");
  EXPECT_EQ(reader.skip(100), 6);
  EXPECT_FALSE(reader.next(sample));
  EXPECT_THROW(reader.skip(-1), c10::ValueError);
}

TEST(TarSampleTest, TwoFilesOfOneKindAreAnError) {
  const TemporaryFolder folder;
  write_tar(folder / "a.tar", {{"1.jpg", "a"}, {"1.JPG", "b"}});
  TarSampleReader reader(folder / "a.tar");
  TarSample sample;
  EXPECT_THAT(message_of([&] { reader.next(sample); }), AllOf(HasSubstr("key=\"1\""), HasSubstr("kind=\"jpg\"")));
}

}  // namespace
}  // namespace lockstep::data
