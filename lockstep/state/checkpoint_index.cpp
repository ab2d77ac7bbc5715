#include "lockstep/state/checkpoint_index.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>

#include <ATen/core/Tensor.h>

#include "lockstep/base/crc32c.h"
#include "lockstep/base/dtype_name.h"
#include "lockstep/base/error.h"
#include "lockstep/state/block_file.h"
#include "lockstep/state/file_writer.h"
#include "lockstep/state/formats/safetensors_dtype.h"
#include "lockstep/state/json_values.h"

namespace lockstep::detail {
namespace {

constexpr std::string_view kFormatName = "lockstep checkpoint";
constexpr int64_t kFormatVersion = 1;
/// The text ends with this, eight hexadecimal digits and kAfterChecksum; the checksum is that of all bytes before.
constexpr std::string_view kBeforeChecksum = ",\n\"checksum\": \"";
constexpr std::string_view kAfterChecksum = "\"\n}\n";
constexpr size_t kChecksumDigits = 8;

using Piece = PartIndex::Piece;
/// A piece and the number of its part.
using PlacedPiece = std::pair<size_t, const Piece*>;

std::string checksum_digits(uint32_t checksum) {
  std::array<char, kChecksumDigits + 1> digits{};
  std::snprintf(digits.data(), digits.size(), "%08x", checksum);
  return digits.data();
}

StateJson part_json(const PartIndex& part) {
  return StateJson::object({{"file", part.file}, {"bytes", part.num_bytes}, {"checksums", part.checksums}});
}

StateJson piece_json(const Piece& piece) {
  return StateJson::object({{"begin", piece.begin}, {"end", piece.end}, {"offset", piece.offset}});
}

/// Why pieces of one tensor are wrong; empty where they are right. They are ordered by their first element.
std::string wrong_cover(const std::vector<PlacedPiece>& pieces) {
  const Piece& first = *pieces.front().second;
  int64_t position = 0;
  for (const auto& [part, piece] : pieces) {
    if (piece->dtype != first.dtype) return "pieces of different dtypes";
    if (piece->sizes != first.sizes) return "pieces of different shapes";
    if (piece->begin > position) return c10::str("elements ", position, " to ", piece->begin, " are missing");
    if (piece->begin < position) return c10::str("element ", piece->begin, " is there twice");
    position = piece->end;
  }
  int64_t numel = 1;
  for (const int64_t size : first.sizes) numel *= size;
  return position == numel ? "" : c10::str("elements ", position, " to ", numel, " are missing");
}

std::map<std::string, std::vector<PlacedPiece>> pieces_by_name(const std::vector<PartIndex>& parts) {
  std::map<std::string, std::vector<PlacedPiece>> tensors;
  for (size_t i = 0; i < parts.size(); ++i) {
    for (const Piece& piece : parts[i].pieces) tensors[piece.name].emplace_back(i, &piece);
  }
  for (auto& [name, pieces] : tensors) {
    std::stable_sort(pieces.begin(), pieces.end(), [](const PlacedPiece& a, const PlacedPiece& b) {
      return std::pair(a.second->begin, a.second->end) < std::pair(b.second->begin, b.second->end);
    });
  }
  return tensors;
}

std::string tensors_text(const std::vector<PartIndex>& parts) {
  std::string text;
  std::string problems;
  for (const auto& [name, pieces] : pieces_by_name(parts)) {
    const std::string wrong = wrong_cover(pieces);
    if (!wrong.empty()) problems += "\n  " + name + ": " + wrong;
    const Piece& first = *pieces.front().second;
    StateJson tensor = {{"dtype", dtype_name(first.dtype)}, {"shape", first.sizes}, {"pieces", StateJson::array()}};
    for (const auto& [part, piece] : pieces) {
      StateJson placed = piece_json(*piece);
      placed["part"] = part;
      tensor["pieces"].push_back(std::move(placed));
    }
    text += (text.empty() ? "\n" : ",\n") + StateJson(name).dump() + ": " + tensor.dump();
  }
  LOCKSTEP_CHECK_VALUE(problems.empty(), "[save] the pieces of a tensor must cover it exactly once:", problems);
  return text;
}

at::ScalarType dtype_in(const StateJson& object, const std::string& place) {
  const std::string name = text_in(object, "dtype", place);
  const auto dtype = dtype_of_name(name);
  LOCKSTEP_CHECK_DATA(dtype.has_value(), "[", place, "] this LibTorch has no such dtype: dtype=\"", name, "\"");
  return *dtype;
}

PartIndex parse_part(const StateJson& json, const std::string& place) {
  PartIndex part;
  part.file = text_in(json, "file", place);
  LOCKSTEP_CHECK_DATA(!part.file.empty() && part.file.find('/') == std::string::npos && part.file[0] != '.', "[", place,
                      "] a part must be a file of the folder: file=\"", part.file, "\"");
  part.num_bytes = integer_in(json, "bytes", place);
  for (const int64_t checksum : sizes_in(json, "checksums", place)) {
    LOCKSTEP_CHECK_DATA(checksum <= static_cast<int64_t>(UINT32_MAX), "[", place,
                        "] a checksum is too large: ", checksum);
    part.checksums.push_back(static_cast<uint32_t>(checksum));
  }
  const auto blocks = static_cast<int64_t>(part.checksums.size());
  LOCKSTEP_CHECK_DATA(
      part.num_bytes >= 0 && part.num_bytes / kBlockBytes + (part.num_bytes % kBlockBytes > 0) == blocks, "[", place,
      "] a part must have a checksum for each block: file=\"", part.file, "\", bytes=", part.num_bytes,
      ", checksums=", blocks);
  return part;
}

/// Reads what a tensor and its pieces have; the piece must be inside its tensor and its part.
Piece parse_piece(const std::string& name, const StateJson& tensor, const StateJson& json, const PartIndex& part,
                  const std::string& place) {
  Piece piece{name,
              dtype_in(tensor, place),
              sizes_in(tensor, "shape", place),
              integer_in(json, "begin", place),
              integer_in(json, "end", place),
              integer_in(json, "offset", place)};
  const auto bytes = static_cast<int64_t>(c10::elementSize(piece.dtype));
  const int64_t numel = checked_numel(piece.sizes, 8 * bytes, place);
  const bool inside = piece.begin >= 0 && piece.begin <= piece.end && piece.end <= numel;
  LOCKSTEP_CHECK_DATA(inside && piece.offset >= 0 && (piece.end - piece.begin) * bytes <= part.num_bytes &&
                          piece.offset <= part.num_bytes - (piece.end - piece.begin) * bytes,
                      "[", place, "] a piece must be inside its tensor and its part: name=", name,
                      ", begin=", piece.begin, ", end=", piece.end, ", offset=", piece.offset);
  return piece;
}

void parse_tensor(const std::string& name, const StateJson& tensor, std::vector<PartIndex>& parts,
                  const std::string& place) {
  const StateJson& pieces = member_of(tensor, "pieces", place);
  LOCKSTEP_CHECK_DATA(pieces.is_array() && !pieces.empty() && !name.empty(), "[", place,
                      "] a tensor must have a name and pieces: name=", name);
  for (const StateJson& json : pieces) {
    const int64_t number = integer_in(json, "part", place);
    LOCKSTEP_CHECK_DATA(number >= 0 && number < static_cast<int64_t>(parts.size()), "[", place,
                        "] there is no such part: name=", name, ", part=", number);
    PartIndex& part = parts[static_cast<size_t>(number)];
    part.pieces.push_back(parse_piece(name, tensor, json, part, place));
  }
}

/// Checks the checksum at the end.
void check_own_sum(std::string_view text, const std::string& place) {
  const size_t tail = kBeforeChecksum.size() + kChecksumDigits + kAfterChecksum.size();
  LOCKSTEP_CHECK_DATA(text.size() > tail && text.ends_with(kAfterChecksum) &&
                          text.substr(text.size() - tail).starts_with(kBeforeChecksum),
                      "[", place, "] the index must end with its checksum; it was cut, or is of something else");
  const std::string_view before = text.substr(0, text.size() - tail);
  const std::string_view digits = text.substr(before.size() + kBeforeChecksum.size(), kChecksumDigits);
  LOCKSTEP_CHECK_DATA(checksum_digits(crc32c(before)) == digits, "[", place,
                      "] the index is damaged: its checksum is wrong");
}

}  // namespace

std::string index_text(const CheckpointInfo& info, const State& values) {
  LOCKSTEP_CHECK_VALUE(std::isfinite(info.time), "[save] the time of a checkpoint must be finite: time=", info.time);
  const StateJson head = {{"format", kFormatName},
                          {"version", kFormatVersion},
                          {"step", info.step},
                          {"time", info.time},
                          {"lockstep_version", value_to_json(info.lockstep_version)},
                          {"libtorch_version", value_to_json(info.libtorch_version)},
                          {"written_by", value_to_json(info.written_by)}};
  std::string text = "{\n";
  for (const auto& [name, value] : head.items()) text += StateJson(name).dump() + ": " + value.dump() + ",\n";
  text += "\"parts\": [";
  for (size_t i = 0; i < info.parts.size(); ++i) text += (i > 0 ? ",\n" : "\n") + part_json(info.parts[i]).dump();
  text += "\n],\n\"tensors\": {" + tensors_text(info.parts) + "\n},\n\"values\": {";
  const auto tensors = pieces_by_name(info.parts);
  bool first = true;
  for (const auto& [name, value] : values) {
    if (std::holds_alternative<StateTensor>(value)) continue;
    LOCKSTEP_CHECK_VALUE(is_utf8(name), "[save] the name of a value must be a text in UTF-8: name=", name);
    LOCKSTEP_CHECK_VALUE(!tensors.contains(name), "[save] names must differ: a tensor and a value have name=", name);
    text += (first ? "\n" : ",\n") + StateJson(name).dump() + ": " + value_to_json(value).dump();
    first = false;
  }
  text += "\n}";
  const std::string checksum = checksum_digits(crc32c(text));
  return text.append(kBeforeChecksum).append(checksum).append(kAfterChecksum);
}

IndexContent parse_index(std::string_view text, const std::string& place) {
  check_own_sum(text, place);
  const StateJson json = parse_state_json(text, place);
  LOCKSTEP_CHECK_DATA(text_in(json, "format", place) == kFormatName, "[", place, "] is no index of a checkpoint");
  const int64_t version = integer_in(json, "version", place);
  LOCKSTEP_CHECK_DATA(version == kFormatVersion, "[", place,
                      "] the format must be one that this lockstep knows: version=", version,
                      ", known=", kFormatVersion, "; use a newer lockstep");
  IndexContent content;
  CheckpointInfo& info = content.info;
  info.step = integer_in(json, "step", place);
  LOCKSTEP_CHECK_DATA(info.step >= 0, "[", place, "] the step must be at least 0: step=", info.step);
  const StateJson& time = member_of(json, "time", place);
  LOCKSTEP_CHECK_DATA(time.is_number(), "[", place, "] the time must be a number");
  info.time = time.get<double>();
  info.lockstep_version = text_in(json, "lockstep_version", place);
  info.libtorch_version = text_in(json, "libtorch_version", place);
  info.written_by = text_in(json, "written_by", place);
  const StateJson& parts = member_of(json, "parts", place);
  const StateJson& tensors = member_of(json, "tensors", place);
  const StateJson& values = member_of(json, "values", place);
  LOCKSTEP_CHECK_DATA(parts.is_array() && tensors.is_object() && values.is_object(), "[", place,
                      "] must have a list of parts, and objects with tensors and values");
  for (const StateJson& part : parts) info.parts.push_back(parse_part(part, place));
  for (const auto& [name, tensor] : tensors.items()) parse_tensor(name, tensor, info.parts, place);
  for (const auto& [name, pieces] : pieces_by_name(info.parts)) {
    const std::string wrong = wrong_cover(pieces);
    LOCKSTEP_CHECK_DATA(wrong.empty(), "[", place, "] the pieces of a tensor must cover it exactly once: name=", name,
                        ", ", wrong);
  }
  for (const auto& [name, value] : values.items()) {
    LOCKSTEP_CHECK_DATA(!name.empty() && !tensors.contains(name), "[", place,
                        "] values must have names of their own: name=", name);
    content.values.set(name, value_from_json(value, place));
  }
  return content;
}

void write_index(const std::string& folder, CheckpointInfo info, const State& values, const WriteOptions& options) {
  const std::string text = index_text(info, values);
  replace_file(folder + "/index.json", text, options.sync);
  if (options.sync) sync_folder(folder);
}

std::string PartIndex::str() const {
  StateJson json = part_json(*this);
  json["pieces"] = StateJson::array();
  for (const Piece& piece : pieces) {
    StateJson entry = piece_json(piece);
    entry["name"] = piece.name;
    entry["dtype"] = dtype_name(piece.dtype);
    entry["shape"] = piece.sizes;
    json["pieces"].push_back(std::move(entry));
  }
  return json.dump();
}

PartIndex PartIndex::parse(const std::string& text) {
  const std::string place = "index of a part";
  const StateJson json = parse_state_json(text, place);
  PartIndex part = parse_part(json, place);
  const StateJson& pieces = member_of(json, "pieces", place);
  LOCKSTEP_CHECK_DATA(pieces.is_array(), "[", place, "] pieces must be a list");
  for (const StateJson& entry : pieces) {
    part.pieces.push_back(parse_piece(text_in(entry, "name", place), entry, entry, part, place));
  }
  return part;
}

}  // namespace lockstep::detail
