#include "lockstep/data/formats/records/example.h"

#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/data/formats/records/example_builder.h"
#include "lockstep/data/formats/records/record_reader.h"
#include "tests/data/formats/fixtures.h"

namespace lockstep::data {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using tests::fixture;
using tests::message_of;

json values_of(const FeatureValues& values) {
  json result = json::array();
  if (values.kind() == FeatureKind::Int64) {
    std::vector<int64_t> numbers(values.size());
    values.read(std::span(numbers));
    result = numbers;
  } else if (values.kind() == FeatureKind::Float) {
    std::vector<float> numbers(values.size());
    values.read(std::span(numbers));
    result = numbers;
  } else {
    values.for_each([&](std::string_view value) { result.push_back(std::string(value)); });
  }
  EXPECT_EQ(result.size(), values.size());
  return result;
}

std::map<std::string, json> parse(const Bytes& example) {
  std::map<std::string, json> result;
  parse_features(example, [&](std::string_view key, const FeatureValues& values) {
    result[std::string(key)] = values_of(values);
  });
  return result;
}

std::string field(int tag, const std::string& content) {
  return std::string(1, static_cast<char>(tag << 3 | 2)) + static_cast<char>(content.size()) + content;
}

std::string entry(const std::string& key, const std::string& feature) {
  return field(1, field(1, key) + field(2, feature));
}

TEST(ExampleTest, ReadsWhatTensorFlowWrote) {
  const auto answers = tests::expected_answers("records");
  for (const char* name : {"examples.tfrecord", "examples.gzip.tfrecord"}) {
    RecordReader reader(fixture(std::string("records/") + name));
    for (const json& expected : answers.at(name).at("examples")) {
      Bytes record;
      ASSERT_TRUE(reader.next(record));
      size_t keys = 0;
      parse_features(record, [&](std::string_view key, const FeatureValues& values) {
        ++keys;
        const json& feature = expected.at(std::string(key));
        json wanted = feature.at("values");
        if (values.kind() == FeatureKind::Bytes) {
          for (json& value : wanted) value = tests::from_hex(value);
        }
        if (values.kind() == FeatureKind::Float) wanted = wanted.get<std::vector<float>>();
        EXPECT_EQ(c10::str(values.kind()), feature.at("kind").get<std::string>()) << key;
        EXPECT_EQ(values_of(values), wanted) << key;
      });
      EXPECT_EQ(keys, expected.size());
    }
  }
}

TEST(ExampleTest, ReadsSequencesThatTensorFlowWrote) {
  const json expected = tests::expected_answers("records").at("sequence_examples.tfrecord").at("sequence_examples");
  RecordReader reader(fixture("records/sequence_examples.tfrecord"));
  for (const json& sequence : expected) {
    Bytes record;
    ASSERT_TRUE(reader.next(record));
    json context = json::object();
    json lists = json::object();
    parse_sequence(
        record,
        [&](std::string_view key, const FeatureValues& values) { context[std::string(key)] = values_of(values); },
        [&](std::string_view key, const FeatureSteps& steps) {
          json& list = lists[std::string(key)] = json::array();
          steps.for_each([&](const FeatureValues& values) { list.push_back(values_of(values)); });
          EXPECT_EQ(list.size(), steps.size());
        });
    EXPECT_EQ(context, sequence.at("context"));
    EXPECT_EQ(lists, sequence.at("feature_lists"));
  }
}

TEST(ExampleTest, BytesAreInTheMemoryOfTheRecord) {
  const Bytes record(ExampleBuilder().set("image", std::string_view("pixels")).serialize());
  Bytes image;
  parse_features(record, [&](std::string_view, const FeatureValues& values) { image = values.first(); });
  EXPECT_EQ(image, Bytes("pixels"));
  EXPECT_EQ(image.buffer().get(), record.buffer().get());
}

TEST(ExampleTest, ReadsListsThatAreNotPacked) {
  const std::string ints = field(3, std::string("\x08\x05\x08\x07", 4) + field(1, std::string("\x01\x02", 2)));
  const std::string floats = field(2, std::string("\x0d\x00\x00\x80\x3f", 5) + field(1, std::string("\0\0\0\x40", 4)));
  const auto parsed = parse(Bytes(field(1, entry("i", ints) + entry("f", floats))));
  EXPECT_EQ(parsed.at("i"), json({5, 7, 1, 2}));
  EXPECT_EQ(parsed.at("f"), json({1.0F, 2.0F}));
}

TEST(ExampleTest, MergesAsProtocolBuffersDo) {
  const std::string five = field(3, field(1, "\x05"));
  const std::string six = field(3, field(1, "\x06"));
  const std::string text = field(1, field(1, "text"));
  // The last entry of a key counts; lists of one value in pieces are one; of two kinds the last counts.
  EXPECT_EQ(parse(Bytes(field(1, entry("a", five)) + field(1, entry("a", six)))).at("a"), json({6}));
  EXPECT_EQ(parse(Bytes(field(1, entry("a", five + six)))).at("a"), json({5, 6}));
  EXPECT_EQ(parse(Bytes(field(1, field(1, field(2, five) + field(1, "a") + field(2, six))))).at("a"), json({5, 6}));
  EXPECT_EQ(parse(Bytes(field(1, entry("a", five + text)))).at("a"), json({"text"}));
  EXPECT_EQ(parse(Bytes(field(7, "unknown") + field(1, entry("a", field(9, "unknown") + five)))).at("a"), json({5}));
  Bytes merged;
  const Bytes message(field(1, entry("a", text + text)));
  parse_features(message, [&](std::string_view, const FeatureValues& values) { merged = values.first(); });
  EXPECT_EQ(merged, Bytes("text"));
}

TEST(ExampleTest, AKeyWithoutAValueIsThereWithNothing) {
  parse_features(Bytes(field(1, field(1, field(1, "key")))), [](std::string_view key, const FeatureValues& values) {
    EXPECT_EQ(key, "key");
    EXPECT_EQ(values.kind(), FeatureKind::None);
    EXPECT_EQ(values.size(), 0U);
  });
}

TEST(ExampleTest, RefusesDamagedMessagesAndNamesTheByte) {
  const auto message = [](const std::string& bytes) { return message_of([&] { parse(Bytes(bytes)); }); };
  EXPECT_EQ(message("\x0a\x05"
                    "ab"),
            "[parse_example] the message must be a sound tf.Example: byte=0, bytes=4 (end of buffer exception)");
  EXPECT_THAT(message(field(1, entry("f", field(2, field(1, "abc"))))), HasSubstr("byte=11, bytes=16 (the length of"));
  EXPECT_THAT(message(field(1, entry("i", field(3, field(1, "\xff"))))), HasSubstr("truncated"));
  EXPECT_THAT(message(field(1, entry("i", field(3, field(1, std::string(11, '\xff') + '\x01'))))), HasSubstr("varint"));
  EXPECT_THROW(parse(Bytes("plain text is no example")), DataError);
}

TEST(ExampleTest, EveryPieceOfAnExampleIsReadOrRefused) {
  RecordReader reader(fixture("records/examples.tfrecord"));
  Bytes record;
  ASSERT_TRUE(reader.next(record));
  for (size_t size = 0; size < record.size(); ++size) {
    try {
      parse(Bytes(record.view().substr(0, size)));
    } catch (const DataError&) {
    }
  }
}

TEST(ExampleTest, ReadingAsAnotherKindIsAMistakeOfTheCaller) {
  const Bytes record(ExampleBuilder().set("label", 3).serialize());
  parse_features(record, [](std::string_view, const FeatureValues& values) {
    float number = 0;
    EXPECT_THROW(values.read(std::span(&number, 1)), c10::ValueError);
    EXPECT_THROW(values.read(std::span<int64_t>()), c10::ValueError);
  });
}

TEST(ExampleBuilderTest, WhatIsBuiltIsRead) {
  ExampleBuilder builder;
  builder.set("label", 3).set("weight", 0.5).set("image", "pixels");
  builder.set("ints", std::vector<int64_t>{1, -1, int64_t{1} << 62}).set("floats", std::vector<float>{1.5F, -2.0F});
  builder.set("texts", std::vector<std::string>{"a", "", std::string(300, 'x')}).set("none", std::vector<float>{});
  builder.set("label", 4);
  const auto parsed = parse(Bytes(builder.serialize()));
  EXPECT_EQ(parsed.at("label"), json({4}));
  EXPECT_EQ(parsed.at("weight"), json({0.5}));
  EXPECT_EQ(parsed.at("image"), json({"pixels"}));
  EXPECT_EQ(parsed.at("ints"), json({int64_t{1}, int64_t{-1}, int64_t{1} << 62}));
  EXPECT_EQ(parsed.at("floats"), json({1.5, -2.0}));
  EXPECT_EQ(parsed.at("texts"), json({"a", "", std::string(300, 'x')}));
  EXPECT_EQ(parsed.at("none"), json::array());
}

TEST(ExampleBuilderTest, WritesTheBytesThatTensorFlowWrites) {
  RecordReader reader(fixture("records/examples.tfrecord"));
  ASSERT_EQ(reader.skip(4), 4);
  Bytes record;
  ASSERT_TRUE(reader.next(record));
  EXPECT_EQ(Bytes(ExampleBuilder().set("id", 4).set("label", std::vector<int64_t>{}).serialize()), record);
}

TEST(SequenceExampleBuilderTest, WhatIsBuiltIsRead) {
  SequenceExampleBuilder builder;
  builder.context().set("id", 7);
  builder.add_step("frames", std::vector<float>{1.0F, 2.0F}).add_step("frames", 3.0F).add_list("empty");
  std::map<std::string, std::vector<size_t>> sizes;
  parse_sequence(
      Bytes(builder.serialize()),
      [&](std::string_view key, const FeatureValues& values) { sizes[std::string(key)] = {values.size()}; },
      [&](std::string_view key, const FeatureSteps& steps) {
        auto& list = sizes[std::string(key)];
        steps.for_each([&](const FeatureValues& values) { list.push_back(values.size()); });
      });
  EXPECT_THAT(sizes["id"], ElementsAre(1));
  EXPECT_THAT(sizes["frames"], ElementsAre(2, 1));
  EXPECT_THAT(sizes["empty"], ElementsAre());
}

}  // namespace
}  // namespace lockstep::data
