#include "lockstep/data/element/spec.h"

#include <algorithm>

#include "lockstep/base/dtype_name.h"

namespace lockstep::data {

bool PartialShape::is_static() const {
  return has_rank() && std::all_of(dims().begin(), dims().end(), [](const Dim& dim) { return dim.has_value(); });
}

PartialShape PartialShape::with_leading(Dim dim) const {
  if (!has_rank()) return {};
  std::vector<Dim> result{dim};
  result.insert(result.end(), dims().begin(), dims().end());
  return result;
}

PartialShape PartialShape::without_leading() const {
  if (!has_rank() || rank() == 0) return {};
  return std::vector<Dim>(dims().begin() + 1, dims().end());
}

PartialShape PartialShape::meet(const PartialShape& other) const {
  if (!has_rank() || !other.has_rank() || rank() != other.rank()) return {};
  std::vector<Dim> result;
  for (int64_t i = 0; i < rank(); ++i) result.push_back(dims()[i] == other.dims()[i] ? dims()[i] : Dim());
  return result;
}

std::ostream& operator<<(std::ostream& out, Cardinality cardinality) {
  if (cardinality.is_known()) return out << cardinality.as_int64();
  return out << (cardinality.is_infinite() ? "infinite" : "unknown");
}

std::ostream& operator<<(std::ostream& out, const PartialShape& shape) {
  if (!shape.has_rank()) return out << "<unknown>";
  out << '(';
  for (int64_t i = 0; i < shape.rank(); ++i) {
    if (i > 0) out << ", ";
    if (shape.dims()[i]) {
      out << *shape.dims()[i];
    } else {
      out << "None";
    }
  }
  return out << (shape.rank() == 1 ? ",)" : ")");
}

std::ostream& operator<<(std::ostream& out, const LeafSpec& spec) {
  const char* name = spec.kind == LeafSpec::Kind::Tensor  ? "TensorSpec"
                     : spec.kind == LeafSpec::Kind::Bytes ? "BytesSpec"
                     : spec.kind == LeafSpec::Kind::List  ? "ListSpec"
                                                          : "OtherSpec";
  out << name << "(shape=" << spec.shape;
  if (spec.kind == LeafSpec::Kind::Tensor) {
    out << ", dtype=" << (spec.dtype ? dtype_name(*spec.dtype) : std::string("<unknown>"));
  }
  return out << ')';
}

namespace {

LeafSpec spec_of(const Leaf& leaf) {
  using Kind = LeafSpec::Kind;
  if (const auto* tensor = leaf.as<at::Tensor>()) {
    return {Kind::Tensor, tensor->scalar_type(), PartialShape::of(tensor->sizes())};
  }
  if (const auto* row = leaf.as<Row>()) return {Kind::Tensor, row->type->dtype, PartialShape::of(row->type->sizes)};
  if (const auto* number = leaf.as<Number>()) return {Kind::Tensor, number->dtype, PartialShape::of({})};
  if (leaf.as<Bytes>() != nullptr) return {Kind::Bytes, std::nullopt, PartialShape::of({})};
  if (const auto* list = leaf.as<LeafList>()) {
    return {Kind::List, std::nullopt, PartialShape{static_cast<int64_t>(list->leaves->size())}};
  }
  return {Kind::Other, std::nullopt, PartialShape::of({})};
}

}  // namespace

ElementSpec ElementSpec::of(const Element& element) {
  ElementSpec spec{std::vector<LeafSpec>{}, element.layout};
  for (const Leaf& leaf : element.leaves) spec.leaves->push_back(spec_of(leaf));
  return spec;
}

ElementSpec ElementSpec::meet(const ElementSpec& other) const {
  if (!leaves || !other.leaves || leaves->size() != other.leaves->size()) return {};
  ElementSpec result = *this;
  for (size_t i = 0; i < leaves->size(); ++i) {
    LeafSpec& leaf = (*result.leaves)[i];
    const LeafSpec& second = (*other.leaves)[i];
    if (leaf.dtype != second.dtype) leaf.dtype.reset();
    leaf.shape = leaf.shape.meet(second.shape);
  }
  return result;
}

PartialShape::Dim ElementSpec::batch_size() const {
  if (!leaves || leaves->empty()) return std::nullopt;
  const PartialShape::Dim first = leaves->front().shape.leading();
  const bool all_equal =
      std::all_of(leaves->begin(), leaves->end(), [&](const LeafSpec& leaf) { return leaf.shape.leading() == first; });
  return all_equal ? first : std::nullopt;
}

bool operator==(const ElementSpec& a, const ElementSpec& b) {
  const bool same_layout = a.layout == b.layout || (a.layout && b.layout && *a.layout == *b.layout);
  return same_layout && a.leaves == b.leaves;
}

std::ostream& operator<<(std::ostream& out, const ElementSpec& spec) {
  if (!spec.leaves) return out << "<unknown>";
  const bool has_keys = spec.layout && spec.layout->keys.size() == spec.leaves->size();
  if (spec.leaves->size() == 1 && !has_keys) return out << spec.leaves->front();
  out << (has_keys ? '{' : '(');
  for (size_t i = 0; i < spec.leaves->size(); ++i) {
    if (i > 0) out << ", ";
    if (has_keys) out << '\'' << spec.layout->keys[i] << "': ";
    out << (*spec.leaves)[i];
  }
  return out << (has_keys ? '}' : ')');
}

}  // namespace lockstep::data
