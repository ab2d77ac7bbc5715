#include "lockstep/train/snapshot_index.h"

#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep::detail {
namespace {

class IndexOutput {
 public:
  template <class T>
  void number(T value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void text(const std::string& value) {
    number(static_cast<uint64_t>(value.size()));
    text_ += value;
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

class IndexInput {
 public:
  explicit IndexInput(const std::string& text) : text_(text) {}

  template <class T>
  T number() {
    T value;
    std::memcpy(&value, bytes(sizeof(T)), sizeof(T));
    return value;
  }
  std::string text() {
    const auto size = number<uint64_t>();
    const char* const begin = bytes(size);
    return {begin, begin + size};
  }
  bool at_end() const { return at_ == text_.size(); }

 private:
  const char* bytes(uint64_t count) {
    LOCKSTEP_CHECK_DATA(count <= text_.size() - at_, "[CheckpointManager] the index of a snapshot in memory is cut");
    const char* const begin = text_.data() + at_;
    at_ += count;
    return begin;
  }

  const std::string& text_;
  size_t at_ = 0;
};

void put_value(IndexOutput& out, const State::Value& value) {
  out.number(static_cast<uint8_t>(value.index()));
  if (const auto* flag = std::get_if<bool>(&value)) out.number(static_cast<uint8_t>(*flag));
  if (const auto* integer = std::get_if<int64_t>(&value)) out.number(*integer);
  if (const auto* number = std::get_if<double>(&value)) out.number(*number);
  if (const auto* text = std::get_if<std::string>(&value)) out.text(*text);
}

State::Value take_value(IndexInput& in) {
  switch (in.number<uint8_t>()) {
    case 0:
      return in.number<uint8_t>() != 0;
    case 1:
      return in.number<int64_t>();
    case 2:
      return in.number<double>();
    case 3:
      return in.text();
    default:
      LOCKSTEP_THROW(DataError, "[CheckpointManager] the index of a snapshot in memory has an unknown value");
  }
}

}  // namespace

State values_of(const std::vector<ObjectState>& objects) {
  State values;
  for (const ObjectState& object : objects) {
    for (const auto& [name, value] : object.state) {
      if (!std::holds_alternative<StateTensor>(value)) values.set(object.name + "." + name, value);
    }
  }
  return values;
}

std::set<std::string> own_names_of(const std::vector<ObjectState>& objects) {
  std::set<std::string> names;
  for (const ObjectState& object : objects) {
    for (const auto& [name, value] : object.state) {
      const auto* const tensor = std::get_if<StateTensor>(&value);
      const bool is_own = !object.of_strategy || (tensor != nullptr && !tensor->own.empty());
      if (is_own) names.insert(object.name + "." + name);
    }
  }
  return names;
}

std::string snapshot_index_text(const SnapshotIndex& index) {
  IndexOutput out;
  out.number(static_cast<uint64_t>(index.values.size()));
  for (const auto& [name, value] : index.values) {
    out.text(name);
    put_value(out, value);
  }
  out.number(static_cast<uint64_t>(index.pieces.size()));
  for (const PartIndex::Piece& piece : index.pieces) {
    out.text(piece.name);
    out.number(static_cast<int8_t>(piece.dtype));
    out.number(static_cast<uint64_t>(piece.sizes.size()));
    for (const int64_t size : piece.sizes) out.number(size);
    out.number(piece.begin);
    out.number(piece.end);
    out.number(piece.offset);
  }
  out.number(static_cast<uint64_t>(index.own.size()));
  for (const std::string& name : index.own) out.text(name);
  return out.take();
}

SnapshotIndex parse_snapshot_index(const std::string& text) {
  IndexInput in(text);
  SnapshotIndex index;
  for (auto left = in.number<uint64_t>(); left > 0; --left) {
    const std::string name = in.text();
    index.values.set(name, take_value(in));
  }
  for (auto left = in.number<uint64_t>(); left > 0; --left) {
    PartIndex::Piece piece;
    piece.name = in.text();
    piece.dtype = static_cast<at::ScalarType>(in.number<int8_t>());
    for (auto dims = in.number<uint64_t>(); dims > 0; --dims) piece.sizes.push_back(in.number<int64_t>());
    piece.begin = in.number<int64_t>();
    piece.end = in.number<int64_t>();
    piece.offset = in.number<int64_t>();
    index.pieces.push_back(std::move(piece));
  }
  for (auto left = in.number<uint64_t>(); left > 0; --left) index.own.insert(in.text());
  LOCKSTEP_CHECK_DATA(in.at_end(), "[CheckpointManager] the index of a snapshot in memory is too long");
  return index;
}

}  // namespace lockstep::detail
