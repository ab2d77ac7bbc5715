#include "lockstep/state/checkpoint_folder.h"

#include <bit>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/state/block_file.h"
#include "lockstep/state/formats/safetensors.h"
#include "lockstep/state/load_plan.h"
#include "tests/support/message_of.h"
#include "tests/support/test_folder.h"

namespace lockstep::tests {
namespace {

using detail::SavedPiece;
using detail::WriteOptions;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

SavedPiece piece_of(const std::string& name, const at::Tensor& tensor, int64_t begin, int64_t end) {
  const auto* const bytes = static_cast<const char*>(tensor.data_ptr());
  return {name,
          tensor.scalar_type(),
          tensor.sizes().vec(),
          begin,
          end,
          bytes + begin * static_cast<int64_t>(tensor.element_size())};
}

SavedPiece whole_of(const std::string& name, const at::Tensor& tensor) {
  return piece_of(name, tensor, 0, tensor.numel());
}

State odd_values() {
  State values;
  values.set("largest", std::numeric_limits<int64_t>::max());
  values.set("least", std::numeric_limits<int64_t>::min());
  values.set("third", 1.0 / 3.0);
  values.set("one", 1.0);
  values.set("minus_zero", -0.0);
  values.set("huge", 1e300);
  values.set("tiny", std::numeric_limits<double>::denorm_min());
  values.set("infinite", -std::numeric_limits<double>::infinity());
  values.set("nan", std::bit_cast<double>(uint64_t{0x7ff8000000000123}));
  values.set("off", false);
  values.set("text", "quotes \" and ünïcode\n");
  values.set("empty_text", "");
  for (const int length : {1, 2, 3, 4, 300}) {
    values.set("bytes" + std::to_string(length), std::string(static_cast<size_t>(length), '\xff'));
  }
  values.set("ünïcode", "name");
  return values;
}

void expect_same_values(const State& expected, const State& found) {
  for (const auto& [name, value] : expected) {
    const State::Value* const other = found.find(name);
    ASSERT_NE(other, nullptr) << name;
    ASSERT_EQ(other->index(), value.index()) << name;
    if (const auto* number = std::get_if<double>(&value)) {
      EXPECT_EQ(std::bit_cast<uint64_t>(*number), std::bit_cast<uint64_t>(std::get<double>(*other))) << name;
    } else if (const auto* integer = std::get_if<int64_t>(&value)) {
      EXPECT_EQ(*integer, std::get<int64_t>(*other)) << name;
    } else if (const auto* text = std::get_if<std::string>(&value)) {
      EXPECT_EQ(*text, std::get<std::string>(*other)) << name;
    } else if (const auto* flag = std::get_if<bool>(&value)) {
      EXPECT_EQ(*flag, std::get<bool>(*other)) << name;
    }
  }
}

/// A checkpoint of two parts: x is divided, y and z are whole.
class CheckpointFolder : public ::testing::Test {
 protected:
  void write(const std::string& path) {
    std::filesystem::create_directory(path);
    detail::CheckpointInfo info{.step = 12, .time = 1.5, .lockstep_version = "0.1", .written_by = "two workers"};
    info.parts = {detail::write_part(path + "/part_0.safetensors",
                                     {piece_of("x", x, 0, 5), piece_of("x", x, 5, 400'000), whole_of("z", z)}, {}),
                  detail::write_part(path + "/part_1.safetensors",
                                     {whole_of("flag", flag), piece_of("x", x, 400'000, x.numel()), whole_of("y", y),
                                      whole_of("empty", empty), whole_of("scalar", scalar)},
                                     {})};
    detail::write_index(path, info, odd_values(), {});
  }

  void SetUp() override { write(checkpoint); }

  TestFolder folder;
  std::string checkpoint = folder / "step_0000000012";
  at::Tensor x = at::randn({1000, 1000});
  at::Tensor y = at::randn({3, 4}).to(at::kBFloat16);
  at::Tensor z = at::complex(at::randn({7}, at::kDouble), at::randn({7}, at::kDouble));
  at::Tensor flag = at::ones({3}, at::kBool);
  at::Tensor empty = at::empty({0, 3});
  at::Tensor scalar = at::scalar_tensor(2.5);
};

TEST_F(CheckpointFolder, ReturnsWhatWasWritten) {
  const auto stored = detail::verify_checkpoint(checkpoint);
  EXPECT_EQ(stored.info.step, 12);
  EXPECT_EQ(stored.info.time, 1.5);
  EXPECT_EQ(stored.info.lockstep_version, "0.1");
  EXPECT_EQ(stored.info.written_by, "two workers");
  expect_same_values(odd_values(), stored.state);
  EXPECT_TRUE(stored.state.tensor("x").read().equal(x));
  EXPECT_TRUE(stored.state.tensor("y").read().equal(y));
  EXPECT_TRUE(at::view_as_real(stored.state.tensor("z").read()).equal(at::view_as_real(z)));
  EXPECT_TRUE(stored.state.tensor("flag").read().equal(flag));
  EXPECT_EQ(stored.state.tensor("empty").read().sizes(), empty.sizes());
  EXPECT_TRUE(stored.state.tensor("scalar").read().equal(scalar));
  EXPECT_EQ(stored.state.size(), odd_values().size() + 6);
}

TEST_F(CheckpointFolder, SameContentGivesTheSameBytes) {
  const std::string other = folder / "other";
  write(other);
  for (const char* name : {"index.json", "part_0.safetensors", "part_1.safetensors"}) {
    EXPECT_TRUE(bytes_of(checkpoint + "/" + name) == bytes_of(other + "/" + name)) << name;
  }
}

TEST_F(CheckpointFolder, PiecesThatFollowEachOtherAreOne) {
  EXPECT_EQ(detail::open_checkpoint(checkpoint).state.tensor("x").stored.size(), 2U);
  EXPECT_THAT(bytes_of(checkpoint + "/part_0.safetensors"), HasSubstr("\"x[0:400000]\":"));
}

TEST_F(CheckpointFolder, TensorsWithSeveralNamesAreWrittenOnce) {
  const std::string path = folder / "tied";
  std::filesystem::create_directory(path);
  SavedPiece whole = whole_of("y", y);
  whole.aliases = {"also.y", "ünïcode"};
  SavedPiece divided = piece_of("x", x, 0, 400'000);
  divided.aliases = {"also.x"};
  SavedPiece rest = piece_of("x", x, 400'000, x.numel());
  rest.aliases = {"also.x"};
  const WriteOptions options{.sync = false};
  detail::CheckpointInfo info;
  info.parts = {detail::write_part(path + "/part_0.safetensors", {whole, divided}, options),
                detail::write_part(path + "/part_1.safetensors", {rest}, options)};
  const auto most = static_cast<int64_t>(x.nbytes() + y.nbytes()) + 2 * 4096;
  EXPECT_LE(info.parts[0].num_bytes + info.parts[1].num_bytes, most);
  detail::write_index(path, info, {}, options);
  const State state = detail::verify_checkpoint(path).state;
  EXPECT_EQ(state.size(), 5U);
  EXPECT_TRUE(state.tensor("also.y").read().equal(y));
  EXPECT_TRUE(state.tensor("ünïcode").read().equal(y));
  EXPECT_TRUE(state.tensor("also.x").read().equal(x));
  EXPECT_TRUE(detail::are_same_elements(state.tensor("x"), state.tensor("also.x")));
  EXPECT_FALSE(detail::are_same_elements(state.tensor("x"), state.tensor("y")));
  // As Python's `safetensors.torch.save_model` names them.
  const auto header = detail::read_safetensors_header(detail::BlockFile(path + "/part_0.safetensors", {}));
  EXPECT_EQ(header.metadata.at("also.y"), "y");
  EXPECT_EQ(header.metadata.count("also.x"), 0U);
  // A name that is taken.
  whole.aliases = {"x"};
  info.parts[0] = detail::write_part(path + "/part_2.safetensors", {whole, divided}, options);
  EXPECT_THAT(message_of<c10::ValueError>([&] { detail::write_index(path, info, {}, options); }), HasSubstr("x: "));
}

TEST_F(CheckpointFolder, EveryChangedByteIsFound) {
  for (const char* name : {"index.json", "part_0.safetensors", "part_1.safetensors"}) {
    const std::string path = checkpoint + "/" + name;
    const std::string bytes = bytes_of(path);
    for (size_t i = 0; i < bytes.size(); i += 1 + bytes.size() / 23) {
      std::string changed = bytes;
      changed[i] ^= 16;
      write_bytes(path, changed);
      EXPECT_THROW(detail::verify_checkpoint(checkpoint), DataError) << name << " " << i;
      write_bytes(path, bytes.substr(0, i));
      EXPECT_THROW(detail::open_checkpoint(checkpoint), DataError) << name << " " << i;
    }
    write_bytes(path, bytes + " ");
    EXPECT_THROW(detail::open_checkpoint(checkpoint), DataError) << name;
    std::filesystem::remove(path);
    EXPECT_THROW(detail::open_checkpoint(checkpoint), DataError) << name;
    write_bytes(path, bytes);
  }
  detail::verify_checkpoint(checkpoint);
}

TEST_F(CheckpointFolder, AnIndexMustCoverAllTensors) {
  detail::CheckpointInfo info;
  info.parts = {detail::write_part(folder / "part", {piece_of("x", x, 0, 5), piece_of("y", y, 2, 12)}, {})};
  const std::string message = message_of<c10::ValueError>([&] { detail::write_index(folder.path(), info, {}, {}); });
  EXPECT_THAT(message, HasSubstr("x: elements 5 to 1000000 are missing"));
  EXPECT_THAT(message, HasSubstr("y: elements 0 to 2 are missing"));
  info.parts = {detail::write_part(folder / "a", {whole_of("y", y)}, {}),
                detail::write_part(folder / "b", {whole_of("y", y)}, {})};
  EXPECT_THAT(message_of<c10::ValueError>([&] { detail::write_index(folder.path(), info, {}, {}); }),
              HasSubstr("y: element 0 is there twice"));
  EXPECT_FALSE(std::filesystem::exists(folder / "index.json"));
}

TEST_F(CheckpointFolder, PartIndexIsItsText) {
  const auto part = detail::open_checkpoint(checkpoint).info.parts[1];
  const auto again = detail::PartIndex::parse(part.str());
  EXPECT_EQ(again.str(), part.str());
  EXPECT_EQ(again.file, "part_1.safetensors");
  EXPECT_EQ(again.pieces.size(), 5U);
  EXPECT_THROW(detail::PartIndex::parse("{}"), DataError);
  EXPECT_THROW(detail::PartIndex::parse(R"({"file": "../x", "bytes": 0, "checksums": [], "pieces": []})"), DataError);
}

TEST_F(CheckpointFolder, NamesAndSteps) {
  EXPECT_EQ(detail::checkpoint_name(1200), "step_0000001200");
  EXPECT_EQ(detail::step_of_name("step_0000001200"), 1200);
  EXPECT_EQ(detail::step_of_name("step_123456789012"), 123456789012);
  for (const char* name : {"step_12", "step_", "step_00000012x0", "step_-000000001", ".step_0000000012", "x"}) {
    EXPECT_EQ(detail::step_of_name(name), std::nullopt) << name;
  }
  write(folder / "step_0000000003");
  std::filesystem::create_directory(folder / "step_0000000099");
  EXPECT_THAT(detail::list_checkpoints(folder.path()), ElementsAre(3, 12));
  EXPECT_THAT(detail::list_checkpoints(folder / "absent"), ElementsAre());
  EXPECT_THROW(detail::list_checkpoints(checkpoint + "/index.json"), DataError);
}

}  // namespace
}  // namespace lockstep::tests
