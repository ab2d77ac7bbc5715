#include "lockstep/data/parse_example.h"

#include <memory>
#include <utility>

#include <ATen/ops/empty.h>
#include <c10/util/accumulate.h>

#include "lockstep/base/dtype_name.h"
#include "lockstep/base/error.h"
#include "lockstep/data/formats/records/example.h"

namespace lockstep::data {
namespace {

enum class Section { Context, Sequence };

// A requested feature, with everything that is computed once.
struct Slot {
  std::string key;
  Feature feature;
  Section section = Section::Context;
  c10::intrusive_ptr<RowType> row = {};  // of FixedLen and Raw; of FixedLenSequence: of one step
  std::optional<Leaf> if_missing = {};
  LeafSpec spec = {};
};

// Shared by all elements. Slots are sorted by key, like the parts of Named.
struct Parser {
  std::vector<Slot> slots;
  std::shared_ptr<const Layout> layout;
};

FeatureKind kind_of(at::ScalarType dtype) { return dtype == at::kFloat ? FeatureKind::Float : FeatureKind::Int64; }

void check_dtype(const std::string& key, at::ScalarType dtype) {
  LOCKSTEP_CHECK_VALUE(dtype == at::kFloat || dtype == at::kLong,
                       "[parse_example] numbers of a tf.Example are float32 or int64; use Raw for others: key=\"", key,
                       "\", dtype=", dtype_name(dtype));
}

void check_shape(const std::string& key, const std::vector<int64_t>& shape) {
  for (const int64_t size : shape) {
    LOCKSTEP_CHECK_VALUE(size >= 0, "[parse_example] sizes must not be negative: key=\"", key, "\", size=", size);
  }
}

void check_kind(const Slot& slot, FeatureKind wanted, const FeatureValues& values) {
  LOCKSTEP_CHECK_DATA(values.kind() == wanted, "[parse_example] the feature must be of its kind: key=\"", slot.key,
                      "\", expected=", wanted, ", found=", values.kind());
}

void check_count(const Slot& slot, size_t wanted, size_t found) {
  LOCKSTEP_CHECK_DATA(found == wanted, "[parse_example] the feature must have as many values as its shape: key=\"",
                      slot.key, "\", expected=", wanted, ", found=", found);
}

void check_rows(const Slot& slot, int64_t row, size_t found) {
  LOCKSTEP_CHECK_DATA(row > 0 ? found % row == 0 : found == 0,
                      "[parse_example] the feature must have whole rows of its shape: key=\"", slot.key,
                      "\", expected=a multiple of ", row, ", found=", found);
}

// ---- Values

Row empty_row(at::ScalarType dtype, at::IntArrayRef sizes) {
  char* memory = nullptr;
  auto buffer = Buffer::allocate(0, &memory);
  return {c10::make_intrusive<RowType>(dtype, sizes), std::move(buffer), memory};
}

// Copies numbers to `out`.
void copy_numbers(const FeatureValues& values, char* out) {
  if (values.kind() == FeatureKind::Float) {
    values.read(std::span(reinterpret_cast<float*>(out), values.size()));
  } else {
    values.read(std::span(reinterpret_cast<int64_t*>(out), values.size()));
  }
}

Leaf numbers(const FeatureValues& values, c10::intrusive_ptr<RowType> type) {
  if (!values.packed_floats().empty()) {
    const Bytes packed = values.share(values.packed_floats());
    return Row{std::move(type), packed.buffer(), packed.data()};
  }
  char* memory = nullptr;
  auto buffer = Buffer::allocate(type->num_bytes, &memory);
  copy_numbers(values, memory);
  return Row{std::move(type), std::move(buffer), memory};
}

Leaf one_number(const FeatureValues& values, at::ScalarType dtype) {
  Number number{dtype, {}};
  alignas(8) std::array<char, 8> memory{};
  copy_numbers(values, memory.data());
  number.bytes = memory;
  return number;
}

int64_t row_count(const Slot& slot) { return c10::multiply_integers(slot.row->sizes); }

Leaf parse(const Slot& slot, const FixedLen& feature, const FeatureValues& values) {
  check_kind(slot, kind_of(feature.dtype), values);
  check_count(slot, row_count(slot), values.size());
  return feature.shape.empty() ? one_number(values, feature.dtype) : numbers(values, slot.row);
}

Leaf parse(const Slot& slot, const FixedLenBytes&, const FeatureValues& values) {
  check_kind(slot, FeatureKind::Bytes, values);
  check_count(slot, 1, values.size());
  return values.first();
}

Leaf parse(const Slot& slot, const VarLen& feature, const FeatureValues& values) {
  check_kind(slot, kind_of(feature.dtype), values);
  const auto size = static_cast<int64_t>(values.size());
  return numbers(values, c10::make_intrusive<RowType>(feature.dtype, size));
}

Leaf parse(const Slot& slot, const VarLenBytes&, const FeatureValues& values) {
  check_kind(slot, FeatureKind::Bytes, values);
  std::vector<Leaf> leaves;
  leaves.reserve(values.size());
  values.for_each([&](std::string_view value) { leaves.emplace_back(values.share(value)); });
  return LeafList{std::make_shared<const std::vector<Leaf>>(std::move(leaves))};
}

Leaf parse(const Slot& slot, const Raw&, const FeatureValues& values) {
  check_kind(slot, FeatureKind::Bytes, values);
  check_count(slot, 1, values.size());
  const Bytes bytes = values.first();
  LOCKSTEP_CHECK_DATA(bytes.size() == slot.row->num_bytes,
                      "[parse_example] the bytes must be those of a tensor of the shape: key=\"", slot.key,
                      "\", expected=", slot.row->num_bytes, ", found=", bytes.size());
  return Row{slot.row, bytes.buffer(), bytes.data()};
}

Leaf parse(const Slot& slot, const FixedLenSequence& feature, const FeatureValues& values) {
  check_kind(slot, kind_of(feature.dtype), values);
  const int64_t row = row_count(slot);
  check_rows(slot, row, values.size());
  std::vector<int64_t> sizes{row > 0 ? static_cast<int64_t>(values.size()) / row : 0};
  sizes.insert(sizes.end(), feature.shape.begin(), feature.shape.end());
  return numbers(values, c10::make_intrusive<RowType>(feature.dtype, sizes));
}

Leaf parse_steps(const Slot& slot, const FeatureSteps& steps) {
  const auto& feature = std::get<FixedLenSequence>(slot.feature);
  steps.for_each([&](const FeatureValues& values) {  // before memory is allocated
    check_kind(slot, kind_of(feature.dtype), values);
    check_count(slot, row_count(slot), values.size());
  });
  std::vector<int64_t> sizes{static_cast<int64_t>(steps.size())};
  sizes.insert(sizes.end(), feature.shape.begin(), feature.shape.end());
  auto type = c10::make_intrusive<RowType>(feature.dtype, sizes);
  char* memory = nullptr;
  auto buffer = Buffer::allocate(type->num_bytes, &memory);
  Row row{std::move(type), std::move(buffer), memory};
  steps.for_each([&](const FeatureValues& values) {
    copy_numbers(values, memory);
    memory += slot.row->num_bytes;
  });
  return row;
}

// ---- Slots

Leaf filled(const std::string& key, const FixedLen& feature) {
  const at::Tensor& given = feature.default_value;
  LOCKSTEP_CHECK_VALUE(given.dim() == 0 || given.sizes() == at::IntArrayRef(feature.shape),
                       "[parse_example] a default must have its feature's shape, or be one number: key=\"", key,
                       "\", shape=", at::IntArrayRef(feature.shape), ", default has ", given.sizes());
  const at::Tensor all = given.to(at::kCPU, feature.dtype).expand(feature.shape).clone(at::MemoryFormat::Contiguous);
  const auto type = c10::make_intrusive<RowType>(feature.dtype, all.sizes());
  const Row row{type, detail::buffer_of(all), static_cast<const char*>(all.data_ptr())};
  return feature.shape.empty() ? Leaf(detail::to_number(Leaf(row))) : Leaf(row);
}

PartialShape rows_of(const std::vector<int64_t>& shape) { return PartialShape::of(shape).with_leading(std::nullopt); }

struct Prepare {
  Slot& slot;

