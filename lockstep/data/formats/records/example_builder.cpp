#include "lockstep/data/formats/records/example_builder.h"

#include <bit>
#include <utility>

// The encoding of protocol buffers, as much of it as examples need: varints, and pieces that say their length first.
namespace lockstep::data {
namespace {

static_assert(std::endian::native == std::endian::little, "floats are written as they lie in memory");

constexpr uint32_t kBytesList = 1;
constexpr uint32_t kFloatList = 2;
constexpr uint32_t kInt64List = 3;
constexpr uint32_t kFirst = 1;  // Example.features, Features.feature, every list's value, key of an entry, context
constexpr uint32_t kEntryValue = 2;
constexpr uint32_t kFeatureLists = 2;
constexpr uint32_t kLengthDelimited = 2;

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void put_field(std::string& out, uint32_t tag, std::string_view content) {
  put_varint(out, tag << 3 | kLengthDelimited);
  put_varint(out, content.size());
  out += content;
}

std::string field(uint32_t tag, std::string_view content) {
  std::string out;
  put_field(out, tag, content);
  return out;
}

void put_entry(std::string& out, std::string_view key, std::string_view value) {
  put_field(out, kFirst, field(kFirst, key) + field(kEntryValue, value));
}

}  // namespace

ExampleBuilder& ExampleBuilder::set(std::string key, std::span<const int64_t> values) {
  std::string packed;
  for (const int64_t value : values) put_varint(packed, static_cast<uint64_t>(value));
  features_[std::move(key)] = field(kInt64List, values.empty() ? std::string() : field(kFirst, packed));
  return *this;
}

ExampleBuilder& ExampleBuilder::set(std::string key, std::span<const float> values) {
  const std::string_view packed(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  features_[std::move(key)] = field(kFloatList, values.empty() ? std::string() : field(kFirst, packed));
  return *this;
}

ExampleBuilder& ExampleBuilder::set(std::string key, std::span<const std::string> values) {
  std::string list;
  for (const std::string& value : values) put_field(list, kFirst, value);
  features_[std::move(key)] = field(kBytesList, list);
  return *this;
}

ExampleBuilder& ExampleBuilder::set(std::string key, std::string_view value) {
  features_[std::move(key)] = field(kBytesList, field(kFirst, value));
  return *this;
}

std::string ExampleBuilder::features() const {
  std::string out;
  for (const auto& [key, feature] : features_) put_entry(out, key, feature);
  return out;
}

std::string ExampleBuilder::serialize() const { return field(kFirst, features()); }

SequenceExampleBuilder& SequenceExampleBuilder::add_list(const std::string& key) {
  lists_.try_emplace(key);
  return *this;
}

SequenceExampleBuilder& SequenceExampleBuilder::append(const std::string& key, const ExampleBuilder& step) {
  put_field(lists_[key], kFirst, step.features_.at(key));
  return *this;
}

std::string SequenceExampleBuilder::serialize() const {
  std::string lists;
  for (const auto& [key, list] : lists_) put_entry(lists, key, list);
  return field(kFirst, context_.features()) + field(kFeatureLists, lists);
}

}  // namespace lockstep::data
