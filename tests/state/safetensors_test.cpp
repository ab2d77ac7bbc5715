#include "lockstep/state/formats/safetensors.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/state/weights.h"
#include "tests/state/fixture_values.h"
#include "tests/support/message_of.h"
#include "tests/support/test_folder.h"

namespace lockstep::tests {
namespace {

using ::testing::HasSubstr;

std::string with_header(const std::string& json, size_t data_bytes) {
  std::string text;
  for (size_t i = 0; i < 8; ++i) text += static_cast<char>(json.size() >> (8 * i) & 255);
  return text + json + std::string(data_bytes, '\1');
}

std::string refusal_of(const std::string& json, size_t data_bytes) {
  const std::string bytes = with_header(json, data_bytes);
  return message_of([&] { detail::parse_safetensors(bytes, static_cast<int64_t>(bytes.size()), "file"); });
}

TEST(Safetensors, FixturesReadAsTheirJsonSays) {
  size_t sound = 0;
  const nlohmann::json answers = expected_values("safetensors");
  for (const auto& [name, expected] : answers.items()) {
    SCOPED_TRACE(name);
    const std::string path = fixture("safetensors/" + name);
    if (expected.contains("tensors")) {
      ++sound;
      expect_state(load_file(path), expected["tensors"]);
      const auto header = detail::read_safetensors_header(detail::BlockFile(path, {}));
      EXPECT_EQ(nlohmann::json(header.metadata), expected["metadata"]);
    } else if (expected["reference_reader"] == "accepted" && name != "duplicate.safetensors") {
      ++sound;
      EXPECT_TRUE(load_file(path).begin() != load_file(path).end());
    } else {
      EXPECT_THROW(load_file(path), DataError);
    }
  }
  EXPECT_EQ(sound, 5U);
  EXPECT_TRUE(load_file(fixture("safetensors/by_hand.safetensors")).tensor("w").read().equal(at::tensor({1.0F, 2.0F})));
}

TEST(Safetensors, RefusalsNameTheRule) {
  const std::string good = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  EXPECT_EQ(detail::parse_safetensors(with_header(good, 8), static_cast<int64_t>(good.size()) + 16, "f").entries.size(),
            1U);
  EXPECT_THAT(refusal_of(good, 7), HasSubstr("must fill the file"));
  EXPECT_THAT(refusal_of(" " + good, 8), HasSubstr("must begin with {"));
  EXPECT_THAT(refusal_of(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8), HasSubstr("must match"));
  EXPECT_THAT(refusal_of(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8), HasSubstr("at least 0"));
  EXPECT_THAT(refusal_of(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}})", 8),
              HasSubstr("too many elements"));
  EXPECT_THAT(refusal_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8), HasSubstr("begin and end"));
  EXPECT_THAT(refusal_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{}})", 8), HasSubstr("twice"));
  EXPECT_THAT(refusal_of(R"({"a":{"dtype":"F32","shape":[2]}})", 8), HasSubstr("data_offsets"));
  EXPECT_THAT(refusal_of("{\"\xff\":1}", 0), HasSubstr("JSON"));
  EXPECT_THAT(refusal_of(std::string(1000, '['), 0), HasSubstr("{"));
}

TEST(Safetensors, ADtypeThatLibTorchHasNotIsNamed) {
  const TestFolder folder;
  write_bytes(folder / "f", with_header(R"({"a":{"dtype":"F4","shape":[4],"data_offsets":[0,2]}})", 2));
  EXPECT_THAT(message_of([&] { load_file(folder / "f"); }), HasSubstr("dtype=\"F4\""));
}

TEST(Safetensors, SavedStatesAreRead) {
  const TestFolder folder;
  State state;
  state.set("model.weight", at::randn({30, 40}));
  state.set("transposed", at::randn({3, 4}).t());
  state.set("flags", at::tensor({1, 0, 1}).to(at::kBool));
  state.set("half", at::randn({3}).to(at::kHalf));
  state.set("double", at::randn({}, at::kDouble));
  state.set("empty", at::empty({0, 2}));
  state.set("step", 12);
  state.set("rate", 0.1);
  state.set("name", "ünïcode");
  save_safetensors(state, folder / "file");
  save_safetensors(load_file(folder / "file"), folder / "file");  // replaces what is being read
  const State read = load_file(folder / "file");
  EXPECT_EQ(read.size(), state.size());
  for (const auto& [name, value] : state) {
    if (!std::holds_alternative<StateTensor>(value)) continue;
    EXPECT_TRUE(read.tensor(name).read().equal(state.tensor(name).read())) << name;
  }
  EXPECT_EQ(read.integer("step"), 12);
  EXPECT_EQ(read.number("rate"), 0.1);
  EXPECT_EQ(read.text("name"), "ünïcode");
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path())) ++files;
  EXPECT_EQ(files, 1U);
}

TEST(Safetensors, AFailedSaveKeepsTheOldFile) {
  const TestFolder folder;
  State state;
  state.set("x", at::ones({2}));
  save_safetensors(state, folder / "file");
  StateTensor lost;
  lost.sizes = {2};
  state.set("y", lost);
  EXPECT_THROW(save_safetensors(state, folder / "file"), c10::ValueError);
  EXPECT_EQ(load_file(folder / "file").size(), 1U);
  EXPECT_THAT(message_of([&] { save_safetensors(State(), folder / "no/file"); }), HasSubstr("No such file"));
  State complex;
  complex.set("z", at::zeros({2}, at::kComplexDouble));
  EXPECT_THAT(message_of<c10::ValueError>([&] { save_safetensors(complex, folder / "file"); }),
              HasSubstr("complex128"));
}

}  // namespace
}  // namespace lockstep::tests
