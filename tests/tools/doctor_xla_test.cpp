#include "tools/doctor/doctor_xla.h"

#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/xla/pjrt/find_plugin.h"
#include "tests/xla/plugin.h"

namespace lockstep::tools {
namespace {

using ::testing::HasSubstr;

std::string printed(const XlaState& state) {
  std::ostringstream out;
  print_xla(state, out);
  return out.str();
}

/// A plugin with a device as a TPU has it.
PluginState tpu() {
  return {.file = "/lib/libtpu.so",
          .api_version = "0.90",
          .platform = "tpu",
          .platform_version = "7",
          .devices = {{.id = 3,
                       .process = 1,
                       .kind = "TPU v4",
                       .coordinates = {1, 0, 2},
                       .core_on_chip = 1,
                       .text = "TPU_3(process=1)"}},
          .self_test = "sum over 1 devices: ok",
          .passed = true};
}

TEST(DoctorXlaTest, WithoutAPluginItSaysWhereItLooked) {
  const XlaState state{.searched = {"/a/pjrt", "LOCKSTEP_PJRT_PLUGIN=b"}};
  EXPECT_FALSE(state.passed());
  EXPECT_EQ(printed(state),
            "no plugin was found; places that were looked at:\n"
            "  /a/pjrt\n"
            "  LOCKSTEP_PJRT_PLUGIN=b\n" +
                xla::how_to_get_a_plugin() + "\n");
  EXPECT_EQ(to_json(state)["what_to_do"], xla::how_to_get_a_plugin());
  EXPECT_EQ(to_json(state)["searched"].size(), 2u);
}

TEST(DoctorXlaTest, PrintsPlatformDevicesAndTest) {
  const XlaState state{.plugins = {tpu()}};
  EXPECT_TRUE(state.passed());
  EXPECT_EQ(printed(state),
            "plugin: /lib/libtpu.so\n"
            "  interface: 0.90\n"
            "  platform: tpu, version 7\n"
            "  device 3: TPU v4, process 1, chip (1,0,2), core 1; TPU_3(process=1)\n"
            "  SVE is hidden: no\n"
            "  sum over 1 devices: ok\n");
  const Json device = to_json(state)["plugins"][0]["devices"][0];
  EXPECT_EQ(device["coordinates"], (Json{1, 0, 2}));
  EXPECT_EQ(device["core_on_chip"], 1);
}

TEST(DoctorXlaTest, OnePluginThatFailsIsAFailure) {
  const XlaState state{.plugins = {tpu(), {.file = "broken.so", .error = "[xla plugin] no"}}};
  EXPECT_FALSE(state.passed());
  EXPECT_THAT(printed(state), HasSubstr("plugin: broken.so\n  FAILED: [xla plugin] no\n"));
  EXPECT_EQ(to_json(state)["plugins"][1]["error"], "[xla plugin] no");
}

TEST(DoctorXlaTest, TriesThePluginsOfThisMachine) {
  LOCKSTEP_NEEDS_PLUGIN();
  const XlaState state = examine_xla();
  ASSERT_FALSE(state.plugins.empty());
  const PluginState& plugin = state.plugins.front();
  EXPECT_TRUE(plugin.passed) << printed(state);
  EXPECT_EQ(plugin.self_test, "sum over " + std::to_string(plugin.devices.size()) + " devices: ok");
  EXPECT_FALSE(plugin.platform.empty());
}

}  // namespace
}  // namespace lockstep::tools
