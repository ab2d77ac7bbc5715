#include "lockstep/data/formats/records/record_reader.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "tests/data/formats/fixtures.h"
#include "tests/data/formats/temporary_folder.h"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using tests::expected_answers;
using tests::fixture;
using tests::message_of;

std::string record_file(const std::string& name) { return fixture("records/" + name); }

std::vector<std::string> read_all(RecordReader& reader) {
  std::vector<std::string> records;
  for (Bytes record; reader.next(record);) records.push_back(record.str());
  return records;
}

std::vector<std::string> read_all(const std::string& path, RecordReaderOptions options = {}) {
  RecordReader reader(path, options);
  return read_all(reader);
}

TEST(RecordReaderTest, ReadsWhatTensorFlowWrote) {
  int files = 0;
  const auto answers = expected_answers("records");
  for (const auto& [name, answer] : answers.items()) {
    if (!answer.contains("records")) continue;
    ++files;
    const auto& expected = answer.at("records");
    const auto records = read_all(record_file(name));
    ASSERT_EQ(records.size(), expected.size()) << name;
    for (size_t i = 0; i < records.size(); ++i) {
      EXPECT_EQ(records[i].size(), expected[i].at("length").get<size_t>()) << name << " record " << i;
      if (!expected[i].contains("hex")) continue;
      EXPECT_EQ(records[i], tests::from_hex(expected[i].at("hex"))) << name << i;
    }
  }
  EXPECT_EQ(files, 7);
}

TEST(RecordReaderTest, FindsOutTheCompression) {
  EXPECT_EQ(RecordReader(record_file("plain.tfrecord")).compression(), Compression::None);
  EXPECT_EQ(RecordReader(record_file("plain.gzip.tfrecord")).compression(), Compression::Gzip);
  EXPECT_EQ(RecordReader(record_file("plain.zlib.tfrecord")).compression(), Compression::Zlib);
  EXPECT_EQ(RecordReader(record_file("empty.tfrecord")).compression(), Compression::None);
  EXPECT_EQ(read_all(record_file("plain.gzip.tfrecord")), read_all(record_file("plain.tfrecord")));
  EXPECT_EQ(read_all(record_file("plain.zlib.tfrecord")), read_all(record_file("plain.tfrecord")));
}

TEST(RecordReaderTest, IsNotMisledByALengthThatLooksCompressed) {
  // 0x78 0x01 is how zlib's data begin, 0x1f 0x8b 0x08 how gzip's do; here they are lengths with a right checksum.
  EXPECT_EQ(RecordReader(record_file("huge_length.tfrecord")).compression(), Compression::None);
}

// Where TensorFlow ends quietly though the file ends inside a record, we do not.
TEST(RecordReaderTest, RefusesEveryDamagedFileAtTheRecordWhereTensorFlowStops) {
  int files = 0;
  const auto answers = expected_answers("records");
  for (const auto& [name, answer] : answers.items()) {
    if (!answer.contains("damage") || name == "cut_after_first.tfrecord") continue;
    ++files;
    const auto before = answer.at("tensorflow").at("records_before").get<int64_t>();
    RecordReader reader(record_file(name));
    Bytes record;
    for (int64_t i = 0; i < before; ++i) ASSERT_TRUE(reader.next(record)) << name;
    const std::string message = message_of([&] { reader.next(record); });
    EXPECT_THAT(message, HasSubstr("[tfrecords] "));
    EXPECT_THAT(message, HasSubstr("file=\"" + record_file(name) + "\", offset="));
    EXPECT_THAT(message, HasSubstr(", record=" + std::to_string(before)));
    EXPECT_EQ(reader.records_read(), before + 1) << "the damaged one counts";
    bool more = true;
    for (int calls = 0; more && calls < 100; ++calls) {
      try {
        more = reader.next(record);
      } catch (const DataError&) {  // further damage
      }
    }
    EXPECT_FALSE(more) << name;
  }
  EXPECT_EQ(files, 11);
  EXPECT_THAT(read_all(record_file("cut_after_first.tfrecord")), ElementsAre("first"));
}