  void operator()(const FixedLen& feature) const {
    numbers(feature.dtype, feature.shape);
    if (feature.default_value.defined()) slot.if_missing = filled(slot.key, feature);
    slot.spec = {LeafSpec::Kind::Tensor, feature.dtype, PartialShape::of(feature.shape)};
  }
  void operator()(const FixedLenBytes& feature) const {
    if (feature.default_value) slot.if_missing = Bytes(*feature.default_value);
    slot.spec = {LeafSpec::Kind::Bytes, std::nullopt, PartialShape::of({})};
  }
  void operator()(const VarLen& feature) const {
    check_dtype(slot.key, feature.dtype);
    slot.if_missing = empty_row(feature.dtype, {0});
    slot.spec = {LeafSpec::Kind::Tensor, feature.dtype, rows_of({})};
  }
  void operator()(const VarLenBytes&) const {
    slot.if_missing = LeafList{std::make_shared<const std::vector<Leaf>>()};
    slot.spec = {LeafSpec::Kind::List, std::nullopt, rows_of({})};
  }
  void operator()(const Raw& feature) const {
    check_shape(slot.key, feature.shape);
    slot.row = c10::make_intrusive<RowType>(feature.dtype, feature.shape);
    slot.spec = {LeafSpec::Kind::Tensor, feature.dtype, PartialShape::of(feature.shape)};
  }
  void operator()(const FixedLenSequence& feature) const {
    numbers(feature.dtype, feature.shape);
    std::vector<int64_t> sizes{0};
    sizes.insert(sizes.end(), feature.shape.begin(), feature.shape.end());
    if (feature.allow_missing) slot.if_missing = empty_row(feature.dtype, sizes);
    slot.spec = {LeafSpec::Kind::Tensor, feature.dtype, rows_of(feature.shape)};
  }

