#include "tests/golden/strategies.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "lockstep/device/logical_devices.h"
#include "lockstep/strategy/context.h"
#include "lockstep/strategy/replica_context.h"
#include "lockstep/strategy/strategies/central_storage.h"
#include "lockstep/strategy/strategies/mirrored.h"
#include "lockstep/strategy/strategies/one_device.h"
#include "tests/golden/tensors.h"

namespace lockstep::golden {
namespace {

template <class Values>
Json array_of(const Values& values) {
  Json array = Json::array();
  for (const auto& value : values) array.push_back(to_json(value));
  return array;
}

}  // namespace

LogicalCpus::LogicalCpus(const Case& test_case) {
  const Json devices = test_case.field("devices");
  const int num_devices = devices.is_number() ? devices.get<int>() : 1;
  set_logical_devices("CPU", std::max({4, test_case.in.value("replicas", 1), num_devices}));
}

LogicalCpus::~LogicalCpus() { reset_logical_devices(); }

std::vector<std::string> cpu_names(int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back("CPU:" + std::to_string(i));
  return names;
}

Strategy strategy_of(const Case& test_case) {
  const std::string name = test_case.text("strategy");
  if (name == "Mirrored") return MirroredStrategy(cpu_names(test_case.in.at("replicas")));
  if (name == "CentralStorage") return CentralStorageStrategy(cpu_names(test_case.in.at("replicas")), "/cpu:0");
  if (name == "OneDevice") return OneDeviceStrategy("CPU:0");
  if (name == "Default" || name == "None") return get_strategy();
  throw HarnessError("[strategy_of] unknown: strategy=" + name);
}

bool has_value_for_each_replica(const Case& test_case) {
  const std::string name = test_case.text("strategy");
  return name == "Mirrored" || name == "CentralStorage";
}

Json to_json(const PerReplica<at::Tensor>& value) {
  return value.is_bare() ? to_json(value[0]) : Json{{"per_replica", array_of(value)}};
}

Json to_json(const PerReplica<IndexedSlices>& value) {
  return value.is_bare() ? to_json(value[0]) : Json{{"per_replica", array_of(value)}};
}

Json to_json(const Mirrored<at::Tensor>& value) {
  return value.size() == 1 ? to_json(value[0]) : Json{{"mirrored", array_of(value)}};
}

Json to_json(const Mirrored<IndexedSlices>& value) {
  return value.size() == 1 ? to_json(value[0]) : Json{{"mirrored", array_of(value)}};
}

Json to_json(const IndexedSlices& value) {
  const Json content = {
      {"indices", to_json(value.indices)}, {"values", to_json(value.values)}, {"dense_shape", value.dense_shape}};
  return {{"slices", content}};
}

Json plain_json(const at::Tensor& tensor) {
  if (tensor.dim() == 0) return to_json(tensor)["data"][0];
  Json items = Json::array();
  for (int64_t i = 0; i < tensor.size(0); ++i) items.push_back(plain_json(tensor[i]));
  return items;
}

int replica_id() { return get_replica_context().replica_id_in_sync_group(); }

}  // namespace lockstep::golden
