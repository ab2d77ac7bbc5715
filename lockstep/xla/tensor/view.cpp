#include "lockstep/xla/tensor/view.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/xla/graph/origin.h"
#include "lockstep/xla/tensor/lazy_storage.h"

namespace lockstep::xla {
namespace {

bool takes_part(Ints size, Ints stride, size_t dim) { return size[dim] > 1 && stride[dim] > 0; }

bool is_whole(const at::Tensor& tensor, const Node& value) {
  return tensor.storage_offset() == 0 && tensor.is_contiguous() && tensor.numel() == value.numel();
}

/// The value in the layout of its storage, also if it is an argument already.
Value laid_out(Value value, LayoutPtr layout) {
  if (layout == nullptr || value->op != Op::Argument || data_of(*value).layout == layout) return value;
  DeviceData& data = data_of(*value);
  if (!data.host.defined() || data.layout != nullptr) return annotate(std::move(value), layout);
  data.layout = layout;
  return value;
}

}  // namespace

/// The first dimension along which all values of the position are inside of the block.
void StridedBox::place(const Position& position, Ints strides) {
  for (size_t dim = 0; dim < strides.size(); ++dim) {
    if (position.unit % strides[dim] != 0) continue;
    const int64_t unit = position.unit / strides[dim];
    const int64_t least = begin_[dim] - position.value * unit;
    const int64_t length = end_[dim] - begin_[dim];
    if (least < 0 || least + position.most * unit + length > shape_[dim]) continue;
    positions_.push_back({dim, position.value, unit, position.most});
    return;
  }
}

bool StridedBox::describe(int64_t numel, Ints size, Ints stride, int64_t offset, const Positions& positions) {
  std::vector<int64_t> dims;
  Shape strides;
  for (size_t i = 0; i < size.size(); ++i) {
    if (takes_part(size, stride, i)) dims.push_back(static_cast<int64_t>(i));
  }
  std::stable_sort(dims.begin(), dims.end(), [&](int64_t a, int64_t b) { return stride[a] > stride[b]; });
  int64_t above = numel;
  for (const int64_t dim : dims) {
    const int64_t extent = (above + stride[dim] - 1) / stride[dim];
    const int64_t begin = offset / stride[dim];
    if (begin + size[dim] > extent) return false;
    cuts_.push_back({above, extent * stride[dim]});
    is_padded_ = is_padded_ || above != extent * stride[dim];
    shape_.push_back(extent);
    strides.push_back(stride[dim]);
    begin_.push_back(begin);
    end_.push_back(begin + size[dim]);
    offset %= stride[dim];
    above = stride[dim];
  }
  if (above > 1 || dims.empty()) {
    shape_.push_back(above);
    strides.push_back(1);
    begin_.push_back(offset);
    end_.push_back(offset + 1);
  }
  for (size_t i = 0; i < size.size(); ++i) {
    if (!takes_part(size, stride, i)) continue;
    kept_.push_back(static_cast<int64_t>(i));
    position_.push_back(std::find(dims.begin(), dims.end(), static_cast<int64_t>(i)) - dims.begin());
  }
  for (const Position& position : positions) {
    if (!is_padded_) place(position, strides);
  }
  return true;
}

Value StridedBox::cut(Value storage) const {
  if (!is_padded_) return reshape(std::move(storage), shape_);
  Shape above;
  Value block = reshape(storage, {storage->numel()});
  for (size_t i = 0; i < cuts_.size(); ++i) {
    const auto [length, padded] = cuts_[i];
    if (length != padded) {
      const Shape low(above.size() + 1, 0);
      Shape high = low;
      high.back() = padded - length;
      block = pad(std::move(block), 0, low, high);
    }
    above.push_back(shape_[i]);
    Shape divided = above;
    divided.push_back(padded / shape_[i]);
    block = reshape(std::move(block), divided);
  }
  return reshape(std::move(block), shape_);
}

Value StridedBox::uncut(Value block, Ints shape) const {
  if (!is_padded_) return reshape(std::move(block), shape);
  for (size_t i = cuts_.size(); i-- > 0;) {
    const auto [length, padded] = cuts_[i];
    Shape joined(shape_.begin(), shape_.begin() + static_cast<int64_t>(i));
    joined.push_back(padded);
    block = reshape(std::move(block), joined);
    if (length == padded) continue;
    const Shape begin(joined.size(), 0);
    joined.back() = length;
    block = slice(std::move(block), begin, joined);
  }
  return reshape(std::move(block), shape);
}

Value StridedBox::read(const Value& storage, Ints size, Ints stride) const {
  const Value block = cut(storage);
  Value box = slice(block, begin_, end_);
  if (box != block) box->positions = std::make_shared<const Positions>(positions_);
  Shape dense;
  for (size_t i = 0; i < kept_.size(); ++i) dense.push_back(end_[i] - begin_[i]);
  box = transpose(reshape(std::move(box), dense), position_);
  bool expanded = false;
  for (size_t i = 0; i < size.size(); ++i) expanded = expanded || (size[i] > 1 && stride[i] == 0);
  return expanded ? broadcast_dims(std::move(box), size, kept_) : reshape(std::move(box), size);
}

Value StridedBox::write(const Value& storage, const Value& view) const {
  Shape dense;
  Shape order(position_.size());
  Shape box;
  for (const int64_t dim : kept_) dense.push_back(view->shape[dim]);
  for (size_t i = 0; i < position_.size(); ++i) order[position_[i]] = static_cast<int64_t>(i);
  for (size_t i = 0; i < begin_.size(); ++i) box.push_back(end_[i] - begin_[i]);
  const Value part = reshape(transpose(reshape(view, dense), order), box);
  Value block = update_slice(cut(storage), part, begin_);
  if (block != part) block->positions = std::make_shared<const Positions>(positions_);
  return uncut(std::move(block), storage->shape);
}

Value gather_view(const Value& storage, Ints size, Ints stride, int64_t offset, const Positions& positions) {
  const Value first = integer(offset, at::kLong);
  first->positions = std::make_shared<const Positions>(positions);
  Value address = broadcast(first, size);
  for (size_t i = 0; i < size.size(); ++i) {
    if (!takes_part(size, stride, i)) continue;
    const Value along = iota(at::kLong, size, static_cast<int64_t>(i));
    address = add(address, multiply(along, fill_integer(stride[i], at::kLong, size)));
  }
  return take(reshape(storage, {storage->numel()}), address, 0);
}

Value read(const at::Tensor& tensor) {
  LazyStorage* storage = storage_of(tensor);
  LOCKSTEP_ASSERT(storage != nullptr, "a value is read of a tensor on ", tensor.device());
  storage->note_read();
  const Value& value = storage->value();
  const Ints size = tensor.sizes();
  const Ints stride = tensor.strides();
  const int64_t offset = tensor.storage_offset();
  if (is_whole(tensor, *value)) return reshape(value, size);
  const std::lock_guard<std::recursive_mutex> lock(storage->device().mutex());
  std::vector<LazyStorage::View>& views = storage->views_of_run();
  for (const LazyStorage::View& view : views) {
    if (view.offset == offset && Ints(view.size) == size && Ints(view.stride) == stride) return view.value;
  }
  Value read;
  StridedBox box;
  if (tensor.numel() == 0) {
    read = fill(0, value->dtype, size);
  } else if (const Positions positions = storage->positions_of(size, stride, offset);
             box.describe(value->numel(), size, stride, offset, positions)) {
    read = box.read(value, size, stride);
  } else {
    read = gather_view(value, size, stride, offset, positions);
  }
  views.push_back({Shape(size.begin(), size.end()), Shape(stride.begin(), stride.end()), offset, read});
  return read;
}

void write(const at::Tensor& tensor, Value value) {
  LazyStorage* storage = storage_of(tensor);
  LOCKSTEP_ASSERT(storage != nullptr, "a value is written to a tensor on ", tensor.device());
  if (tensor.numel() == 0) return;
  value = broadcast(convert(std::move(value), tensor.scalar_type()), tensor.sizes());
  const Value whole = storage->value();
  if (is_whole(tensor, *whole)) {
    return storage->bind(laid_out(reshape(std::move(value), whole->shape), storage->layout));
  }
  StridedBox box;
  bool expanded = false;
  for (int64_t i = 0; i < tensor.dim(); ++i) expanded = expanded || (tensor.size(i) > 1 && tensor.stride(i) == 0);
  const int64_t offset = tensor.storage_offset();
  const Positions positions = storage->positions_of(tensor.sizes(), tensor.strides(), offset);
  LOCKSTEP_CHECK_VALUE(!expanded && box.describe(whole->numel(), tensor.sizes(), tensor.strides(), offset, positions),
                       "[", current_origin(),
                       "] a view whose elements overlap cannot be written: sizes=", tensor.sizes(),
                       ", strides=", tensor.strides(), "; clone it first");
  storage->note_read();
  storage->bind(box.write(whole, value));
}

}  // namespace lockstep::xla
