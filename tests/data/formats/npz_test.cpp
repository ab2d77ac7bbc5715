#include "lockstep/data/formats/numpy/npz.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "lockstep/base/error.h"
#include "tests/data/formats/fixtures.h"
#include "tests/data/formats/temporary_folder.h"

namespace lockstep::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using tests::fixture;
using tests::message_of;
using tests::read_whole_file;
using tests::TemporaryFolder;
using tests::write_whole_file;

std::map<std::string, at::Tensor> some_arrays() {
  return {{"a", at::arange(1000, at::kLong).reshape({10, 100})},
          {"folder/b", at::randn({3, 4, 5})},
          {"scalar", at::scalar_tensor(3, at::kByte)},
          {"empty", at::empty({0, 7}, at::kDouble)}};
}

void expect_same(const std::map<std::string, at::Tensor>& found, const std::map<std::string, at::Tensor>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, tensor] : expected) EXPECT_TRUE(at::equal(found.at(name), tensor)) << name;
}

class NpzRoundTripTest : public ::testing::TestWithParam<NpzCompression> {};

TEST_P(NpzRoundTripTest, ArraysComeBack) {
  const TemporaryFolder folder;
  const auto arrays = some_arrays();
  save_npz(folder / "a.npz", arrays, {.compression = GetParam()});
  expect_same(load_npz(folder / "a.npz"), arrays);
  expect_same(parse_npz(read_whole_file(folder / "a.npz")), arrays);
  save_npz(folder / "none.npz", {}, {.compression = GetParam()});
  EXPECT_TRUE(load_npz(folder / "none.npz").empty());
}

TEST_P(NpzRoundTripTest, MembersAreListedWithoutData) {
  const TemporaryFolder folder;
  const auto arrays = some_arrays();
  save_npz(folder / "a.npz", arrays, {.compression = GetParam()});
  const auto members = npz_members(folder / "a.npz");
  ASSERT_EQ(members.size(), arrays.size());
  for (const ArrayInfo& member : members) {
    EXPECT_EQ(member.dtype, arrays.at(member.name).scalar_type());
    EXPECT_EQ(member.shape, arrays.at(member.name).sizes().vec());
  }
}

TEST_P(NpzRoundTripTest, EveryDamagedByteIsFoundOrHarmless) {
  const TemporaryFolder folder;
  save_npz(folder / "a.npz", {{"a", at::arange(20, at::kInt)}}, {.compression = GetParam()});
  const std::string good = read_whole_file(folder / "a.npz");
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x41);
    try {
      parse_npz(bad);
    } catch (const DataError&) {  // anything else is a failure
    }
    try {
      parse_npz(good.substr(0, i));
      ADD_FAILURE() << "a file of " << i << " bytes was read";
    } catch (const DataError&) {
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Compressions, NpzRoundTripTest,
                         ::testing::Values(NpzCompression::Stored, NpzCompression::Deflated),
                         [](const auto& info) { return info.param == NpzCompression::Stored ? "Stored" : "Deflated"; });

TEST(NpzTest, OwnFilesAreMapped) {
  const TemporaryFolder folder;
  save_npz(folder / "a.npz", {{"a", at::arange(3, at::kDouble)}, {"bcd", at::ones({5}, at::kComplexDouble)}});
  const auto arrays = load_npz(folder / "a.npz");
  const auto* first = static_cast<const char*>(arrays.at("a").data_ptr());
  const auto* second = static_cast<const char*>(arrays.at("bcd").data_ptr());
  EXPECT_LT(std::abs(second - first), static_cast<int64_t>(std::filesystem::file_size(folder / "a.npz")));
  const Bytes bytes(read_whole_file(folder / "a.npz"));
  const std::string before = bytes.str();
  for (const auto& [name, tensor] : parse_npz(bytes)) tensor.zero_();
  EXPECT_EQ(bytes.str(), before) << "writes do not reach the bytes";
}

TEST(NpzTest, LoadsOnlyWhatIsAskedFor) {
  const std::string path = fixture("numpy/pair.npz");
  const auto arrays = load_npz(path, {"y", "y"});
  EXPECT_EQ(arrays.size(), 1u);
  EXPECT_TRUE(at::equal(arrays.at("y"), at::tensor({0, 1, 1, 0}, at::kLong)));
  EXPECT_TRUE(load_npz(path, {}).empty());
  EXPECT_THAT(message_of<c10::ValueError>([&] { load_npz(path, {"z"}); }),
              AllOf(HasSubstr("name=\"z\""), HasSubstr("it has x, y")));
}

TEST(NpzTest, ChecksWhatItCopies) {
  using Place = std::pair<std::string, size_t>;  // in the data of x
  for (const auto& [name, offset] : {Place{"numpy/pair.npz", 200}, Place{"numpy/pair_compressed.npz", 100}}) {
    std::string bytes = read_whole_file(fixture(name));
    bytes[offset] = static_cast<char>(bytes[offset] ^ 1);
    EXPECT_THAT(message_of([&] { parse_npz(bytes); }), AllOf(HasSubstr("damaged"), HasSubstr("x.npy"))) << name;
  }
}

TEST(NpzTest, RefusesSizesThatCompressionCannotReach) {
  const TemporaryFolder folder;
  save_npz(folder / "a.npz", {{"a", at::zeros({10})}}, {.compression = NpzCompression::Deflated});
  std::string bytes = read_whole_file(folder / "a.npz");
  const size_t entry = bytes.find("PK\x01\x02");
  for (int i = 0; i < 4; ++i) bytes[entry + 24 + i] = i == 3 ? '\x70' : '\0';
  EXPECT_THAT(message_of([&] { parse_npz(bytes); }), HasSubstr("size=1879048192"));
}

TEST(NpzTest, RefusesAMemberThatStartsBehindTheEnd) {
  const TemporaryFolder folder;
  save_npz(folder / "a.npz", {{"a", at::empty({0})}});
  std::string bytes = read_whole_file(folder / "a.npz");
  bytes[27] = '\x10';  // the length of the name, in the local header
  const size_t entry = bytes.find("PK\x01\x02");
  for (size_t i = 20; i < 28; ++i) bytes[entry + i] = '\0';  // both sizes
  EXPECT_THAT(message_of([&] { parse_npz(bytes); }), HasSubstr("header of the member is truncated"));
}

TEST(NpzTest, NamesTheFile) {
  const TemporaryFolder folder;
  write_whole_file(folder / "bad.npz", "no archive at all, but longer than an empty one");
  EXPECT_THAT(message_of([&] { load_npz(folder / "bad.npz"); }), AllOf(HasSubstr("[load_npz]"), HasSubstr("bad.npz")));
  EXPECT_THAT(message_of([&] { npz_members(folder / "none.npz"); }), HasSubstr("[npz_members]"));
}

}  // namespace
}  // namespace lockstep::data