  void numbers(at::ScalarType dtype, const std::vector<int64_t>& shape) const {
    check_dtype(slot.key, dtype);
    check_shape(slot.key, shape);
    slot.row = c10::make_intrusive<RowType>(dtype, shape);
  }
};

void add(std::map<std::string, Slot>& slots, Features features, Section section) {
  for (auto& [key, feature] : features) {
    LOCKSTEP_CHECK_VALUE(section == Section::Context || std::holds_alternative<FixedLenSequence>(feature),
                         "[parse_sequence_example] a list's feature must be FixedLenSequence: key=\"", key, "\"");
    const auto [at, is_new] = slots.try_emplace(key, Slot{key, std::move(feature), section});
    LOCKSTEP_CHECK_VALUE(is_new, "[parse_sequence_example] a name must not be in both: key=\"", key, "\"");
    std::visit(Prepare{at->second}, at->second.feature);
  }
}

Parser make_parser(std::map<std::string, Slot> slots) {
  LOCKSTEP_CHECK_VALUE(!slots.empty(), "[parse_example] at least one feature must be requested");
  Parser parser;
  auto layout = std::make_shared<Layout>();
  layout->sizes.push_back(static_cast<int64_t>(slots.size()));
  for (auto& [key, slot] : slots) {
    layout->keys.push_back(key);
    parser.slots.push_back(std::move(slot));
  }
  parser.layout = std::move(layout);
  return parser;
}

// ---- Elements

// One message: finds the slot of each key and fills its leaf.
class Parse {
 public:
  Parse(const Parser& parser, Element& out) : parser_(parser), out_(out), found_(parser.slots.size(), 0) {
    out.clear();
    out.leaves.resize(parser.slots.size());
    out.layout = parser.layout;
  }

  void operator()(std::string_view key, const FeatureValues& values) {
    const Slot* slot = find(key, Section::Context);
    if (slot == nullptr || values.kind() == FeatureKind::None) return;
    out_.leaves[at_] = std::visit([&](const auto& feature) { return parse(*slot, feature, values); }, slot->feature);
    found_[at_] = 1;
  }

  void operator()(std::string_view key, const FeatureSteps& steps) {
    const Slot* slot = find(key, Section::Sequence);
    if (slot == nullptr) return;
    out_.leaves[at_] = parse_steps(*slot, steps);
    found_[at_] = 1;
  }

  void finish() {
    for (size_t i = 0; i < found_.size(); ++i) {
      if (found_[i] != 0) continue;
      const Slot& slot = parser_.slots[i];
      LOCKSTEP_CHECK_DATA(slot.if_missing.has_value(),
                          "[parse_example] the feature must be in the message, or have a default: key=\"", slot.key,
                          "\"");
      out_.leaves[i] = *slot.if_missing;
    }
  }

 private:
  // Messages of one file mostly have the same order of keys, so the search starts after the last match.
  const Slot* find(std::string_view key, Section section) {
    const size_t count = parser_.slots.size();
    for (size_t step = 1; step <= count; ++step) {
      const size_t i = (at_ + step) % count;
      const Slot& slot = parser_.slots[i];
      if (slot.key != key || slot.section != section) continue;
      at_ = i;
      return &slot;
    }
    return nullptr;
  }

  const Parser& parser_;
  Element& out_;
  c10::SmallVector<char, 16> found_;
  size_t at_ = 0;
};

ElementMap<Named> element_map(Parser made, Section last) {
  auto parser = std::make_shared<const Parser>(std::move(made));
  ElementMap<Named> map;
  map.result.leaves.emplace();
  for (const Slot& slot : parser->slots) map.result.leaves->push_back(slot.spec);
  map.result.layout = parser->layout;
  map.fn = [parser = std::move(parser), last](Element& in, Element& out) {
    LOCKSTEP_CHECK_TYPE(in.leaves.size() == 1,
                        "[parse_example] elements must be one value of bytes: leaves=", in.leaves.size());
    const Bytes message = detail::to_bytes(in.leaves[0]);
    Parse parse(*parser, out);
    if (last == Section::Sequence) {
      parse_sequence(message, parse, parse);
    } else {
      parse_features(message, parse);
    }
    parse.finish();
  };
  return map;
}

}  // namespace

ElementMap<Named> parse_example(Features features) {
  std::map<std::string, Slot> slots;
  add(slots, std::move(features), Section::Context);
  return element_map(make_parser(std::move(slots)), Section::Context);
}

ElementMap<Named> parse_sequence_example(Features context, Features sequence) {
  std::map<std::string, Slot> slots;
  add(slots, std::move(context), Section::Context);
  add(slots, std::move(sequence), Section::Sequence);
  return element_map(make_parser(std::move(slots)), Section::Sequence);
}

}  // namespace lockstep::data
