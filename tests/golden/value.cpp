#include "tests/golden/value.h"

#include "tests/golden/tensors.h"

namespace lockstep::golden {
namespace {

Values values_from_json(const Json& array) {
  Values values;
  for (const Json& item : array) values.push_back(value_from_json(item));
  return values;
}

Json array_of(const Values& values) {
  Json array = Json::array();
  for (const Value& value : values) array.push_back(to_json(value));
  return array;
}

Value object_from_json(const Json& json) {
  if (json.contains("dtype")) return {tensor_from_json(json)};
  if (json.size() != 1) throw HarnessError("[value_from_json] unknown notation: " + json.dump());
  const std::string kind = json.begin().key();
  const Json& content = json.begin().value();
  if (kind == "tuple") return {TupleValue{values_from_json(content)}};
  if (kind == "per_replica") return {PerReplicaValue{values_from_json(content)}};
  if (kind == "mirrored") return {MirroredValue{values_from_json(content)}};
  if (kind == "variable") return {VariableValue{values_from_json(content)}};
  if (kind == "slices") {
    return {SlicesValue{tensor_from_json(content.at("indices")), tensor_from_json(content.at("values")),
                        content.at("dense_shape").get<std::vector<int64_t>>()}};
  }
  if (kind != "dict") throw HarnessError("[value_from_json] unknown notation: " + json.dump());
  DictValue dict;
  for (const auto& [key, item] : content.items()) dict.items.emplace_back(key, value_from_json(item));
  return {std::move(dict)};
}

/// Writes each kind of value.
struct Writer {
  Json operator()(std::monostate) const { return nullptr; }
  Json operator()(bool value) const { return value; }
  Json operator()(int64_t value) const { return value; }
  Json operator()(double value) const { return number_to_json(value); }
  Json operator()(const std::string& value) const { return value; }
  Json operator()(const at::Tensor& value) const { return to_json(value); }
  Json operator()(const TupleValue& value) const { return {{"tuple", array_of(value.items)}}; }
  Json operator()(const ListValue& value) const { return array_of(value.items); }
  Json operator()(const PerReplicaValue& value) const { return {{"per_replica", array_of(value.items)}}; }
  Json operator()(const MirroredValue& value) const { return {{"mirrored", array_of(value.items)}}; }
  Json operator()(const VariableValue& value) const { return {{"variable", array_of(value.copies)}}; }

  Json operator()(const DictValue& value) const {
    Json items = Json::object();
    for (const auto& [key, item] : value.items) items[key] = to_json(item);
    return {{"dict", items}};
  }

  Json operator()(const SlicesValue& value) const {
    const Json content = {
        {"indices", to_json(value.indices)}, {"values", to_json(value.values)}, {"dense_shape", value.dense_shape}};
    return {{"slices", content}};
  }
};

}  // namespace

Value value_from_json(const Json& json) {
  if (json.is_null()) return {};
  if (json.is_boolean()) return {json.get<bool>()};
  if (json.is_number_integer()) return {json.get<int64_t>()};
  if (json.is_number()) return {json.get<double>()};
  if (json.is_string()) return {json.get<std::string>()};
  if (json.is_array()) return {ListValue{values_from_json(json)}};
  return object_from_json(json);
}

Json to_json(const Value& value) { return std::visit(Writer{}, value.held); }

}  // namespace lockstep::golden
