#include "lockstep/xla/pjrt/compile_options.h"

#include <cstdint>

#define PROTOZERO_USE_VIEW std::string_view
#include <protozero/pbf_writer.hpp>

namespace lockstep::xla {
namespace {

using protozero::pbf_writer;

// Fields of xla/pjrt/proto/compile_options.proto: CompileOptionsProto, ExecutableBuildOptionsProto.
constexpr uint32_t kBuildOptions = 3;
constexpr uint32_t kNumReplicas = 4;
constexpr uint32_t kNumPartitions = 5;
constexpr uint32_t kUseSpmdPartitioning = 6;
constexpr uint32_t kDeviceAssignment = 9;
constexpr uint32_t kUseShardyPartitioner = 19;
// A map from names to OptionOverrideProto.
constexpr uint32_t kEnvOptionOverrides = 7;
constexpr uint32_t kKey = 1;
constexpr uint32_t kValue = 2;
constexpr uint32_t kBoolField = 2;
// Fields of DeviceAssignmentProto in xla/xla_data.proto, and of its ComputationDevice.
constexpr uint32_t kReplicaCount = 1;
constexpr uint32_t kComputationCount = 2;
constexpr uint32_t kComputationDevices = 3;
constexpr uint32_t kReplicaDeviceIds = 1;

/// One entry for each partition, with its device in every replica.
void write_assignment(const std::vector<std::vector<int>>& device_ids, pbf_writer& assignment) {
  const size_t num_partitions = device_ids.front().size();
  assignment.add_int32(kReplicaCount, static_cast<int32_t>(device_ids.size()));
  assignment.add_int32(kComputationCount, static_cast<int32_t>(num_partitions));
  for (size_t partition = 0; partition < num_partitions; ++partition) {
    std::vector<int64_t> ids;
    for (const auto& replica : device_ids) ids.push_back(replica[partition]);
    pbf_writer devices(assignment, kComputationDevices);
    devices.add_packed_int64(kReplicaDeviceIds, ids.begin(), ids.end());
  }
}

/// Sets a flag of the compiler for this program alone.
void write_flag(pbf_writer& options, const char* name, bool value) {
  pbf_writer entry(options, kEnvOptionOverrides);
  entry.add_string(kKey, name);
  pbf_writer(entry, kValue).add_bool(kBoolField, value);
}

}  // namespace

std::string compile_options(const std::vector<std::vector<int>>& device_ids, bool on_cpu, bool exact) {
  const size_t num_partitions = device_ids.front().size();
  std::string bytes;
  pbf_writer options(bytes);
  {
    pbf_writer build(options, kBuildOptions);
    build.add_int64(kNumReplicas, static_cast<int64_t>(device_ids.size()));
    build.add_int64(kNumPartitions, static_cast<int64_t>(num_partitions));
    if (num_partitions > 1) build.add_bool(kUseSpmdPartitioning, true);
    {
      pbf_writer assignment(build, kDeviceAssignment);
      write_assignment(device_ids, assignment);
    }
    if (num_partitions > 1) build.add_bool(kUseShardyPartitioner, true);
  }
  if (on_cpu) write_flag(options, "xla_cpu_enable_fast_min_max", false);
  if (exact) write_flag(options, "xla_allow_excess_precision", false);
  return bytes;
}

}  // namespace lockstep::xla
