#include "tests/golden/differences.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/device/device_spec.h"
#include "tests/golden/compare.h"
#include "tests/golden/differences/topics.h"

namespace lockstep::golden {
namespace {

bool is_call(const Case& test_case, std::initializer_list<std::string_view> calls) {
  return is_one_of(test_case.call, calls);
}

/// Returns the devices that a strategy of the devices topic is made with.
Json devices_of(const Case& test_case) {
  const Json devices = test_case.field("devices");
  return devices.is_array() ? devices : Json::array({test_case.field("device")});
}

bool is_missing_device(const Case& test_case, const Json& device) {
  if (!device.is_string()) return false;
  try {
    const DeviceSpec spec = DeviceSpec::parse(canonicalize(device.get<std::string>()));
    const std::string count = spec.type() == "CPU" ? "logical_cpus" : spec.type() == "GPU" ? "logical_gpus" : "";
    const int num_devices = count.empty() ? 0 : test_case.in.value(count, 0);
    return spec.job() != "localhost" || spec.task() != 0 || *spec.index() < 0 || *spec.index() >= num_devices;
  } catch (const c10::Error&) {
    return false;
  }
}

bool makes_strategy_on_missing_device(const Case& test_case) {
  if (!is_call(test_case,
               {"MirroredStrategy", "OneDeviceStrategy", "OneDeviceStrategy_run", "CentralStorageStrategy"})) {
    return false;
  }
  Json devices = devices_of(test_case);
  devices.push_back(test_case.field("parameter_device"));
  return std::any_of(devices.begin(), devices.end(), [&](const Json& d) { return is_missing_device(test_case, d); });
}

bool mixes_localhost_and_no_job(const Case& test_case) {
  if (test_case.call != "MirroredStrategy") return false;
  const Json devices = devices_of(test_case);
  const auto num_named = std::count_if(devices.begin(), devices.end(), [](const Json& device) {
    return device.is_string() && device.get<std::string>().starts_with("/job:localhost");
  });
  return num_named > 0 && num_named < static_cast<int64_t>(devices.size());
}

Json strategy_on_canonical_devices(const Case& test_case) {
  Json names = Json::array();
  for (const Json& device : devices_of(test_case)) names.push_back(canonicalize(device.get<std::string>()));
  return {{"num_replicas_in_sync", names.size()}, {"worker_devices", names}, {"parameter_devices", names}};
}

bool has_number_as_device(const Case& test_case) {
  if (!is_call(test_case, {"MirroredStrategy", "CentralStorageStrategy"})) return false;
  const Json devices = devices_of(test_case);
  return std::any_of(devices.begin(), devices.end(), [](const Json& device) { return device.is_number(); });
}

bool has_no_device_as_parameter_device(const Case& test_case) {
  if (test_case.call != "CentralStorageStrategy") return false;
  try {
    canonicalize(test_case.text("parameter_device"));
    return false;
  } catch (const c10::Error&) {
    return true;
  }
}

bool has_empty_parameter_device(const Case& test_case) {
  return test_case.call == "CentralStorageStrategy" && test_case.field("parameter_device") == "";
}

/// What TensorFlow answers where no parameter device is given.
Json with_default_parameter_device(const Case& test_case) {
  Json answer = test_case.out;
  const Json& workers = answer.at("worker_devices");
  answer["parameter_devices"] = {workers.size() == 1 ? workers[0] : Json("/device:CPU:0")};
  return answer;
}

bool has_no_compute_devices(const Case& test_case) {
  return test_case.call == "CentralStorageStrategy" && test_case.field("devices") == Json::array();
}

/// The machine of the cases has no GPU, so that the first CPU is the default.
Json on_default_device(const Case& test_case) {
  const std::string cpu = canonicalize("CPU:0");
  const Json parameter_device = test_case.field("parameter_device");
  return {{"num_replicas_in_sync", 1},
          {"worker_devices", {cpu}},
          {"parameter_devices", {parameter_device.is_null() ? Json(cpu) : parameter_device}}};
}

void add_devices(std::vector<Difference>& table) {
  table.push_back({"device that does not exist", "devices", makes_strategy_on_missing_device,
                   "accepts it; operations run on another device that exists (soft placement)",
                   "ValueError that lists the existing devices and how to add more",
                   "a program that asks for a GPU must not silently run on the CPU",
                   expect_error("ValueError", "there is no such device")});
  table.push_back({"localhost and no job", "devices", mixes_localhost_and_no_job,
                   "RuntimeError: counts `/job:localhost/cpu:0` and `/cpu:1` as two workers",
                   "the two devices, which both belong to this process",
                   "both spellings have the same canonical job, so they name one worker",
                   expect_value(strategy_on_canonical_devices)});
  table.push_back({"number that is too large", "devices",
                   [](const Case& c) { return c.text("string").find("99999999999999999999") != std::string::npos; },
                   "accepts an index of any size", "ValueError: a number in a device string must fit 32 bits",
                   "LibTorch numbers devices with 8 bits, so no such device can exist",
                   expect_error("ValueError", "must fit 32 bits")});
  table.push_back({"number as a device", "devices", has_number_as_device,
                   "treats 0 as an unspecified device, and fails for other numbers", "does not compile",
                   "a list of devices is a list of strings", expect_no_compile()});
  table.push_back({"parameter device that is not a device", "devices", has_no_device_as_parameter_device,
                   "CentralStorageStrategy accepts any string and does not check whether it names a device",
                   "ValueError, as for compute devices", "a wrong name is reported where it is given",
                   expect_error("ValueError", "[DeviceSpec::parse]")});
  table.push_back({"empty list of compute devices", "devices", has_no_compute_devices,
                   "CentralStorageStrategy makes a strategy without replicas",
                   "same as none: all GPUs, or the first CPU",
                   "a strategy without replicas can compute nothing; MirroredStrategy treats an empty list in this way",
                   expect_value(on_default_device)});
  table.push_back({"empty parameter device", "devices", has_empty_parameter_device,
                   "accepts the empty string, which names no device",
                   "same as none: the only compute device, or the CPU",
                   "all variables of one strategy are on one device", expect_value(with_default_parameter_device)});
}

std::vector<Difference> make_table() {
  std::vector<Difference> table;
  add_devices(table);
  rules::contexts::add(table);
  rules::values::add(table);
  rules::replica_context::add(table);
  rules::reduce_gather::add(table);
  rules::variables::add(table);
  rules::cross_device::add(table);
  rules::rebatch_and_shard::add(table);
  rules::multi_worker::add(table);
  rules::resolvers::add(table);
  rules::topology::add(table);
  rules::training::add(table);
  return table;
}

}  // namespace

bool is_one_of(const std::string& text, std::initializer_list<std::string_view> words) {
  return std::count(words.begin(), words.end(), text) > 0;
}

Check expect_error(std::string type, std::string part) {
  return [type = std::move(type), part = std::move(part)](const Case&,
                                                          const Outcome& outcome) -> std::optional<std::string> {
    const bool fits =
        outcome.kind == Outcome::Kind::Error && outcome.type == type && outcome.text.find(part) != std::string::npos;
    if (fits) return std::nullopt;
    return "the rule promises " + type + " with '" + part + "' in its message";
  };
}

Check expect_value(std::function<Json(const Case&)> expected) {
  return [expected = std::move(expected)](const Case& test_case, const Outcome& outcome) -> std::optional<std::string> {
    if (outcome.kind != Outcome::Kind::Value) return "the rule promises a value";
    try {
      return mismatch(expected(test_case), outcome.value);
    } catch (const std::exception& e) {
      return std::string("what the rule promises cannot be computed: ") + e.what();
    }
  };
}

Check expect_no_compile() {
  return [](const Case&, const Outcome& outcome) -> std::optional<std::string> {
    if (outcome.kind == Outcome::Kind::DoesNotCompile) return std::nullopt;
    return "the rule promises that the call does not compile";
  };
}

const std::vector<Difference>& differences() {
  static const std::vector<Difference> table = make_table();
  return table;
}

const Difference* find_difference(const Case& test_case) {
  for (const Difference& rule : differences()) {
    if (rule.topic == test_case.topic && rule.applies(test_case)) return &rule;
  }
  return nullptr;
}

}  // namespace lockstep::golden
