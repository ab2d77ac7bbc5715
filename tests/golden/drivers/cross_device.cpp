#include <functional>
#include <map>
#include <memory>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "lockstep/comm/options.h"
#include "lockstep/comm/pack.h"
#include "lockstep/device/device_spec.h"
#include "lockstep/device/logical_devices.h"
#include "lockstep/strategy/context.h"
#include "lockstep/strategy/reduce/cross_device_ops.h"
#include "lockstep/strategy/replica_context.h"
#include "lockstep/strategy/strategies/mirrored.h"
#include "lockstep/strategy/variable/variable.h"
#include "tests/golden/drivers.h"
#include "tests/golden/strategies.h"
#include "tests/golden/tensors.h"

namespace lockstep::golden::drivers::cross_device {
namespace {

int64_t whole_number(const Json& value) {
  if (!value.is_number_integer()) throw DoesNotCompile("a number of bytes is a whole number");
  return value.get<int64_t>();
}

CommunicationOptions options_of(const Json& fields) {
  CommunicationOptions options;
  if (!fields.is_object()) return options;
  if (fields.contains("bytes_per_pack")) options.bytes_per_pack = whole_number(fields["bytes_per_pack"]);
  if (fields.contains("timeout_seconds") && !fields["timeout_seconds"].is_null()) {
    options.timeout_seconds = fields["timeout_seconds"].get<double>();
  }
  if (fields.contains("implementation")) {
    if (!fields["implementation"].is_string()) throw DoesNotCompile("an implementation is an enumerator or a text");
    options.implementation = CommunicationImplementation(fields["implementation"].get<std::string>());
  }
  options.validate();
  return options;
}

Json json_of(const CommunicationOptions& options) {
  return {{"bytes_per_pack", options.bytes_per_pack},
          {"timeout_seconds", options.timeout_seconds ? Json(*options.timeout_seconds) : Json()},
          {"implementation", std::string(options.implementation.name())}};
}

Json merge_options(const Case& test_case) {
  return json_of(options_of(test_case.in.at("base")).merge(options_of(test_case.field("override"))));
}

Json group_by_size(const Case& test_case) {
  const Json shapes = test_case.in.at("shapes");
  const at::ScalarType type = scalar_type(test_case.text("dtype"));
  std::vector<at::Tensor> tensors;
  for (const Json& shape : shapes) {
    for (const Json& size : shape) {
      if (size.is_null()) throw DoesNotCompile("a tensor knows its shape");
    }
    tensors.push_back(at::empty(shape.get<std::vector<int64_t>>(), type));
  }
  Json packs = Json::array();
  for (const comm::Pack& pack : comm::group_by_size(tensors, test_case.in.at("bytes_per_pack").get<int64_t>())) {
    packs.push_back(
        Json(shapes.begin() + static_cast<ptrdiff_t>(pack.begin), shapes.begin() + static_cast<ptrdiff_t>(pack.end)));
  }
  return packs;
}

/// Makes what a text such as "ReductionToOneDevice(cpu:1)" or "HierarchicalCopyAllReduce(2)" names.
std::shared_ptr<CrossDeviceOps> make_ops(const std::string& text) {
  static const std::regex pattern(R"((\w+)(\((.*)\))?)");
  std::smatch match;
  std::regex_match(text, match, pattern);
  const std::string name = match[1];
  const std::string argument = match[3];
  if (name == "ReductionToOneDevice") return std::make_shared<ReductionToOneDevice>(argument);
  const int num_packs = argument.empty() ? 1 : std::stoi(argument);
  if (name == "HierarchicalCopyAllReduce") return std::make_shared<HierarchicalCopyAllReduce>(num_packs);
  if (name == "NcclAllReduce") return std::make_shared<NcclAllReduce>(num_packs);
  throw HarnessError("[cross_device] unknown: implementation=" + text);
}

Json construct(const Case& test_case) {
  const std::string argument = "(" + std::to_string(test_case.in.at("num_packs").get<int>()) + ")";
  return std::string(make_ops(test_case.text("class") + argument)->name());
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::istringstream stream(text);
  std::vector<std::string> parts;
  for (std::string part; std::getline(stream, part, separator);) {
    parts.push_back(part.substr(part.find_first_not_of(' ')));
  }
  return parts;
}

template <class T>
Destinations destinations_of(const std::string& text, const PerReplica<T>& value) {
  constexpr std::string_view kMirrored = "mirrored on ";
  if (text == "same devices") return Destinations(value);
  if (text == "empty") return Destinations("");
  if (text.starts_with(kMirrored)) return Destinations(split(text.substr(kMirrored.size()), ','));
  if (text.starts_with("cpu:")) return Destinations(text);
  throw DoesNotCompile("a destination is a device string, a distributed value or a variable: " + text);
}

/// The device of each copy of a result: the destination that it was made for, if it is there. To LibTorch all logical
/// CPUs are one device.
Json device_names(const Mirrored<at::Tensor>& result, const Destinations& destinations) {
  Json names = Json::array();
  for (size_t copy = 0; copy < result.size(); ++copy) {
    const bool like_value = destinations.devices().empty();
    const std::string device =
        like_value ? canonicalize("CPU:" + std::to_string(copy)) : destinations.devices().at(copy);
    const bool is_there = result[copy].device() == find_logical_device(device).torch_device;
    const DeviceSpec spec = DeviceSpec::parse(device);
    names.push_back(is_there ? *spec.type() + ":" + std::to_string(spec.index().value())
                             : "on " + result[copy].device().str());
  }
  return names;
}

PerReplica<at::Tensor> per_replica(const Json& values) {
  std::vector<at::Tensor> components;
  for (const Json& value : values) components.push_back(tensor_from_json("float32", value));
  return PerReplica<at::Tensor>(components);
}

PerReplica<IndexedSlices> slices_of(const Case& test_case) {
  const Json& indices = test_case.in.at("indices");
  std::vector<IndexedSlices> components;
  for (size_t i = 0; i < indices.size(); ++i) {
    components.push_back({tensor_from_json("int32", indices[i]),
                          tensor_from_json("float32", test_case.in.at("values")[i]),
                          test_case.in.at("dense_shape").get<std::vector<int64_t>>()});
  }
  return PerReplica<IndexedSlices>(components);
}

ReduceOp op_of(const Case& test_case) { return ReduceOp(test_case.text("op")); }

std::shared_ptr<CrossDeviceOps> ops_of(const Case& test_case) { return make_ops(test_case.text("implementation")); }

Json reduce(const Case& test_case) {
  const PerReplica<at::Tensor> value = per_replica(test_case.in.at("values"));
  const Destinations destinations = destinations_of(test_case.text("destinations"), value);
  const Mirrored<at::Tensor> result = ops_of(test_case)->reduce(op_of(test_case), value, destinations);
  return {{"result", to_json(result)}, {"devices", device_names(result, destinations)}};
}

Json batch_reduce(const Case& test_case) {
  const std::vector<std::string> texts = split(test_case.text("destinations"), ';');
  std::vector<CrossDeviceOps::ValueAndDestinations> values;
  for (const Json& value : test_case.in.at("values")) {
    const PerReplica<at::Tensor> components = per_replica(value);
    const std::string& text = texts[std::min(values.size(), texts.size() - 1)];
    values.emplace_back(components, destinations_of(text, components));
  }
  Json results = Json::array();
  for (const auto& result : ops_of(test_case)->batch_reduce(op_of(test_case), values)) {
    results.push_back(to_json(result));
  }
  return results;
}

Json reduce_slices(const Case& test_case) {
  const PerReplica<IndexedSlices> value = slices_of(test_case);
  return to_json(ops_of(test_case)->reduce(op_of(test_case), value, Destinations(value)));
}

Json broadcast(const Case& test_case) {
  const at::Tensor value = tensor_from_json("float32", test_case.in.at("value"));
  const Destinations destinations = destinations_of(test_case.text("destinations"), PerReplica<at::Tensor>{value});
  const Mirrored<at::Tensor> result = ops_of(test_case)->broadcast(value, destinations);
  return {{"result", to_json(result)}, {"devices", device_names(result, destinations)}};
}

/// A value that is no PerReplica: in C++ it is turned into one, of one component for each of its devices.
Json reduce_value(const Case& test_case) {
  const std::string kind = test_case.text("value");
  const at::Tensor two = at::scalar_tensor(2.0f);
  const auto reduce_parts = [&](const std::vector<at::Tensor>& parts) {
    return to_json(ops_of(test_case)->reduce(op_of(test_case), PerReplica<at::Tensor>(parts), Destinations("cpu:0")));
  };
  if (kind == "tensor" || kind == "number") return reduce_parts({two});
  if (kind == "list") return reduce_parts({at::tensor({1.0f})});
  if (kind == "variable") return reduce_parts({Variable(two).value()});
  if (kind == "mirrored") return reduce_parts({two / 2, two / 2});
  throw HarnessError("[cross_device] unknown: value=" + kind);
}

Json select_ops(const Case& test_case) {
  return std::string(select_cross_device_ops(test_case.in.at("devices").get<std::vector<std::string>>())->name());
}

Json accumulate(const Case& test_case) {
  if (test_case.text("accumulation_fn") != "first value") throw HarnessError("[cross_device] unknown accumulation_fn");
  const ReductionToOneDevice ops("", [](const std::vector<at::Tensor>& values) { return values.at(0); });
  return to_json(ops.reduce(ReduceOp::Sum, per_replica(test_case.in.at("values")), Destinations("cpu:0")));
}

Json all_reduce_slices(const Case& test_case) {
  return to_json(strategy_of(test_case).run(
      [&](const IndexedSlices& slices) { return get_replica_context().all_reduce(op_of(test_case), slices); },
      slices_of(test_case)));
}

Json strategy_with(const Case& test_case) {
  const MirroredStrategy strategy(cpu_names(test_case.in.at("replicas")), make_ops(test_case.text("cross_device_ops")));
  const PerReplica<at::Tensor> values = per_replica(test_case.in.at("values"));
  const at::Tensor reduced = strategy.reduce("sum", values);
  const auto all_reduced =
      strategy.run([](const at::Tensor& value) { return get_replica_context().all_reduce("sum", value); }, values);
  return {{"reduce", to_json(reduced)}, {"all_reduce", to_json(all_reduced)}};
}

Json all_reduce_options(const Case& test_case) {
  const CommunicationOptions options = options_of(test_case.in);
  std::vector<at::Tensor> values;
  for (const Json& value : test_case.in.at("values")) values.push_back(tensor_from_json("float32", value));
  const auto results =
      strategy_of(test_case).run([&] { return get_replica_context().all_reduce(op_of(test_case), values, options); });
  Json array = Json::array();
  for (const auto& result : results) array.push_back(to_json(result));
  return array;
}

}  // namespace

Outcome run(const Case& test_case) {
  static const std::map<std::string, std::function<Json(const Case&)>> kCalls{
      {"CommunicationOptions", [](const Case& c) { return json_of(options_of(c.in)); }},
      {"CollectiveHints", [](const Case& c) { return json_of(options_of(c.in)); }},
      {"merge_options", merge_options},
      {"group_by_size", group_by_size},
      {"group_by_size_unknown", group_by_size},
      {"construct", construct},
      {"reduce", reduce},
      {"batch_reduce", batch_reduce},
      {"reduce_slices", reduce_slices},
      {"broadcast", broadcast},
      {"reduce_value", reduce_value},
      {"select_cross_device_ops", select_ops},
      {"accumulation_fn", accumulate},
      {"all_reduce_slices", all_reduce_slices},
      {"strategy_with", strategy_with},
      {"all_reduce_options", all_reduce_options}};
  const auto call = kCalls.find(test_case.call);
  if (call == kCalls.end()) throw HarnessError("[cross_device] unknown call: " + test_case.call);
  const LogicalCpus cpus(test_case);
  return Outcome::of_value(call->second(test_case));
}

}  // namespace lockstep::golden::drivers::cross_device
