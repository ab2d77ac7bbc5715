// Lines, records of one length and tables: what they share is that TensorFlow's answers are in one folder.

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/data/formats/text/csv.h"
#include "lockstep/data/formats/text/fixed_length.h"
#include "lockstep/data/formats/text/lines.h"
#include "tests/data/formats/fixtures.h"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using tests::fixture;
using tests::message_of;

// What gzip makes of three lines: `printf 'one\r\ntwo\nlast' | gzip -n`.
const char* const kGzippedLines = "1f8b0800000000000003cbcf4be5e52a29cfe7ca492c2e0100f66f9f7f0d000000";

template <class Reader>
std::vector<std::string> all_of(Reader& reader) {
  std::vector<std::string> found;
  for (Bytes piece; reader.next(piece);) found.push_back(piece.str());
  return found;
}

std::vector<std::string> lines_of(const std::string& text) {
  LineReader reader(Bytes(text), "text");
  return all_of(reader);
}

std::vector<std::vector<std::string>> records_of(const std::string& text, const CsvOptions& options = {}) {
  CsvReader reader(Bytes(text), "table", options);
  std::vector<std::vector<std::string>> records;
  for (std::vector<std::string> fields; reader.next(fields);) records.push_back(fields);
  return records;
}

TEST(LineReaderTest, ReadsWhatTensorFlowReads) {
  const auto answers = tests::expected_answers("text");
  for (const char* name : {"lines.txt", "empty.txt"}) {
    LineReader reader(fixture(std::string("text/") + name));
    EXPECT_EQ(all_of(reader), answers.at(name).at("TextLineDataset").get<std::vector<std::string>>()) << name;
  }
}

TEST(LineReaderTest, EndsLinesAtLineFeeds) {
  EXPECT_THAT(lines_of("a\r\nb\n\n\r\nc"), ElementsAre("a", "b", "", "", "c"));
  EXPECT_THAT(lines_of("\n"), ElementsAre(""));
  EXPECT_THAT(lines_of("x^ is how zlib may begin\n"), ElementsAre("x^ is how zlib may begin"));
}

TEST(LineReaderTest, ReadsCompressedLines) {
  const Bytes gzipped(tests::from_hex(kGzippedLines));
  LineReader reader(gzipped, "gzipped");
  EXPECT_THAT(all_of(reader), ElementsAre("one", "two", "last"));
  EXPECT_EQ(reader.lines_read(), 3);
  LineReader cut(gzipped.slice(0, gzipped.size() - 5), "cut");
  EXPECT_THAT(
      message_of([&] { all_of(cut); }),
      HasSubstr("[text_lines] the compressed data must be sound: file=\"cut\", offset=9, line=2 (the compressed"));
}

TEST(LineReaderTest, Skips) {
  LineReader reader(Bytes("a\nb\nc"), "text");
  EXPECT_EQ(reader.skip(2), 2);
  EXPECT_EQ(reader.offset(), 4U);
  EXPECT_THAT(all_of(reader), ElementsAre("c"));
  EXPECT_EQ(reader.skip(1), 0);
}

TEST(FixedLengthReaderTest, ReadsWhatTensorFlowReads) {
  const auto answers = tests::expected_answers("text").at("fixed.bin");
  FixedLengthReader reader(fixture("text/fixed.bin"), {.record_bytes = 2, .header_bytes = 4, .footer_bytes = 4});
  EXPECT_EQ(all_of(reader), answers.begin()->get<std::vector<std::string>>());
}

TEST(FixedLengthReaderTest, RefusesARemainderAndNamesTheSizes) {
  EXPECT_EQ(message_of([] { FixedLengthReader(Bytes("0123456789"), "ten", {.record_bytes = 4, .header_bytes = 1}); }),
            "[fixed_length_records] the file must be a header, whole records and a footer: file=\"ten\", bytes=10, "
            "header_bytes=1, record_bytes=4, footer_bytes=0, left over=1");
  EXPECT_THROW(FixedLengthReader(Bytes("ab"), "two", {.record_bytes = 1, .header_bytes = 2, .footer_bytes = 1}),
               DataError);
  EXPECT_THROW(FixedLengthReader(Bytes("ab"), "two", {.record_bytes = 0}), c10::ValueError);
  EXPECT_THROW(FixedLengthReader(Bytes("ab"), "two", {.record_bytes = 1, .footer_bytes = -1}), c10::ValueError);
}

TEST(FixedLengthReaderTest, SkipsAndEndsBeforeTheFooter) {
  FixedLengthReader reader(Bytes("haabbccff"), "text", {.record_bytes = 2, .header_bytes = 1, .footer_bytes = 2});
  EXPECT_EQ(reader.skip(2), 2);
  EXPECT_THAT(all_of(reader), ElementsAre("cc"));
  EXPECT_EQ(reader.skip(5), 0);
  EXPECT_EQ(reader.records_read(), 3);
}