TEST(RecordReaderTest, SaysWhatIsWrong) {
  const auto message = [](const std::string& name) { return message_of([&] { read_all(record_file(name)); }); };
  const auto place = [](const std::string& name) { return "file=\"" + record_file(name) + "\", offset=21, record=1"; };
  EXPECT_EQ(message("bad_payload.tfrecord"),
            "[tfrecords] the record's checksum must match: " + place("bad_payload.tfrecord"));
  EXPECT_EQ(message("bad_length.tfrecord"),
            "[tfrecords] the checksum of the record's length must match: " + place("bad_length.tfrecord"));
  EXPECT_EQ(message("cut_in_payload.tfrecord"),
            "[tfrecords] the file must not end inside a record: " + place("cut_in_payload.tfrecord"));
  EXPECT_THAT(message("cut.gzip.tfrecord"),
              HasSubstr("offset=60, record=3, compression=gzip (the compressed data end"));
  EXPECT_THAT(message("huge_length.tfrecord"), HasSubstr("must not end inside a record"));
}

TEST(RecordReaderTest, RefusesTheWrongCompression) {
  EXPECT_THAT(message_of([] { read_all(record_file("plain.tfrecord"), {.compression = Compression::Gzip}); }),
              HasSubstr("(incorrect header check)"));
  EXPECT_THAT(message_of([] { read_all(record_file("plain.gzip.tfrecord"), {.compression = Compression::None}); }),
              HasSubstr("checksum of the record's length"));
}

TEST(RecordReaderTest, RefusesAMissingFile) {
  EXPECT_THAT(message_of([] { RecordReader("/nowhere.tfrecord"); }), HasSubstr("file=\"/nowhere.tfrecord\""));
}

TEST(RecordReaderTest, SkipsByLengthsAlone) {
  for (const char* name : {"plain.tfrecord", "plain.gzip.tfrecord", "plain.zlib.tfrecord"}) {
    const auto all = read_all(record_file(name));
    for (const int64_t count : {0, 1, 5, 19, 20, 21}) {
      RecordReader reader(record_file(name));
      EXPECT_EQ(reader.skip(count), std::min<int64_t>(count, 20)) << name;
      EXPECT_EQ(reader.records_read(), std::min<int64_t>(count, 20));
      const auto rest = read_all(reader);
      EXPECT_EQ(rest, std::vector<std::string>(all.begin() + std::min<int64_t>(count, 20), all.end())) << name;
    }
  }
  RecordReader damaged(record_file("bad_payload.tfrecord"));
  EXPECT_EQ(damaged.skip(3), 3);
  RecordReader cut(record_file("cut_in_payload.tfrecord"));
  EXPECT_EQ(cut.skip(3), 2) << "damage counts as one record";
  Bytes record;
  EXPECT_FALSE(cut.next(record));
}

TEST(RecordReaderTest, GoesOnBehindADamagedPayload) {
  RecordReader reader(record_file("bad_payload.tfrecord"));
  Bytes record;
  ASSERT_TRUE(reader.next(record));
  EXPECT_EQ(record.view(), "first");
  EXPECT_THROW(reader.next(record), DataError);
  ASSERT_TRUE(reader.next(record));
  EXPECT_EQ(record.view(), "third");
  EXPECT_EQ(reader.records_read(), 3);
  EXPECT_FALSE(reader.next(record));
}

TEST(RecordReaderTest, RecordsArePiecesOfTheMappingAndOutliveTheReader) {
  std::vector<Bytes> records;
  {
    RecordReader reader(record_file("three.tfrecord"));
    for (Bytes record; reader.next(record);) records.push_back(record);
  }
  EXPECT_EQ(records[0].buffer().get(), records[2].buffer().get());
  EXPECT_THAT(records, ElementsAre(Bytes("first"), Bytes("second record"), Bytes("third")));
}

TEST(RecordReaderTest, ReadsSeveralGzipFilesInOne) {
  const std::string once = tests::read_whole_file(record_file("plain.gzip.tfrecord"));
  RecordReader reader(Bytes(once + once), "twice");
  EXPECT_EQ(read_all(reader).size(), 40U);
  RecordReader followed(Bytes(once + "text"), "followed");
  EXPECT_THAT(message_of([&] { read_all(followed); }), HasSubstr("record=20, compression=gzip (other bytes follow"));
}

TEST(RecordReaderTest, CompressedRecordsKeepTheirOwnMemoryOnly) {
  RecordReader reader(record_file("plain.gzip.tfrecord"));
  for (Bytes record; reader.next(record);) EXPECT_EQ(record.buffer()->size(), record.size());
}

}  // namespace
}  // namespace lockstep::data
