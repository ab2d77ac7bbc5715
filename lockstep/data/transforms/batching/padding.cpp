#include "lockstep/data/transforms/batching/padding.h"

#include <algorithm>
#include <cstring>

#include <ATen/ops/empty.h>

#include "lockstep/base/error.h"
#include "lockstep/data/element/bus_errors.h"
#include "lockstep/data/element/private_memory.h"

namespace lockstep::data::detail {
namespace {

using Sizes = c10::SmallVector<int64_t, 5>;

/// A tensor, row or number as memory in row-major order, or as a tensor of another device.
struct Piece {
  explicit Piece(const Leaf& leaf) {
    if (const auto* row = leaf.as<Row>()) {
      dtype = row->type->dtype;
      sizes = row->type->sizes;
      data = row->data;
    } else if (const auto* number = leaf.as<Number>()) {
      dtype = number->dtype;
      data = number->bytes.data();
    } else {
      const at::Tensor& found = *leaf.as<at::Tensor>();
      on_cpu = found.device().is_cpu() && found.layout() == at::kStrided;
      tensor = on_cpu ? found.detach().contiguous() : found;
      dtype = tensor.scalar_type();
      sizes = tensor.sizes();
      data = on_cpu ? static_cast<const char*>(tensor.data_ptr()) : nullptr;
    }
  }