TEST(FixedLengthReaderTest, ReadsCompressedFiles) {
  const Bytes gzipped(tests::from_hex(kGzippedLines));  // 13 bytes: "one\r\ntwo\nlast"
  FixedLengthReader reader(gzipped, "gzipped",
                           {.record_bytes = 4, .header_bytes = 3, .footer_bytes = 2, .compression = Compression::Gzip});
  EXPECT_THAT(all_of(reader), ElementsAre("\r\ntw", "o\nla"));
  FixedLengthReader odd(gzipped, "odd", {.record_bytes = 5, .compression = Compression::Auto});
  EXPECT_THAT(message_of([&] { all_of(odd); }), HasSubstr("bytes=13"));
}

TEST(CsvReaderTest, ReadsWhatTensorFlowReads) {
  const auto answers = tests::expected_answers("text").at("table.csv");
  CsvReader reader(fixture("text/table.csv"), {.header = true});
  std::vector<std::string> fields;
  for (const auto& expected : answers.begin().value()) {
    ASSERT_TRUE(reader.next(fields));
    EXPECT_EQ(reader.number<int32_t>(fields, 0, 0), expected[0].get<int32_t>());
    EXPECT_EQ(fields[1].empty() ? "none" : fields[1], expected[1].get<std::string>());
    EXPECT_EQ(reader.number<float>(fields, 2, -1.0F), expected[2].get<float>());
  }
  EXPECT_FALSE(reader.next(fields));
}

TEST(CsvReaderTest, KnowsQuotesAndLineEnds) {
  EXPECT_THAT(records_of("a,\"b,\"\"c\"\"\"\r\n\"two\r\nlines\",d\n,\n"),
              ElementsAre(ElementsAre("a", "b,\"c\""), ElementsAre("two\r\nlines", "d"), ElementsAre("", "")));
  EXPECT_THAT(records_of("a;b\rc;\"\"", {.delimiter = ';'}), ElementsAre(ElementsAre("a", "b"), ElementsAre("c", "")));
  EXPECT_THAT(records_of(""), ElementsAre());
  EXPECT_THAT(records_of("a,b,"), ElementsAre(ElementsAre("a", "b", "")));
}

TEST(CsvReaderTest, SelectsColumnsAndKnowsEmptyValues) {
  EXPECT_THAT(records_of("1,2,3\nNA,5,6\n", {.na_value = "NA", .select_columns = {2, 0}}),
              ElementsAre(ElementsAre("3", "1"), ElementsAre("6", "")));
  CsvReader reader(Bytes("x,y\n1,2\n"), "table", {.header = true, .select_columns = {1}});
  EXPECT_THAT(reader.names(), ElementsAre("y"));
  EXPECT_THAT(message_of([] { records_of("1,2\n", {.select_columns = {2}}); }), HasSubstr("column=2, fields=2"));
}

TEST(CsvReaderTest, NamesTheLineOfWhatIsWrong) {
  EXPECT_EQ(message_of([] { records_of("a,b\n\"x\ny\",z\nc\n"); }),
            "[csv] each record must have as many fields as the first: file=\"table\", line=4, record=2, fields=1, "
            "expected=2");
  EXPECT_EQ(message_of([] { records_of("a,b\nc,d\"e\n"); }),
            "[csv] a field with quotes must be in quotes: file=\"table\", line=2, record=1, column=1, text=\"d\"");
  EXPECT_THAT(message_of([] { records_of("a,\"b\"c\n"); }),
              HasSubstr("must follow the quotes: file=\"table\", line=1"));
  EXPECT_THAT(message_of([] { records_of("a\n\"b"); }), HasSubstr("quotes must be closed: file=\"table\", line=2"));
}

TEST(CsvReaderTest, ConvertsNumbers) {
  CsvReader reader(Bytes("1, -2 ,+3.5,1e400,2147483648,x,\n"), "table");
  std::vector<std::string> fields;
  ASSERT_TRUE(reader.next(fields));
  EXPECT_EQ(reader.number<int64_t>(fields, 0), 1);
  EXPECT_EQ(reader.number<int32_t>(fields, 1), -2);
  EXPECT_EQ(reader.number<double>(fields, 2), 3.5);
  EXPECT_EQ(reader.number<int64_t>(fields, 6, 9), 9);
  EXPECT_EQ(message_of([&] { reader.number<int32_t>(fields, 4); }),
            "[csv] the field must be a number of its type, in its range: file=\"table\", line=1, column=4, "
            "text=\"2147483648\", type=int32");
  EXPECT_THAT(message_of([&] { reader.number<float>(fields, 3); }), HasSubstr("type=float32"));
  EXPECT_THAT(message_of([&] { reader.number<double>(fields, 5); }), HasSubstr("column=5, text=\"x\", type=float64"));
  EXPECT_THAT(message_of([&] { reader.number<int64_t>(fields, 6); }), HasSubstr("text=\"\""));
  EXPECT_THAT(message_of([&] { reader.number<int64_t>(fields, 2); }), HasSubstr("text=\"+3.5\""));
}

TEST(CsvReaderTest, Skips) {
  CsvReader reader(Bytes("h\n1\n2\n3\n"), "table", {.header = true});
  EXPECT_EQ(reader.skip(2), 2);
  std::vector<std::string> fields;
  ASSERT_TRUE(reader.next(fields));
  EXPECT_THAT(fields, ElementsAre("3"));
  EXPECT_EQ(reader.line(), 4);
  EXPECT_EQ(reader.records_read(), 3);
}

}  // namespace
}  // namespace lockstep::data
