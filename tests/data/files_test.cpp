#include "lockstep/data/files.h"

#include <fstream>
#include <set>

#include <torch/types.h>

#include "lockstep/base/error.h"
#include "lockstep/data/element/named.h"
#include "lockstep/data/formats/archive/tar.h"
#include "lockstep/data/formats/numpy/npy.h"
#include "lockstep/data/formats/numpy/npz.h"
#include "lockstep/data/formats/records/record_writer.h"
#include "tests/data/formats/temporary_folder.h"
#include "tests/data/pipelines.h"

namespace lockstep::data {
namespace {

using namespace tests;  // NOLINT

void write_text(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

std::vector<std::string> write_records(const TemporaryFolder& folder, const std::vector<int>& counts) {
  std::vector<std::string> files;
  int next = 0;
  for (const int count : counts) {
    files.push_back(folder / ("part-" + std::to_string(files.size()) + ".tfrecord"));
    RecordWriter writer(files.back());
    for (int i = 0; i < count; ++i) writer.write("record " + std::to_string(next++));
    writer.close();
  }
  return files;
}

TEST(FilesTest, ListsFilesSortedOrInAnotherOrderEveryEpoch) {
  const TemporaryFolder folder;
  for (const char* name : {"b.txt", "a.txt", "c.txt", "d.dat"}) write_text(folder / name, "");
  const auto sorted = list_files(folder / "*.txt", {.shuffle = false}).collect();
  ASSERT_EQ(sorted.size(), 3);
  EXPECT_EQ(sorted[0], folder / "a.txt");
  const auto shuffled = list_files(folder / "*", {.seed = 1});
  std::set<std::vector<std::string>> orders;
  for (int epoch = 0; epoch < 20; ++epoch) orders.insert(shuffled.collect());
  EXPECT_GT(orders.size(), 5);
  EXPECT_THROW(list_files(folder / "*.none"), c10::ValueError);
}

TEST(FilesTest, ReadsLinesOfSeveralFiles) {
  const TemporaryFolder folder;
  write_text(folder / "a", "one\ntwo\n");
  write_text(folder / "b", "");
  write_text(folder / "c", "three");
  const auto lines = text_lines(std::vector{folder / "a", folder / "b", folder / "c"});
  EXPECT_EQ(lines.collect(), (std::vector<std::string>{"one", "two", "three"}));
  expect_well_behaved(lines);
  EXPECT_THROW(text_lines(folder / "nothing").collect(), DataError);
}

TEST(FilesTest, ReadsRecordsOfSeveralFilesAndGoesOnFromAPosition) {
  const TemporaryFolder folder;
  const auto files = write_records(folder, {3, 0, 4});
  const auto records = tfrecords(files);
  ASSERT_EQ(records.collect().size(), 7);
  expect_well_behaved(records);
  expect_well_behaved(list_files(folder / "*.tfrecord", {.seed = 2})
                          .interleave([](const std::string& file) { return tfrecords(file); }, {.cycle_length = 2}));
}

TEST(FilesTest, ADamagedRecordIsAnErrorAtItsPlaceOnAnyThread) {
  const TemporaryFolder folder;
  const std::string file = write_records(folder, {5})[0];
  std::string bytes = read_whole_file(file);
  bytes[24 * 3 + 13] ^= 1;  // in the payload of the fourth record, each of which has 24 bytes
  write_text(file, bytes);
  for (const int threads : {1, 3}) {
    auto iterator =
        tfrecords(file).map([](const Bytes& record) { return record.str(); }, {.num_threads = threads}).iterator();
    for (int i = 0; i < 3; ++i) EXPECT_EQ(iterator.next(), "record " + std::to_string(i));
    try {
      iterator.next();
      ADD_FAILURE() << "must throw";
    } catch (const DataError& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("offset=72, record=3"), std::string::npos) << text;
      EXPECT_NE(text.find(file), std::string::npos) << text;
    }
  }
}

TEST(FilesTest, ReadsRecordsOfOneLength) {
  const TemporaryFolder folder;
  write_text(folder / "a", "HHaabbcc");
  const auto records = fixed_length_records(folder / "a", {.record_bytes = 2, .header_bytes = 2});
  EXPECT_EQ(all_of(records), (Texts{"b'aa'", "b'bb'", "b'cc'"}));
  expect_well_behaved(records);
  EXPECT_THROW(fixed_length_records(folder / "a", {.record_bytes = 0}), c10::ValueError);
  EXPECT_THROW(fixed_length_records(folder / "a", {.record_bytes = 5}).collect(), DataError);
}

TEST(FilesTest, ReadsTables) {
  const TemporaryFolder folder;
  write_text(folder / "a.csv", "id,name,weight\n1,\"x, y\",0.5\n2,z,\n");
  using Row = std::tuple<int64_t, std::string, float>;
  const auto rows = csv<Row>(folder / "a.csv", Row{0, "", -1.0F}, {.header = true}).collect();
  ASSERT_EQ(rows.size(), 2);
  EXPECT_EQ(rows[0], (Row{1, "x, y", 0.5F}));
  EXPECT_EQ(rows[1], (Row{2, "z", -1.0F}));
  struct Part {
    std::string name;
    int32_t id;
  };
  const auto parts = csv<Part>(folder / "a.csv", {.header = true, .select_columns = {1, 0}}).collect();
  EXPECT_EQ(parts[1].name, "z");
  EXPECT_EQ(parts[1].id, 2);
  EXPECT_THROW(csv<Row>(folder / "a.csv", {.header = true}).collect(), DataError) << "an empty number";
  EXPECT_THROW((csv<std::tuple<int64_t, double>>(folder / "a.csv", {.header = true}).collect()), DataError);
  expect_well_behaved(csv<Row>(folder / "a.csv", Row{}, {.header = true}));
}

TEST(FilesTest, ReadsArrays) {
  const TemporaryFolder folder;
  const at::Tensor x = at::arange(12, at::kFloat).view({4, 3});
  const at::Tensor y = at::arange(4);
  save_npy(folder / "x.npy", x);
  save_npz(folder / "xy.npz", {{"x", x}, {"y", y}});
  EXPECT_TRUE(at::equal(npy(folder / "x.npy").batch(4).collect()[0], x));
  const auto both = npz(folder / "xy.npz").batch(3).collect();
  EXPECT_TRUE(at::equal(both[1]["x"], x.slice(0, 3)));
  const auto pairs = npz(folder / "xy.npz").map(fields<std::tuple<at::Tensor, int64_t>>({"x", "y"})).collect();
  EXPECT_EQ(std::get<1>(pairs[2]), 2);
  EXPECT_THROW(npz(folder / "xy.npz").map(fields<at::Tensor>({"z"})).collect(), c10::ValueError);
}

TEST(FilesTest, ReadsSamplesOfTarShards) {
  const TemporaryFolder folder;
  try {
    TarWriter shard(folder / "a.tar");
    for (const std::string key : {"0001", "0002"}) {
      shard.write(key + ".txt", "text of " + key);
      shard.write(key + ".cls", key.substr(3));
    }
    shard.close();
  } catch (const c10::NotImplementedError& error) {
    GTEST_SKIP() << error.what_without_backtrace();
  }
  const auto samples = tar_samples(folder / "a.tar");
  const auto all = samples.collect();
  ASSERT_EQ(all.size(), 2);
  EXPECT_EQ(all[1].get<std::string>("__key__"), "0002");
  EXPECT_EQ(all[1].get<std::string>("txt"), "text of 0002");
  EXPECT_EQ(all[0].names(), (std::vector<std::string>{"__key__", "cls", "txt"}));
  expect_well_behaved(samples);
}

TEST(FilesTest, ReadsPicturesAndNamesTheDamagedOne) {
  const TemporaryFolder folder;
  const at::Tensor picture = at::randint(0, 255, {4, 6, 3}, at::kByte);
  try {
    write_text(folder / "0.png", encode_png(picture).str());
  } catch (const c10::NotImplementedError& error) {
    GTEST_SKIP() << error.what_without_backtrace();
  }
  write_text(folder / "1.png", encode_png(picture).str().substr(0, 40));
  auto iterator = images(std::vector{folder / "0.png", folder / "1.png"}, {.channels = 3}).iterator();
  EXPECT_TRUE(at::equal(*iterator.next(), picture));
  try {
    iterator.next();
    ADD_FAILURE() << "must throw";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("1.png"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace lockstep::data
