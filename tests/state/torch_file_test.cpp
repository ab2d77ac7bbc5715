#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/state/formats/pickle_state.h"
#include "lockstep/state/weights.h"
#include "tests/state/fixture_values.h"
#include "tests/support/message_of.h"
#include "tests/support/test_folder.h"

namespace lockstep::tests {
namespace {

using ::testing::HasSubstr;

std::string refusal_of_pickle(const std::string& bytes) {
  return message_of([&] { detail::Pickle(bytes, "file"); });
}

State pytorch_file(const std::string& name) { return load_file(fixture("pytorch/" + name)); }

TEST(TorchFile, FixturesReadAsTheirJsonSays) {
  size_t files = 0;
  const nlohmann::json answers = expected_values("pytorch");
  for (const auto& [name, expected] : answers.items()) {
    if (name == "torch") continue;
    SCOPED_TRACE(name);
    ++files;
    expect_state(pytorch_file(name), expected);
  }
  EXPECT_EQ(files, 14U);
}

TEST(TorchFile, ContiguousTensorsAreReadWhenTheyAreUsed) {
  const State state = pytorch_file("views.pt");
  EXPECT_TRUE(state.tensor("part").pieces.empty());
  EXPECT_EQ(state.tensor("part").stored.size(), 1U);
  EXPECT_EQ(state.tensor("transposed").pieces.size(), 1U);
}

TEST(TorchFile, WhatIsNoDictionaryOfWeightsIsRefused) {
  EXPECT_THAT(message_of([] { pytorch_file("old_format.pt"); }), HasSubstr("before PyTorch 1.6"));
  EXPECT_THAT(message_of([] { pytorch_file("whole_module.pt"); }), HasSubstr("__main__.Net"));
  EXPECT_THAT(message_of([] { pytorch_file("sparse.pt"); }),
              HasSubstr("torch.serialization._get_layout is not one of weights"));
  EXPECT_THAT(message_of([] { pytorch_file("list.pt"); }), HasSubstr("must be a dictionary"));
  EXPECT_THAT(message_of([] { pytorch_file("setstate.pt"); }), HasSubstr("would execute it"));
  EXPECT_THAT(message_of([] { pytorch_file("expected.json"); }), HasSubstr("must be safetensors"));
  EXPECT_THAT(message_of([] { pytorch_file("absent.pt"); }), HasSubstr("No such file"));
}

TEST(TorchFile, DamageIsAnError) {
  const TestFolder folder;
  const std::string bytes = bytes_of(fixture("pytorch/state_dict.pt"));
  for (size_t size = 0; size < bytes.size(); size += 37) {
    write_bytes(folder / "cut", bytes.substr(0, size));
    EXPECT_THROW(load_file(folder / "cut"), DataError) << size;
  }
}

TEST(Pickle, RefusesWhatExecutes) {
  const std::string system = std::string("\x80\x02") + "cos\nsystem\nX" + std::string("\2\0\0\0", 4) + "ls\x85R.";
  EXPECT_THAT(refusal_of_pickle(system), HasSubstr("os.system is not one of weights"));
  EXPECT_THAT(refusal_of_pickle("\x80\x02(ios\nsystem\n."), HasSubstr("opcode"));
}

TEST(Pickle, RefusesDamage) {
  for (const char* bytes : {"", ".", "}", "t.", "R.", "(}.", "s.", "h\1.", "}}.", "Q.", "\x8a\x09.", "]s.", "K"}) {
    EXPECT_THROW(detail::Pickle(bytes, "file"), DataError) << bytes;
  }
}

TEST(Pickle, ReadsNumbers) {
  const auto number = [](const std::string& bytes) {
    return std::get<int64_t>(detail::Pickle(bytes, "file").top().value);
  };
  EXPECT_EQ(number("K\xff."), 255);
  EXPECT_EQ(number("J\xff\xff\xff\xff."), -1);
  EXPECT_EQ(number("\x8a\x01\xfe."), -2);
  EXPECT_EQ(number(std::string("\x8a\x02\xfe\x00.", 5)), 254);
  EXPECT_EQ(number(std::string("\x8a\x00.", 3)), 0);
  EXPECT_THAT(refusal_of_pickle(std::string("\x8a\x09\0\0\0\0\0\0\0\x80\0.", 12)), HasSubstr("too large"));
}

TEST(Pickle, CirclesAreRefused) {
  const detail::Pickle circle(std::string("}q\0X\1\0\0\0ah\0s.", 14), "file");
  const auto none = [](const detail::PickleTensor&) { return StateTensor(); };
  EXPECT_THAT(message_of([&] { detail::flatten_pickle(circle, "file", none); }), HasSubstr("too deeply"));
}

TEST(Pickle, TensorsMustBeInsideTheirStorage) {
  const auto extent = [](int64_t numel, int64_t offset, std::vector<int64_t> sizes, std::vector<int64_t> strides) {
    return detail::extent_of({{"FloatStorage", "0", numel}, "", offset, std::move(sizes), std::move(strides)}, "file");
  };
  EXPECT_TRUE(extent(6, 0, {2, 3}, {3, 1}).contiguous);
  EXPECT_FALSE(extent(6, 0, {3, 2}, {1, 3}).contiguous);
  EXPECT_EQ(extent(6, 0, {3, 2}, {1, 3}).reached, 6);
  EXPECT_EQ(extent(6, 6, {0, 2}, {2, 1}).reached, 0);
  EXPECT_THROW(extent(6, 1, {2, 3}, {3, 1}), DataError);
  EXPECT_THROW(extent(6, -1, {2}, {1}), DataError);
  EXPECT_THROW(extent(6, 0, {2}, {-1}), DataError);
  EXPECT_THROW(extent(6, 0, {-2}, {1}), DataError);
  EXPECT_THROW(extent(6, 7, {0}, {1}), DataError);
  EXPECT_THROW(extent(6, 0, {int64_t{1} << 62, 2}, {0, 0}), DataError);
  EXPECT_THROW(extent(6, 0, {3, 3}, {int64_t{1} << 62, int64_t{1} << 62}), DataError);
  EXPECT_THROW(extent(int64_t{1} << 62, 0, {2}, {1}), DataError);
}

}  // namespace
}  // namespace lockstep::tests
