#include "lockstep/state/formats/safetensors.h"

#include <algorithm>
#include <array>

#include "lockstep/base/error.h"
#include "lockstep/state/formats/safetensors_dtype.h"
#include "lockstep/state/json_values.h"

namespace lockstep::detail {
namespace {

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kLargestHeader = 100'000'000;
constexpr const char* kMetadataKey = "__metadata__";

int64_t header_bytes(std::string_view start, int64_t num_bytes, const std::string& place) {
  LOCKSTEP_CHECK_DATA(num_bytes >= kLengthBytes && start.size() >= kLengthBytes, "[", place,
                      "] a safetensors file has at least 8 bytes: bytes=", num_bytes);
  uint64_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    length |= static_cast<uint64_t>(static_cast<unsigned char>(start[i])) << (8 * i);
  }
  LOCKSTEP_CHECK_DATA(length <= static_cast<uint64_t>(kLargestHeader), "[", place,
                      "] the header of a safetensors file has at most 100 MB: header=", length);
  LOCKSTEP_CHECK_DATA(static_cast<int64_t>(length) <= num_bytes - kLengthBytes, "[", place,
                      "] the file ends in its header: header=", length, ", bytes=", num_bytes);
  return static_cast<int64_t>(length);
}

void parse_metadata(const StateJson& json, SafetensorsHeader& header, const std::string& place) {
  LOCKSTEP_CHECK_DATA(json.is_object(), "[", place, "] __metadata__ must be an object");
  for (const auto& [name, value] : json.items()) {
    LOCKSTEP_CHECK_DATA(value.is_string(), "[", place, "] metadata must be texts: name=\"", name, "\"");
    header.metadata.emplace(name, value.get<std::string>());
  }
}

SafetensorsEntry parse_entry(const std::string& name, const StateJson& json, const std::string& place) {
  SafetensorsEntry entry;
  entry.name = name;
  entry.code = text_in(json, "dtype", place);
  entry.sizes = sizes_in(json, "shape", place);
  const std::vector<int64_t> offsets = sizes_in(json, "data_offsets", place);
  const int64_t bits = safetensors_bits(entry.code);
  LOCKSTEP_CHECK_DATA(bits > 0, "[", place, "] unknown dtype: name=\"", name, "\", dtype=\"", entry.code, "\"");
  LOCKSTEP_CHECK_DATA(offsets.size() == 2 && offsets[0] <= offsets[1], "[", place,
                      "] data_offsets must be begin and end: name=\"", name, "\"");
  entry.begin = offsets[0];
  entry.end = offsets[1];
  const int64_t total = checked_numel(entry.sizes, bits, place) * bits;
  LOCKSTEP_CHECK_DATA(total % 8 == 0 && total / 8 == entry.end - entry.begin, "[", place,
                      "] shape and dtype must match the bytes: name=\"", name, "\", bytes=", entry.end - entry.begin,
                      ", expected=", total / 8);
  return entry;
}

}  // namespace

SafetensorsHeader parse_safetensors(std::string_view start, int64_t num_bytes, const std::string& place) {
  const int64_t length = header_bytes(start, num_bytes, place);
  const std::string_view text = start.substr(kLengthBytes, static_cast<size_t>(length));
  LOCKSTEP_CHECK_DATA(static_cast<int64_t>(text.size()) == length && text.starts_with('{'), "[", place,
                      "] the header of a safetensors file must begin with {");
  SafetensorsHeader header;
  header.data_offset = kLengthBytes + length;
  const StateJson json = parse_state_json(text, place);
  for (const auto& [name, value] : json.items()) {
    if (name == kMetadataKey) {
      parse_metadata(value, header, place);
    } else {
      header.entries.push_back(parse_entry(name, value, place));
    }
  }
  std::stable_sort(header.entries.begin(), header.entries.end(),
                   [](const auto& a, const auto& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  int64_t position = 0;
  for (const SafetensorsEntry& entry : header.entries) {
    LOCKSTEP_CHECK_DATA(entry.begin == position, "[", place, "] tensors must follow each other: name=\"", entry.name,
                        "\", begin=", entry.begin, ", end of the one before=", position);
    position = entry.end;
  }
  LOCKSTEP_CHECK_DATA(position == num_bytes - header.data_offset, "[", place,
                      "] tensors must fill the file: bytes of tensors=", position,
                      ", bytes after the header=", num_bytes - header.data_offset);
  return header;
}

SafetensorsHeader read_safetensors_header(const BlockFile& file) {
  std::string start(static_cast<size_t>(std::min(file.size(), kLengthBytes)), '\0');
  const BlockFile::Range length{0, start};
  file.read({&length, 1});
  start.resize(static_cast<size_t>(kLengthBytes + header_bytes(start, file.size(), file.path())));
  const BlockFile::Range all{0, start};
  file.read({&all, 1});
  return parse_safetensors(start, file.size(), file.path());
}

State open_safetensors(std::shared_ptr<const BlockFile> file) {
  const SafetensorsHeader header = read_safetensors_header(*file);
  State state;
  for (const SafetensorsEntry& entry : header.entries) {
    const auto dtype = dtype_of_code(entry.code);
    LOCKSTEP_CHECK_DATA(dtype.has_value(), "[", file->path(), "] this LibTorch has no such dtype: name=\"", entry.name,
                        "\", dtype=\"", entry.code, "\"");
    LOCKSTEP_CHECK_DATA(!entry.name.empty(), "[", file->path(), "] a tensor must have a name");
    StateTensor tensor;
    tensor.dtype = *dtype;
    tensor.sizes = entry.sizes;
    tensor.stored.push_back({0, tensor.numel(), file, header.data_offset + entry.begin});
    state.set(entry.name, std::move(tensor));
  }
  const auto values = header.metadata.find(kValuesKey);
  if (values == header.metadata.end()) return state;
  const StateJson json = parse_state_json(values->second, file->path());
  LOCKSTEP_CHECK_DATA(json.is_object(), "[", file->path(), "] values must be an object");
  for (const auto& [name, value] : json.items()) {
    LOCKSTEP_CHECK_DATA(!name.empty() && !state.has(name), "[", file->path(),
                        "] values must have names of their own: name=\"", name, "\"");
    state.set(name, value_from_json(value, file->path()));
  }
  return state;
}

std::string safetensors_start(const SafetensorsHeader& header, size_t alignment) {
  StateJson json = StateJson::object();
  json[kMetadataKey] = header.metadata;
  for (const SafetensorsEntry& entry : header.entries) {
    json[entry.name] =
        StateJson::object({{"dtype", entry.code}, {"shape", entry.sizes}, {"data_offsets", {entry.begin, entry.end}}});
  }
  std::string text = json.dump();
  text.resize((text.size() + kLengthBytes + alignment - 1) / alignment * alignment - kLengthBytes, ' ');
  LOCKSTEP_CHECK_VALUE(static_cast<int64_t>(text.size()) <= kLargestHeader,
                       "[save] the header of a safetensors file has at most 100 MB: header=", text.size());
  std::string start;
  for (size_t i = 0; i < kLengthBytes; ++i) start += static_cast<char>(text.size() >> (8 * i) & 255);
  return start + text;
}

}  // namespace lockstep::detail
