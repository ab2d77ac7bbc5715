#pragma once

#include <map>
#include <string>
#include <vector>

#include "lockstep/api.h"

/// Lists of devices for strategies.
namespace lockstep {

/// The devices of each task of each job: `group["worker"][1]` are those of task 1.
using DeviceGroups = std::map<std::string, std::map<int, std::vector<std::string>>>;

/// Returns all logical GPUs, or all logical CPUs where there is no GPU.
LOCKSTEP_API std::vector<std::string> default_device_list();

/// Returns the canonical names of the devices of a strategy inside one process.
///
/// Each string is completed by this thread's device scopes; an empty list means `default_device_list()`. Throws
/// `c10::ValueError` when a device is listed twice or does not exist, when local and remote devices are mixed, when a
/// remote device has no task, and when the devices belong to several workers.
LOCKSTEP_API std::vector<std::string> resolve_device_list(const std::vector<std::string>& devices);

/// Returns whether all devices belong to one (job, replica, task); `localhost` and no job are the same.
///
/// Throws `c10::ValueError` when local and remote devices are mixed, or when the devices of a single remote worker have
/// no task.
LOCKSTEP_API bool is_device_list_single_worker(const std::vector<std::string>& devices);

/// Sorts the devices of several workers by job and task; throws `c10::ValueError` when there is only one worker.
LOCKSTEP_API DeviceGroups group_device_list(const std::vector<std::string>& devices);

/// Returns how many GPUs each worker has.
///
/// Throws `c10::ValueError` when the workers differ, or when the GPUs of a worker are not numbered from 0 on.
LOCKSTEP_API int infer_num_gpus_per_worker(const std::vector<std::string>& devices);

/// Returns `/device:GPU:0` to `/device:GPU:n-1`, or `/device:CPU:0` where `num_gpus` is not positive.
LOCKSTEP_API std::vector<std::string> local_devices_from_num_gpus(int num_gpus);

}  // namespace lockstep
