#include "lockstep/xla/pjrt/compile_options.h"

#include <charconv>
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
constexpr uint32_t kStringField = 1;
constexpr uint32_t kBoolField = 2;
constexpr uint32_t kIntField = 3;
constexpr uint32_t kDoubleField = 4;
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

/// Writes the value with the type that its text has.
void write_value(pbf_writer& value, const std::string& text) {
  const char* const end = text.data() + text.size();
  int64_t integer = 0;
  double number = 0;
  if (text == "true" || text == "True" || text == "false" || text == "False") {
    value.add_bool(kBoolField, text == "true" || text == "True");
  } else if (const auto read = std::from_chars(text.data(), end, integer); read.ec == std::errc() && read.ptr == end) {
    value.add_int64(kIntField, integer);
  } else if (const auto read = std::from_chars(text.data(), end, number); read.ec == std::errc() && read.ptr == end) {
    value.add_double(kDoubleField, number);
  } else {
    value.add_string(kStringField, text);
  }
}

/// Sets options of the compiler for this program alone.
void write_options(pbf_writer& options, const CompilerOptions& values) {
  for (const auto& [name, text] : values) {
    pbf_writer entry(options, kEnvOptionOverrides);
    entry.add_string(kKey, name);
    pbf_writer value(entry, kValue);
    write_value(value, text);
  }
}

}  // namespace

std::string compile_options(const std::vector<std::vector<int>>& device_ids, bool on_cpu, bool exact,
                            const CompilerOptions& options_of_user) {
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
  CompilerOptions flags = options_of_user;  // insert does not replace them
  if (on_cpu) flags.insert({"xla_cpu_enable_fast_min_max", "false"});
  if (exact) flags.insert({"xla_allow_excess_precision", "false"});
  write_options(options, flags);
  return bytes;
}

}  // namespace lockstep::xla
