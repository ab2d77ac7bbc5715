#include "lockstep/data/parse_example.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "lockstep/data/files.h"
#include "lockstep/data/formats/records/example_builder.h"
#include "tests/data/formats/fixtures.h"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using tests::fixture;
using tests::message_of;

Named parse(const ElementMap<Named>& map, const std::string& message) {
  Element in;
  Element out;
  in.leaves.push_back(Bytes(message));
  map.fn(in, out);
  detail::ElementReader reader(out);
  return Codec<Named>::read(reader);
}

Named parse(const Features& features, const ExampleBuilder& example) {
  return parse(parse_example(features), example.serialize());
}

TEST(ParseExampleTest, GivesTensorFlowsAnswers) {
  const Features features{{"id", FixedLen{at::kLong, {}, torch::tensor(int64_t{-1})}},
                          {"label", VarLen{at::kLong}},
                          {"weight", FixedLen{at::kFloat, {1}, torch::tensor({9.0F})}},
                          {"vector", FixedLenSequence{at::kFloat, {}, true}}};
  const auto expected = tests::expected_answers("records").at("examples.tfrecord").at("parsed").at("results");
  auto examples = tfrecords(fixture("records/examples.tfrecord")).map(parse_example(features)).iterator();
  for (const auto& answer : expected) {
    if (answer.contains("error")) {
      EXPECT_EQ(
          message_of([&] { examples.next(); }),
          "[parse_example] the feature must have as many values as its shape: key=\"weight\", expected=1, found=3");
      continue;
    }
    const auto parsed = examples.next();
    ASSERT_TRUE(parsed.has_value());
    EXPECT_EQ(parsed->get<int64_t>("id"), answer.at("id").get<int64_t>());
    const auto label = answer.at("label").get<std::vector<int64_t>>();
    EXPECT_TRUE((*parsed)["label"].equal(torch::tensor(label, at::kLong)));
    EXPECT_TRUE((*parsed)["weight"].equal(torch::tensor(answer.at("weight").get<std::vector<float>>())));
    EXPECT_TRUE((*parsed)["vector"].equal(torch::tensor(answer.at("vector").get<std::vector<float>>(), at::kFloat)));
  }
}

TEST(ParseExampleTest, BatchesFeatures) {
  std::vector<Bytes> messages;
  for (int i = 0; i < 4; ++i) {
    messages.emplace_back(
        ExampleBuilder().set("image", std::string(6, static_cast<char>(i))).set("label", i).serialize());
  }
  const auto batches = from_vector(messages)
                           .map(parse_example({{"image", Raw{at::kByte, {2, 3}}}, {"label", FixedLen{at::kLong}}}))
                           .batch(4)
                           .collect();
  ASSERT_EQ(batches.size(), 1U);
  EXPECT_EQ(batches[0]["image"].sizes(), at::IntArrayRef({4, 2, 3}));
  EXPECT_EQ(batches[0]["image"][3][1][2].item<int64_t>(), 3);
  EXPECT_TRUE(batches[0]["label"].equal(torch::arange(4)));
}

TEST(ParseExampleTest, KnowsEveryKindOfFeature) {
  ExampleBuilder example;
  example.set("raw", std::string("\x01\x00\x02\x00", 4)).set("name", "text");
  example.set("names", std::vector<std::string>{"a", "b"}).set("rows", std::vector<float>{1, 2, 3, 4});
  const Named parsed = parse({{"raw", Raw{at::kShort, {2}}},
                              {"name", FixedLenBytes{}},
                              {"other", FixedLenBytes{"default"}},
                              {"names", VarLenBytes{}},
                              {"none", VarLenBytes{}},
                              {"rows", FixedLenSequence{at::kFloat, {2}}},
                              {"pair", FixedLen{at::kFloat, {2}, torch::tensor(7.0F)}}},
                             example);
  EXPECT_TRUE(parsed["raw"].equal(torch::tensor({1, 2}, at::kShort)));
  EXPECT_EQ(parsed.get<std::string>("name"), "text");
  EXPECT_EQ(parsed.get<std::string>("other"), "default");
  EXPECT_THAT(parsed.get<List<std::string>>("names"), ElementsAre("a", "b"));
  EXPECT_THAT(parsed.get<List<std::string>>("none"), ElementsAre());
  EXPECT_TRUE(parsed["rows"].equal(torch::tensor({{1.0F, 2.0F}, {3.0F, 4.0F}})));
  EXPECT_TRUE(parsed["pair"].equal(torch::tensor({7.0F, 7.0F})));
}

