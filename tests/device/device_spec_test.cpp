#include "lockstep/device/device_spec.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string message_of(std::string_view device) {
  try {
    DeviceSpec::parse(device);
  } catch (const c10::ValueError& error) {
    return error.what_without_backtrace();
  }
  return "";
}

TEST(DeviceSpecTest, ReadsEveryPart) {
  const DeviceSpec spec = DeviceSpec::parse("/job:worker/replica:2/task:3/device:GPU:4");
  EXPECT_EQ(spec.job(), "worker");
  EXPECT_EQ(spec.replica(), 2);
  EXPECT_EQ(spec.task(), 3);
  EXPECT_EQ(spec.type(), "GPU");
  EXPECT_EQ(spec.index(), 4);
}

TEST(DeviceSpecTest, ReadsLibTorchsSpellings) {
  EXPECT_EQ(DeviceSpec::parse("cuda:1").to_string(), "/device:GPU:1");
  EXPECT_EQ(DeviceSpec::parse("cuda").to_string(), "/device:GPU:*");
  EXPECT_EQ(DeviceSpec::parse("cpu").to_string(), "/device:CPU:*");
  EXPECT_EQ(canonicalize("cuda"), "/job:localhost/replica:0/task:0/device:GPU:0");
}

TEST(DeviceSpecTest, TakesComponentsInAnyOrderAndSkipsEmptyOnes) {
  EXPECT_EQ(DeviceSpec::parse("gpu:0//task:1/job:a/"), DeviceSpec::parse("/job:a/task:1/device:GPU:0"));
  EXPECT_EQ(DeviceSpec::parse(""), DeviceSpec());
}

TEST(DeviceSpecTest, NamesTheFaultyComponent) {
  EXPECT_THAT(message_of("/job:w/foo:1"), StartsWith("[DeviceSpec::parse] "));
  EXPECT_THAT(message_of("/job:w/foo:1"), HasSubstr("component='foo:1', string='/job:w/foo:1'"));
  EXPECT_THAT(message_of("/cpu:0/gpu:0"), HasSubstr("at most one device: component='gpu:0'"));
  EXPECT_THAT(message_of("/cpu:x"), HasSubstr("whole number: component='cpu:x'"));
  EXPECT_THAT(message_of("/cpu:"), HasSubstr("whole number"));
  EXPECT_THAT(message_of("/cpu:99999999999"), HasSubstr("must fit 32 bits"));
  EXPECT_THAT(message_of("/device:CPU"), HasSubstr("component='device:CPU'"));
}

TEST(DeviceSpecTest, MergingKeepsWhatTheOverrideLeavesOut) {
  const DeviceSpec base = DeviceSpec::parse("/job:a/task:1/gpu:2");
  EXPECT_EQ(base.merged_with(DeviceSpec::parse("/task:0/cpu")).to_string(), "/job:a/task:0/device:CPU:2");
  EXPECT_EQ(base.merged_with(DeviceSpec()), base);
  EXPECT_EQ(DeviceSpec().merged_with(base), base);
}

TEST(DeviceSpecTest, CanonicalNamesNeedCapitals) {
  EXPECT_THROW(canonicalize("/device:Gpu:0"), c10::ValueError);
  EXPECT_THROW(canonicalize("", "/device:Gpu:0"), c10::ValueError);
}

TEST(DeviceSpecTest, AMissingJobMayBeLeftOut) {
  EXPECT_EQ(canonicalize("/cpu:1", "", MissingJob::LeftOut), "/replica:0/task:0/device:CPU:1");
  EXPECT_EQ(canonicalize("/cpu:1", "/job:a", MissingJob::LeftOut), "/job:a/replica:0/task:0/device:CPU:1");
}

TEST(DeviceSpecTest, TheHostIsCpuZeroOfTheSameWorker) {
  EXPECT_EQ(host_for_device("/job:a/task:2/gpu:3"), "/job:a/task:2/device:CPU:0");
}

/// Draws specs whose every part is unspecified one time in three.
class RandomSpecs {
 public:
  DeviceSpec next() {
    DeviceSpec spec;
    if (present()) spec = spec.with_job(word("abz_09.- "));
    if (present()) spec = spec.with_replica(number());
    if (present()) spec = spec.with_task(number());
    if (present()) {
      spec = spec.with_type(word("ACGPUX_"));
      if (present()) spec = spec.with_index(number());
    }
    return spec;
  }

 private:
  bool present() { return engine_() % 3 != 0; }
  int number() { return static_cast<int>(engine_() % 2000) - 1000; }
  std::string word(std::string_view letters) {
    std::string result;
    for (auto length = 1 + engine_() % 6; length > 0; --length) result += letters[engine_() % letters.size()];
    return result;
  }

  std::mt19937 engine_{7};
};

TEST(DeviceSpecTest, PrintingThenParsingGivesTheSameSpec) {
  RandomSpecs specs;
  for (int i = 0; i < 2000; ++i) {
    const DeviceSpec spec = specs.next();
    ASSERT_EQ(DeviceSpec::parse(spec.to_string()), spec) << spec;
  }
}

TEST(DeviceSpecTest, CanonicalNamesAreFixedPointsAndMergingIsAssociative) {
  RandomSpecs specs;
  for (int i = 0; i < 2000; ++i) {
    const DeviceSpec a = specs.next();
    const DeviceSpec b = specs.next();
    const DeviceSpec c = specs.next();
    const std::string name = canonicalize(a.to_string());
    ASSERT_EQ(canonicalize(name, b.to_string()), name);
    ASSERT_EQ(a.merged_with(b).merged_with(c), a.merged_with(b.merged_with(c)));
  }
}

}  // namespace
}  // namespace lockstep
