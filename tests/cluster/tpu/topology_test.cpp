#include "lockstep/cluster/tpu/topology.h"

#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/cluster/tpu/slice_topology.h"
#include "tests/cluster/expect_error.h"

namespace lockstep::tpu {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(TopologyTest, NumbersDevicesOfAHost) {
  const Topology v3_8 = Topology::slice({2, 2, 1, 2});
  EXPECT_EQ(v3_8.num_tasks(), 1);
  EXPECT_EQ(v3_8.num_tpus_per_task(), 8);
  EXPECT_EQ(v3_8.mesh_rank(), 4);
  EXPECT_EQ(v3_8.mesh_shape(), (MeshShape{2, 2, 1, 2}));
  using C = MeshCoordinates;
  EXPECT_THAT(v3_8.device_coordinates().at(0), ElementsAre(C{0, 0, 0, 0}, C{0, 0, 0, 1}, C{1, 0, 0, 0}, C{1, 0, 0, 1},
                                                           C{0, 1, 0, 0}, C{0, 1, 0, 1}, C{1, 1, 0, 0}, C{1, 1, 0, 1}));
  EXPECT_THAT(v3_8.missing_devices(), IsEmpty());
}

TEST(TopologyTest, NumbersHostsAlongXThenYThenZ) {
  const Topology v3_32 = Topology::slice({4, 4, 1, 2});
  EXPECT_EQ(v3_32.num_tasks(), 4);
  EXPECT_EQ(v3_32.task_ordinal_at_coordinates({2, 0, 0, 1}), 1);
  EXPECT_EQ(v3_32.task_ordinal_at_coordinates({0, 2, 0, 1}), 2);
  EXPECT_EQ(v3_32.tpu_device_ordinal_at_coordinates({3, 3, 0, 1}), 7);
  EXPECT_EQ(Topology::slice({2, 2, 4, 1}).task_ordinal_at_coordinates({1, 1, 3, 0}), 3);
}

TEST(TopologyTest, NamesDevices) {
  const Topology v3_32 = Topology::slice({4, 4, 1, 2});
  EXPECT_EQ(v3_32.tpu_device_name_at_coordinates({2, 0, 0, 1}), "/task:1/device:TPU:1");
  EXPECT_EQ(v3_32.tpu_device_name_at_coordinates({2, 0, 0, 1}, "worker"), "/job:worker/task:1/device:TPU:1");
  EXPECT_EQ(v3_32.cpu_device_name_at_coordinates({2, 0, 0, 1}, "worker"), "/job:worker/task:1/device:CPU:0");
}

TEST(TopologyTest, HostsMayHaveOtherBlocks) {
  EXPECT_EQ(Topology::slice({2, 4, 1, 1}, {2, 4, 1}).num_tasks(), 1);
  EXPECT_EQ(Topology::slice({2, 4, 1, 1}, {1, 1, 1}).num_tasks(), 8);
  EXPECT_EQ(Topology::slice({1, 1, 1, 1}).num_tpus_per_task(), 1);
  const Topology by_core = Topology::slice({2, 2, 1, 2}, {1, 1, 1, 1});
  EXPECT_EQ(by_core.num_tasks(), 8);
  EXPECT_EQ(by_core.task_ordinal_at_coordinates({1, 0, 0, 1}), 3);
  EXPECT_ERROR(Topology::slice({3, 2, 1, 2}), c10::ValueError, "mesh_shape=[3 2 1 2], chips_per_host=[2 2 1 2]");
  EXPECT_ERROR(Topology::slice({2, 2, 1, 2}, {2, 2}), c10::ValueError, "entries=2");
}

TEST(TopologyTest, KnowsMissingDevices) {
  const Topology degraded({2, 2, 1, 1}, {{{0, 0, 0, 0}, {1, 1, 0, 0}}});
  EXPECT_TRUE(degraded.has_missing_devices());
  EXPECT_THAT(degraded.missing_devices(), ElementsAre(MeshCoordinates{0, 1, 0, 0}, MeshCoordinates{1, 0, 0, 0}));
  EXPECT_EQ(degraded.task_ordinal_at_coordinates({1, 0, 0, 0}), std::nullopt);
  EXPECT_EQ(degraded.tpu_device_ordinal_at_coordinates({1, 0, 0, 0}), std::nullopt);
  EXPECT_ERROR(degraded.tpu_device_name_at_coordinates({1, 0, 0, 0}), c10::ValueError, "coordinates=[1 0 0 0]");
  EXPECT_ERROR(degraded.cpu_device_name_at_coordinates({2, 0, 0, 0}), c10::IndexError, "axis=0, mesh_shape=[2 2 1 1]");
  EXPECT_ERROR(degraded.task_ordinal_at_coordinates({0, 0, 0, -1}), c10::IndexError, "axis=3");
}

TEST(TopologyTest, RefusesWhatCannotBe) {
  EXPECT_ERROR(Topology({2, 2, 1}, {}), c10::ValueError, "entries=3, mesh_shape=[2 2 1]");
  EXPECT_ERROR(Topology({2, 0, 1, 1}, {}), c10::ValueError, "mesh_shape=[2 0 1 1]");
  EXPECT_ERROR(Topology({1, 1, 1, 1}, {{{0, 0, 0, 1}}}), c10::IndexError, "coordinates=[0 0 0 1]");
  EXPECT_ERROR(Topology({2, 1, 1, 1}, {{{0, 0, 0, 0}}, {}}), c10::ValueError, "task=1, devices=0");
  EXPECT_ERROR(Topology({2, 1, 1, 1}, {{}, {}}), c10::ValueError, "at least one: task=0");
  constexpr int kMost = 2147483647;
  EXPECT_ERROR(Topology({kMost, kMost, kMost, kMost}, {}), c10::ValueError, "at most 1048576 cores");
  EXPECT_ERROR(Topology::slice({1024, 1024, 2, 1}), c10::ValueError, "[1024 1024 2 1]");
}

TEST(TopologyTest, PrintsItself) {
  std::ostringstream out;
  out << Topology::slice({2, 2, 1, 2}) << "; " << Topology({2, 1, 1, 1}, {{{0, 0, 0, 0}}});
  EXPECT_EQ(out.str(),
            "Topology(mesh [2 2 1 2], tasks 1, TPUs per task 8); Topology(mesh [2 1 1 1], tasks 1, TPUs per task 1, "
            "missing 1)");
}

TEST(TopologyTest, IsReadFromTextAndType) {
  EXPECT_EQ(topology_from_text("4x4x1x2"), Topology::slice({4, 4, 1, 2}));
  EXPECT_EQ(topology_from_text("4x4"), Topology::slice({4, 4, 1, 1}));
  EXPECT_EQ(topology_from_text("2,2,4"), Topology::slice({2, 2, 4, 1}));
  EXPECT_EQ(topology_from_text("v3-32"), Topology::slice({4, 4, 1, 2}));
  EXPECT_EQ(topology_from_text("v2-8"), Topology::slice({2, 2, 1, 2}));
  EXPECT_EQ(topology_from_text("v4-8"), Topology::slice({2, 2, 1, 1}));
  EXPECT_EQ(topology_from_text("v4-16"), Topology::slice({2, 2, 2, 1}));
  EXPECT_EQ(topology_from_text("v5p-128"), Topology::slice({4, 4, 4, 1}));
  EXPECT_EQ(topology_from_text("v5litepod-8"), Topology::slice({2, 4, 1, 1}, {2, 4, 1}));
  EXPECT_EQ(topology_from_text("v5e-16"), Topology::slice({4, 4, 1, 1}));
  EXPECT_EQ(topology_from_text("v6e-8", {2, 2, 1}), Topology::slice({2, 4, 1, 1}));
  EXPECT_EQ(topology_from_text("tpu7x-8"), Topology::slice({2, 2, 1, 2}));
  EXPECT_EQ(topology_from_text("v3-2048").mesh_shape(), (MeshShape{32, 32, 1, 2}));
}

TEST(TopologyTest, SaysWhichTextsThereAre) {
  EXPECT_ERROR(topology_from_text(""), c10::ValueError, "4x4x2x2");
  EXPECT_ERROR(topology_from_text("4"), c10::ValueError, "two to four sizes");
  EXPECT_ERROR(topology_from_text("4x4x1x2x1"), c10::ValueError, "topology=\"4x4x1x2x1\"");
  EXPECT_ERROR(topology_from_text("4x0"), c10::ValueError, "topology=\"4x0\"");
  EXPECT_ERROR(topology_from_text("4x4x"), c10::ValueError, "topology=\"4x4x\"");
  EXPECT_ERROR(topology_from_text("99999999999x2"), c10::ValueError, "whole numbers");
  EXPECT_ERROR(topology_from_text("v9-8"), c10::ValueError, "generations: v2, v3, v4, v5p, v5litepod, v5e, v6e, tpu7x");
  EXPECT_ERROR(topology_from_text("v3-12"), c10::ValueError, "types: v3-8, v3-32, v3-64");
  EXPECT_ERROR(topology_from_text("v2-1024"), c10::ValueError, "v2-512;");
  EXPECT_ERROR(topology_from_text("v3-"), c10::ValueError, "type=\"v3-\"");
}

/// Writes a message by hand: the fields of `numbers` as varints, lists packed.
std::string message(const std::string& mesh, const std::string& tasks, const std::string& devices,
                    const std::string& coordinates) {
  const auto list = [](char tag, const std::string& entries) {
    return std::string(1, tag) + static_cast<char>(entries.size()) + entries;
  };
  return list(0x0a, mesh) + "\x10" + tasks + "\x18" + devices + list(0x22, coordinates);
}

const std::string kOne("\0\0\0\0", 4);

TEST(SerializedTopologyTest, IsTheSameAfterReading) {
  for (const char* text : {"1x1", "v3-8", "v3-32", "v4-32", "v5litepod-256", "16x16x16x2"}) {
    const Topology topology = topology_from_text(text);
    const std::string bytes = topology.serialized();
    EXPECT_EQ(Topology::from_serialized(bytes), topology) << text;
    EXPECT_EQ(Topology::from_serialized(bytes).serialized(), bytes) << text;
  }
}

TEST(SerializedTopologyTest, PassesOverOtherFieldsAndKeepsThem) {
  const std::string bytes = message("\2\1\1\1", "\1", "\1", kOne) + std::string("\x2a\x02\x08\x01", 4);
  const Topology topology = Topology::from_serialized(bytes);
  EXPECT_EQ(topology.mesh_shape(), (MeshShape{2, 1, 1, 1}));
  EXPECT_EQ(topology.serialized(), bytes);
}

TEST(SerializedTopologyTest, ReadsListsThatAreNotPacked) {
  const std::string bytes("\x08\1\x08\1\x08\1\x08\1\x10\1\x18\1\x20\0\x20\0\x20\0\x20\0", 20);
  EXPECT_EQ(Topology::from_serialized(bytes), Topology::slice({1, 1, 1, 1}));
}

TEST(SerializedTopologyTest, RefusesWhatCannotBe) {
  const std::string minus_one = std::string(9, '\xff') + "\x01";
  EXPECT_ERROR(Topology::from_serialized(""), c10::ValueError, "entries=0");
  EXPECT_ERROR(Topology::from_serialized(message("\1\1\1", "\1", "\1", kOne)), c10::ValueError, "entries=3");
  EXPECT_ERROR(Topology::from_serialized(message("\1\1\1\1\1", "\1", "\1", kOne)), c10::ValueError, "more than 4");
  EXPECT_ERROR(Topology::from_serialized(message("\1\1\1\1", minus_one, "\1", kOne)), c10::ValueError, "num_tasks=-1");
  EXPECT_ERROR(Topology::from_serialized(message("\1\1\1\1", "\1", minus_one, kOne)), c10::ValueError,
               "num_tpu_devices_per_task=-1");
  EXPECT_ERROR(Topology::from_serialized(message("\1\1\1\1", "\2", "\1", kOne)), c10::ValueError,
               "entries=4, num_tasks=2");
  EXPECT_ERROR(Topology::from_serialized(message("\1\1\1\1", "\1", "\1", std::string("\0\0\0", 3) + minus_one)),
               c10::ValueError, "coordinate=-1");
  EXPECT_ERROR(Topology::from_serialized(message("\1\1\1\1", "\xff\xff\xff\xff\x07", "\1", "")), c10::ValueError,
               "num_tasks=2147483647");
  EXPECT_ERROR(Topology::from_serialized(message("\1\1\1\1", "\1", std::string(1, '\0'), "")), c10::ValueError,
               "every task must have a device: num_tasks=1");
  EXPECT_ERROR(Topology::from_serialized(message("\1\1\1\1", "\xff\xff\xff\xff\xff\x01", "\1", kOne)), c10::ValueError,
               "must fit 32 bits");
  EXPECT_ERROR(Topology::from_serialized(message("\1\1\1\1", "\1", "\1", std::string("\5\0\0\0", 4))), c10::IndexError,
               "coordinates=[5 0 0 0]");
}

TEST(SerializedTopologyTest, DamagedBytesAreErrors) {
  const std::string whole = Topology::slice({4, 4, 1, 2}).serialized();
  EXPECT_ERROR(Topology::from_serialized(whole.substr(0, whole.size() - 1)), DataError, "sound TopologyProto");
  std::mt19937 random(7);
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = whole.substr(0, random() % (whole.size() + 1));
    for (int change = 0; change < 3 && !bytes.empty(); ++change)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    try {
      EXPECT_EQ(Topology::from_serialized(bytes).serialized(), bytes);
    } catch (const c10::Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 2000);
}

}  // namespace
}  // namespace lockstep::tpu