  at::ScalarType dtype;
  at::IntArrayRef sizes;
  const char* data = nullptr;
  bool on_cpu = true;
  at::Tensor tensor;
};

bool is_tensor(const Leaf& leaf) {
  return leaf.as<at::Tensor>() != nullptr || leaf.as<Row>() != nullptr || leaf.as<Number>() != nullptr;
}

/// Copies a block of `from` sizes to the beginning of one of `to` sizes.
void copy_block(char* to, at::IntArrayRef to_sizes, const char* from, at::IntArrayRef from_sizes, size_t item_bytes) {
  size_t to_bytes = item_bytes;
  size_t from_bytes = item_bytes;
  if (from_sizes.slice(std::min<size_t>(1, from_sizes.size())) ==
      to_sizes.slice(std::min<size_t>(1, to_sizes.size()))) {
    for (const int64_t size : from_sizes) from_bytes *= static_cast<size_t>(size);
    if (from_bytes > 0) std::memcpy(to, from, from_bytes);
    return;
  }
  for (const int64_t size : to_sizes.slice(1)) to_bytes *= static_cast<size_t>(size);
  for (const int64_t size : from_sizes.slice(1)) from_bytes *= static_cast<size_t>(size);
  for (int64_t i = 0; i < from_sizes[0]; ++i) {
    copy_block(to + static_cast<size_t>(i) * to_bytes, to_sizes.slice(1), from + static_cast<size_t>(i) * from_bytes,
               from_sizes.slice(1), item_bytes);
  }
}

/// Throws ValueError where part `leaf` of these sizes cannot be padded to `shape`, which has a rank.
void check_sizes(at::IntArrayRef sizes, const PartialShape& shape, size_t leaf, const char* operation) {
  LOCKSTEP_CHECK_VALUE(static_cast<size_t>(shape.rank()) == sizes.size(), "[", operation,
                       "] a padded shape must have as many dimensions as the part: padded_shape=", shape, ", part ",
                       leaf, " has ", sizes);
  for (size_t d = 0; d < sizes.size(); ++d) {
    const auto wanted = shape.dims()[d];
    LOCKSTEP_CHECK_VALUE(!wanted || sizes[d] <= *wanted, "[", operation,
                         "] an element is larger than what it is padded to: padded_shape=", shape, ", part ", leaf,
                         " has size ", sizes[d], " in dimension ", d);
  }
}

/// Returns the sizes that all pieces are padded to: those of `shape`, or the largest.
Sizes find_sizes(const std::vector<Piece>& pieces, const PartialShape* shape, size_t leaf, const char* operation) {
  const Piece& first = pieces.front();
  Sizes sizes(first.sizes.begin(), first.sizes.end());
  for (size_t i = 0; i < pieces.size(); ++i) {
    LOCKSTEP_CHECK_VALUE(pieces[i].dtype == first.dtype && pieces[i].sizes.size() == sizes.size(), "[", operation,
                         "] all elements of a batch must have one dtype and number of dimensions: part ", leaf,
                         " of element ", i, " has ", pieces[i].dtype, " ", pieces[i].sizes, ", the first had ",
                         first.dtype, " ", first.sizes);
    for (size_t d = 0; d < sizes.size(); ++d) sizes[d] = std::max(sizes[d], pieces[i].sizes[d]);
  }
  if (shape == nullptr || !shape->has_rank()) return sizes;
  check_sizes(sizes, *shape, leaf, operation);
  for (size_t d = 0; d < sizes.size(); ++d) sizes[d] = shape->dims()[d].value_or(sizes[d]);
  return sizes;
}

/// Copies the pieces to the beginnings of the rows of `joined`.
void join_on_cpu(const std::vector<Piece>& pieces, const Sizes& sizes, const Padding& padding, at::Tensor& joined) {
  auto* const data = static_cast<char*>(joined.data_ptr());
  const size_t row_bytes = joined.nbytes() / pieces.size();
  const auto copy = [&](int64_t row) {
    const Piece& piece = pieces[static_cast<size_t>(row)];
    copy_block(data + static_cast<size_t>(row) * row_bytes, sizes, piece.data, piece.sizes,
               c10::elementSize(piece.dtype));
  };
  const auto count = static_cast<int64_t>(pieces.size());
  if (padding.copier && joined.nbytes() >= lockstep::detail::HostCopier::kLeastBytes) {
    padding.copier->for_each(count, copy);
  } else {
    for (int64_t row = 0; row < count; ++row) copy(row);
  }
}

at::Tensor join(const std::vector<Piece>& pieces, const Sizes& sizes, double value, const Padding& padding) {
  const bool on_cpu = std::all_of(pieces.begin(), pieces.end(), [](const Piece& piece) { return piece.on_cpu; });
  auto options = at::TensorOptions().dtype(pieces.front().dtype);
  if (on_cpu) {
    options = options.pinned_memory(padding.pin_memory);
  } else {
    options = options.device(pieces.front().tensor.device());
  }
  Sizes all{static_cast<int64_t>(pieces.size())};
  all.append(sizes.begin(), sizes.end());
  at::Tensor joined = at::empty(all, options);
  const bool padded = std::any_of(pieces.begin(), pieces.end(),
                                  [&](const Piece& piece) { return piece.sizes != at::IntArrayRef(sizes); });
  if (padded) joined.fill_(value);
  if (on_cpu) {
    join_on_cpu(pieces, sizes, padding, joined);
    return joined;
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    at::Tensor place = joined.select(0, static_cast<int64_t>(i));
    for (size_t d = 0; d < sizes.size(); ++d) place = place.narrow(static_cast<int64_t>(d), 0, pieces[i].sizes[d]);
    place.copy_(pieces[i].tensor);
  }
  return joined;
}

Leaf join_leaves(std::vector<Element>& elements, size_t leaf, const Padding& padding) {
  if (!is_tensor(elements.front().leaves[leaf])) {
    auto list = std::make_shared<std::vector<Leaf>>();
    for (Element& element : elements) list->push_back(std::move(element.leaves[leaf]));
    return LeafList{std::move(list)};
  }
  std::vector<Piece> pieces;
  pieces.reserve(elements.size());
  for (const Element& element : elements) {
    LOCKSTEP_CHECK_VALUE(is_tensor(element.leaves[leaf]), "[", padding.operation,
                         "] all elements of a batch must have the same parts: part ", leaf, " is ",
                         describe(elements.front().leaves[leaf]), " in one and ", describe(element.leaves[leaf]),
                         " in another");
    pieces.emplace_back(element.leaves[leaf]);
  }
  const PartialShape* shape = padding.shapes.empty() ? nullptr : &padding.shapes[leaf];
  const double value = padding.values.size() == 1 ? padding.values.front() : padding.values[leaf];
  at::Tensor joined = join(pieces, find_sizes(pieces, shape, leaf, padding.operation), value, padding);
  if (any_bus_error()) {
    for (const Element& element : elements) check_read(element.leaves[leaf]);
  }
  return joined;
}

}  // namespace

void check_fits(const Element& element, const Padding& padding) {
  for (size_t i = 0; i < std::min(padding.shapes.size(), element.leaves.size()); ++i) {
    if (!padding.shapes[i].has_rank() || !is_tensor(element.leaves[i])) continue;
    if (const auto* tensor = element.leaves[i].as<at::Tensor>()) {
      if (tensor->defined()) check_sizes(tensor->sizes(), padding.shapes[i], i, padding.operation);
    } else if (const auto* row = element.leaves[i].as<Row>()) {
      check_sizes(row->type->sizes, padding.shapes[i], i, padding.operation);
    } else {
      check_sizes({}, padding.shapes[i], i, padding.operation);
    }
  }
}

void pad_and_join(std::vector<Element>& elements, const Padding& padding, Element& batch) {
  const Element& first = elements.front();
  const size_t num_leaves = first.leaves.size();
  for (const Element& element : elements) {
    LOCKSTEP_CHECK_VALUE(element.leaves.size() == num_leaves && same_layout(element, first), "[", padding.operation,
                         "] all elements of a batch must have the same parts and keys: parts=", num_leaves, " and ",
                         element.leaves.size());
  }
  LOCKSTEP_CHECK_VALUE(padding.shapes.empty() || padding.shapes.size() == num_leaves, "[", padding.operation,
                       "] there must be one padded shape for each part of the element: padded_shapes=",
                       padding.shapes.size(), ", parts=", num_leaves);
  LOCKSTEP_CHECK_VALUE(padding.values.size() == 1 || padding.values.size() == num_leaves, "[", padding.operation,
                       "] there must be one padding value, or one for each part: padding_values=",
                       padding.values.size(), ", parts=", num_leaves);
  Element joined;
  for (size_t i = 0; i < num_leaves; ++i) joined.leaves.push_back(join_leaves(elements, i, padding));
  joined.layout = first.layout;
  batch = std::move(joined);
}

ElementSpec padded_spec(const ElementSpec& spec, const std::vector<PartialShape>& shapes, PartialShape::Dim rows) {
  size_t index = 0;
  return spec.map_leaves([&](LeafSpec leaf) {
    const size_t here = index++;
    if (leaf.kind != LeafSpec::Kind::Tensor) return LeafSpec{LeafSpec::Kind::List, std::nullopt, PartialShape{rows}};
    if (here < shapes.size() && shapes[here].has_rank()) leaf.shape = shapes[here];
    leaf.shape = leaf.shape.with_leading(rows);
    return leaf;
  });
}

}  // namespace lockstep::data::detail