TEST(ParseExampleTest, SpecIsKnownWithoutReading) {
  const auto map = parse_example({{"image", Raw{at::kByte, {2, 3}}}, {"names", VarLen{at::kLong}}});
  EXPECT_THAT(c10::str(map.result), HasSubstr("TensorSpec(shape=(2, 3), dtype=uint8)"));
  EXPECT_THAT(c10::str(map.result), HasSubstr("TensorSpec(shape=(None,), dtype=int64)"));
}

TEST(ParseExampleTest, NamesKeyExpectedAndFound) {
  const auto message = [](const Feature& feature, const ExampleBuilder& example) {
    return message_of([&] { parse({{"key", feature}}, example); });
  };
  const ExampleBuilder number = ExampleBuilder().set("key", 1);
  EXPECT_EQ(message(FixedLen{at::kLong}, ExampleBuilder().set("other", 1)),
            "[parse_example] the feature must be in the message, or have a default: key=\"key\"");
  EXPECT_EQ(message(FixedLen{at::kFloat}, number),
            "[parse_example] the feature must be of its kind: key=\"key\", expected=float, found=int64");
  EXPECT_EQ(message(FixedLen{at::kLong, {2}}, number),
            "[parse_example] the feature must have as many values as its shape: key=\"key\", expected=2, found=1");
  EXPECT_EQ(message(Raw{at::kFloat, {2}}, ExampleBuilder().set("key", "12345")),
            "[parse_example] the bytes must be those of a tensor of the shape: key=\"key\", expected=8, found=5");
  EXPECT_THAT(message(FixedLenSequence{at::kLong, {2}}, number), HasSubstr("expected=a multiple of 2, found=1"));
  EXPECT_THAT(message(FixedLenSequence{at::kLong, {}}, ExampleBuilder().set("x", 1)),
              HasSubstr("must be in the message"));
  EXPECT_THROW(parse_example({{"key", FixedLen{at::kInt}}}), c10::ValueError);
  EXPECT_THROW(parse_example({{"key", FixedLen{at::kLong, {-1}}}}), c10::ValueError);
  EXPECT_THROW(parse_example({}), c10::ValueError);
}

TEST(ParseSequenceExampleTest, ReadsWhatTensorFlowWrote) {
  const auto expected = tests::expected_answers("records").at("sequence_examples.tfrecord").at("sequence_examples");
  auto examples = tfrecords(fixture("records/sequence_examples.tfrecord"))
                      .map(parse_sequence_example({{"id", FixedLen{at::kLong}}, {"title", FixedLenBytes{}}},
                                                  {{"frames", FixedLenSequence{at::kFloat, {2}}}}))
                      .iterator();
  for (const auto& answer : expected) {
    const auto parsed = examples.next();
    ASSERT_TRUE(parsed.has_value());
    EXPECT_EQ(parsed->get<int64_t>("id"), answer.at("context").at("id")[0].get<int64_t>());
    EXPECT_EQ(parsed->get<std::string>("title"), answer.at("context").at("title")[0].get<std::string>());
    const auto frames = answer.at("feature_lists").at("frames");
    const at::Tensor found = (*parsed)["frames"];
    ASSERT_EQ(found.sizes(), at::IntArrayRef({static_cast<int64_t>(frames.size()), 2}));
    for (size_t i = 0; i < frames.size(); ++i) {
      EXPECT_TRUE(found[static_cast<int64_t>(i)].equal(torch::tensor(frames[i].get<std::vector<float>>())));
    }
  }
}

TEST(ParseSequenceExampleTest, RefusesStepsOfAnotherSize) {
  SequenceExampleBuilder builder;
  builder.add_step("frames", std::vector<float>{1, 2}).add_step("frames", 3.0F);
  const auto map = parse_sequence_example({}, {{"frames", FixedLenSequence{at::kFloat, {2}}}});
  EXPECT_THAT(message_of([&] { parse(map, builder.serialize()); }), HasSubstr("key=\"frames\", expected=2, found=1"));
  EXPECT_THROW(parse_sequence_example({}, {{"frames", VarLen{}}}), c10::ValueError);
  EXPECT_THROW(parse_sequence_example({{"a", VarLen{}}}, {{"a", FixedLenSequence{}}}), c10::ValueError);
}

}  // namespace
}  // namespace lockstep::data
