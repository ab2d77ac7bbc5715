#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <string_view>

#include "lockstep/api.h"

/// Device strings.
///
/// A device string is a list of components separated by `/`, each optional, in any order:
///
///     /job:worker/replica:0/task:1/device:GPU:0     all components
///     /cpu:1   GPU:0   gpu                          short forms of the device component
///     cuda:0   cuda                                 LibTorch's spelling, the same as GPU
///
/// `canonicalize` completes the components, so that equal devices have equal names:
///
///     canonicalize("cpu:1")      == "/job:localhost/replica:0/task:0/device:CPU:1"
///     canonicalize("/job:chief") == "/job:chief/replica:0/task:0/device:CPU:0"
namespace lockstep {

/// The five parts of a device string, each of which may be unspecified.
///
/// An immutable value; `with_…` gives a changed copy and takes `std::nullopt` to unset a part:
/// `DeviceSpec().with_type("gpu").with_index(1)`.
class LOCKSTEP_API DeviceSpec {
 public:
  DeviceSpec() = default;

  /// Parses a device string; throws `c10::ValueError` that names the faulty component.
  ///
  /// The short form knows CPU, GPU, TPU and CUDA in upper or lower case and converts them to upper case (CUDA becomes
  /// GPU). The long form `device:TYPE:INDEX` takes any type and preserves its case, except for `cpu` and `gpu`. An
  /// index
  /// `*` is unspecified.
  static DeviceSpec parse(std::string_view text);

  const std::optional<std::string>& job() const { return job_; }
  const std::optional<int>& replica() const { return replica_; }
  const std::optional<int>& task() const { return task_; }
  const std::optional<std::string>& type() const { return type_; }
  const std::optional<int>& index() const { return index_; }

  /// Returns a copy with another job.
  DeviceSpec with_job(std::optional<std::string> job) const;
  /// Returns a copy with another replica.
  DeviceSpec with_replica(std::optional<int> replica) const;
  /// Returns a copy with another task.
  DeviceSpec with_task(std::optional<int> task) const;
  /// Returns a copy with another device type; `cpu` and `gpu` become upper case.
  DeviceSpec with_type(std::optional<std::string> type) const;
  /// Returns a copy with another device index.
  DeviceSpec with_index(std::optional<int> index) const;

  /// Returns a copy in which every part that `override` specifies has its value.
  DeviceSpec merged_with(const DeviceSpec& override) const;

  /// Returns `/job:J/replica:R/task:T/device:TYPE:I` without the unspecified parts; a type without index prints `*`.
  std::string to_string() const;

  bool operator==(const DeviceSpec& other) const = default;

 private:
  std::optional<std::string> job_;
  std::optional<int> replica_;
  std::optional<int> task_;
  std::optional<std::string> type_;
  std::optional<int> index_;
};

LOCKSTEP_API std::ostream& operator<<(std::ostream& out, const DeviceSpec& spec);

/// The job of a device whose string and default have none.
enum class MissingJob {
  /// This process: `/job:localhost`, or its task in a cluster (process_task.h). The rule of eager programs.
  Localhost,
  /// The name has no job: the device is relative to whichever worker uses it (TensorFlow's graph mode).
  LeftOut,
};

/// Returns the full name of `device`: its own parts, else those of `fallback`, else replica 0, task 0, CPU 0.
///
/// Throws `c10::ValueError` when a string does not parse or a device type is not in upper case. The device need not
/// exist; `find_logical_device` checks that.
LOCKSTEP_API std::string canonicalize(std::string_view device, std::string_view fallback = "",
                                      MissingJob missing_job = MissingJob::Localhost);

/// Returns replica 0, type and index of `device`, without job and task: relative to whichever worker uses it.
LOCKSTEP_API std::string canonicalize_without_job_and_task(std::string_view device);

/// Returns CPU 0 of the job, replica and task that `device` names.
LOCKSTEP_API std::string host_for_device(std::string_view device);

}  // namespace lockstep
