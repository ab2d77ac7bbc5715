#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/device/device_list.h"
#include "lockstep/device/device_scope.h"
#include "lockstep/device/device_spec.h"
#include "lockstep/device/logical_devices.h"
#include "lockstep/strategy/extended.h"
#include "lockstep/strategy/strategies/central_storage.h"
#include "lockstep/strategy/strategies/mirrored.h"
#include "lockstep/strategy/strategies/one_device.h"
#include "tests/golden/drivers.h"

namespace lockstep::golden::drivers::devices {
namespace {

template <typename T>
Json json_of(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json json_of(const DeviceSpec& spec) {
  return {
      {"job", json_of(spec.job())},          {"replica", json_of(spec.replica())},    {"task", json_of(spec.task())},
      {"device_type", json_of(spec.type())}, {"device_index", json_of(spec.index())}, {"string", spec.to_string()}};
}

template <typename T>
std::optional<T> optional_of(const Json& value) {
  return value.is_null() ? std::nullopt : std::optional<T>(value.get<T>());
}

DeviceSpec with_fields(DeviceSpec spec, const Json& fields) {
  for (const auto& [name, value] : fields.items()) {
    if (name == "job") spec = spec.with_job(optional_of<std::string>(value));
    if (name == "replica") spec = spec.with_replica(optional_of<int>(value));
    if (name == "task") spec = spec.with_task(optional_of<int>(value));
    if (name == "device_type") spec = spec.with_type(optional_of<std::string>(value));
    if (name == "device_index") spec = spec.with_index(optional_of<int>(value));
  }
  return spec;
}

MissingJob missing_job(const Case& test_case) {
  return test_case.text("mode") == "graph" ? MissingJob::LeftOut : MissingJob::Localhost;
}

/// Opens the device scopes of a case for as long as it lives.
class Scopes {
 public:
  explicit Scopes(const Json& devices) {
    for (const Json& device : devices) {
      const auto text = optional_of<std::string>(device);
      scopes_.push_back(std::make_unique<DeviceScope>(text ? std::optional<std::string_view>(*text) : std::nullopt));
    }
  }
  ~Scopes() {
    while (!scopes_.empty()) scopes_.pop_back();
  }

 private:
  std::vector<std::unique_ptr<DeviceScope>> scopes_;
};

Json run_string_call(const Case& test_case) {
  const std::string text = test_case.text("string");
  if (test_case.call == "parse") return json_of(DeviceSpec::parse(text));
  if (test_case.call == "canonicalize") return canonicalize(text, test_case.text("default"), missing_job(test_case));
  if (test_case.call == "canonicalize_without_job_and_task") return canonicalize_without_job_and_task(text);
  if (test_case.call == "get_host_for_device") return host_for_device(text);
  if (test_case.call == "construct") return json_of(with_fields(DeviceSpec(), test_case.in));
  if (test_case.call == "replace") return json_of(with_fields(DeviceSpec::parse(text), test_case.field("fields")));
  if (test_case.call == "make_merged_spec") {
    return DeviceSpec::parse(test_case.text("base"))
        .merged_with(DeviceSpec::parse(test_case.text("override")))
        .to_string();
  }
  const Scopes scopes(test_case.field("scopes"));
  if (test_case.call == "current") return current_device(missing_job(test_case));
  if (test_case.call == "resolve") return resolve(text, missing_job(test_case));
  throw HarnessError("[devices] unknown call: " + test_case.call);
}

std::vector<std::string> texts_of(const Json& devices) {
  std::vector<std::string> texts;
  if (!devices.is_array()) throw DoesNotCompile("a list of devices is a vector");
  for (const Json& device : devices) {
    if (!device.is_string()) throw DoesNotCompile("a device is a text");
    texts.push_back(device);
  }
  return texts;
}

Json json_of(const DeviceGroups& groups) {
  Json result = Json::object();
  for (const auto& [job, tasks] : groups) {
    Json lists = Json::array();
    for (const auto& [task, devices] : tasks) lists[task] = devices;
    result[job] = lists;
  }
  return result;
}

Json run_list_call(const Case& test_case) {
  if (test_case.call == "local_devices_from_num_gpus") return local_devices_from_num_gpus(test_case.in.at("num_gpus"));
  const std::vector<std::string> devices = texts_of(test_case.in.at("devices"));
  if (test_case.call == "group_device_list") return json_of(group_device_list(devices));
  if (test_case.call == "is_device_list_single_worker") return is_device_list_single_worker(devices);
  return infer_num_gpus_per_worker(devices);
}

/// Has the logical devices of a case for as long as it lives.
class LogicalDevices {
 public:
  explicit LogicalDevices(const Case& test_case) {
    set_logical_devices("CPU", test_case.in.at("logical_cpus"));
    const size_t num_cards = list_physical_devices("GPU").size();
    if (num_cards > 0) set_logical_devices_per_physical("GPU", std::vector<int>(num_cards, 0));
  }
  ~LogicalDevices() { reset_logical_devices(); }
};

Strategy make_strategy(const Case& test_case) {
  const Json devices = test_case.field("devices");
  const auto names = [&] { return devices.is_null() ? std::vector<std::string>() : texts_of(devices); };
  if (test_case.call == "MirroredStrategy") return MirroredStrategy(names());
  if (test_case.call == "CentralStorageStrategy") {
    return CentralStorageStrategy(names(), test_case.text("parameter_device"));
  }
  const Json device = test_case.field("device");
  return OneDeviceStrategy(texts_of(Json::array({device.is_null() ? Json("") : device})).at(0));
}

Json run_strategy(const Case& test_case) {
  const LogicalDevices logical_devices(test_case);
  const Strategy strategy = make_strategy(test_case);
  if (test_case.call == "OneDeviceStrategy_run") return strategy.run([] { return current_device(); }).value();
  return {{"num_replicas_in_sync", strategy.num_replicas_in_sync()},
          {"worker_devices", strategy.extended().worker_devices()},
          {"parameter_devices", strategy.extended().parameter_devices()}};
}

}  // namespace

Outcome run(const Case& test_case) {
  static const std::vector<std::string> list_calls{"local_devices_from_num_gpus", "group_device_list",
                                                   "is_device_list_single_worker", "infer_num_gpus_per_worker"};
  if (std::count(list_calls.begin(), list_calls.end(), test_case.call) > 0) {
    return Outcome::of_value(run_list_call(test_case));
  }
  if (test_case.call.find("Strategy") != std::string::npos) return Outcome::of_value(run_strategy(test_case));
  return Outcome::of_value(run_string_call(test_case));
}

}  // namespace lockstep::golden::drivers::devices
