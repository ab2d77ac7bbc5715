#include "lockstep/data/transforms/batching/assemble.h"

#include <cstring>
#include <optional>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>

#include "lockstep/base/error.h"
#include "lockstep/data/element/bus_errors.h"
#include "lockstep/data/element/private_memory.h"
#include "lockstep/device/host_copier.h"

namespace lockstep::data::detail {
namespace {

/// A smaller row is copied in the time that it takes to note it.
constexpr size_t kLeastRow = 512;
/// So many bytes wait for several threads to copy them: the memory of their elements is held until then.
constexpr size_t kMostWaiting = size_t{16} << 20;

/// A leaf as part of a batch: dense memory to copy.
struct Dense {
  at::ScalarType dtype;
  at::IntArrayRef sizes;
  const char* data;
  size_t num_bytes;
};

std::optional<Dense> dense_on_cpu(const Leaf& leaf) {
  if (const auto* row = leaf.as<Row>()) {
    return Dense{row->type->dtype, row->type->sizes, row->data, row->type->num_bytes};
  }
  if (const auto* number = leaf.as<Number>()) {
    return Dense{number->dtype, {}, number->bytes.data(), c10::elementSize(number->dtype)};
  }
  const auto* tensor = leaf.as<at::Tensor>();
  if (tensor == nullptr || !tensor->defined() || !tensor->device().is_cpu() || tensor->layout() != at::kStrided ||
      tensor->requires_grad()) {
    return std::nullopt;
  }
  // The data of a tensor that is not row-major must be copied by LibTorch: no pointer.
  const bool is_plain = tensor->is_contiguous() && !tensor->is_conj() && !tensor->is_neg();
  const char* data = is_plain ? static_cast<const char*>(tensor->data_ptr()) : nullptr;
  return Dense{tensor->scalar_type(), tensor->sizes(), data, tensor->nbytes()};
}

/// What all elements of a batch have in common at one leaf.
struct LeafForm {
  /// How the batch holds the leaf.
  enum class Kind { Copied, Stacked, Listed };

  explicit LeafForm(const Leaf& leaf) {
    const auto* tensor = leaf.as<at::Tensor>();
    if (const auto dense = dense_on_cpu(leaf)) {
      kind = Kind::Copied;
      dtype = dense->dtype;
      sizes.assign(dense->sizes.begin(), dense->sizes.end());
    } else if (tensor != nullptr && tensor->defined()) {
      kind = Kind::Stacked;
      dtype = tensor->scalar_type();
      sizes.assign(tensor->sizes().begin(), tensor->sizes().end());
      device = tensor->device();
      layout = tensor->layout();
    }
  }

  /// Stores the address of a leaf that is copied in `data`.
  bool fits(const Leaf& leaf, const char*& data) const {
    if (kind == Kind::Copied) {
      const auto dense = dense_on_cpu(leaf);
      if (!dense || dense->dtype != dtype || dense->sizes != at::IntArrayRef(sizes)) return false;
      data = dense->data;
      return true;
    }
    const LeafForm other(leaf);
    if (kind == Kind::Listed) return other.kind == Kind::Listed;
    return other.kind != Kind::Listed && other.dtype == dtype && other.sizes == sizes && other.device == device &&
           other.layout == layout;
  }

  Kind kind = Kind::Listed;
  at::ScalarType dtype = at::kFloat;
  c10::SmallVector<int64_t, 4> sizes;
  c10::Device device = at::kCPU;
  at::Layout layout = at::kStrided;
};

}  // namespace

/// What all elements of a batch have in common.
struct BatchAssembler::Form {
  explicit Form(const Element& element) : layout(element.layout) {
    for (const Leaf& leaf : element.leaves) leaves.emplace_back(leaf);
    data.resize(leaves.size());
  }

  bool has_parts_of(const Element& element) const {
    return element.leaves.size() == leaves.size() &&
           (element.layout == layout || (element.layout && layout && *element.layout == *layout));
  }
  /// Returns the number of leaves that fit before the first one that does not, of an element with the same parts.
  size_t num_fitting(const Element& element) {
    size_t i = 0;
    while (i < leaves.size() && leaves[i].fits(element.leaves[i], data[i])) ++i;
    return i;
  }
  bool fits(const Element& element) { return has_parts_of(element) && num_fitting(element) == leaves.size(); }

  std::vector<LeafForm> leaves;
  std::shared_ptr<const Layout> layout;
  /// The addresses of the leaves that are copied, of the element that `fits` was called for last.
  std::vector<const char*> data;
};

/// One leaf of the batch: a tensor that is being filled, or stored leaves.
struct BatchAssembler::Column {
  at::Tensor tensor;
  char* data = nullptr;
  size_t row_bytes = 0;
  /// Whether several threads copy the rows.
  bool is_large = false;
  std::vector<Leaf> stored;

  Leaf first() const { return tensor.defined() ? Leaf(tensor.select(0, 0)) : stored.front(); }
};

BatchAssembler::BatchAssembler(Options options)
    : options_(std::move(options)), misfits_(can_be_joined, options_.capacity) {}
BatchAssembler::~BatchAssembler() = default;
BatchAssembler::BatchAssembler(BatchAssembler&&) noexcept = default;
BatchAssembler& BatchAssembler::operator=(BatchAssembler&&) noexcept = default;

void BatchAssembler::start(const Element& first) {
  size_ = 0;
  form_ = std::make_unique<Form>(first);
  columns_ = std::vector<Column>(first.leaves.size());
  for (size_t i = 0; i < columns_.size(); ++i) {
    const auto dense = dense_on_cpu(first.leaves[i]);
    Column& column = columns_[i];
    if (!dense) {
      column.stored.reserve(options_.capacity);
      continue;
    }
    c10::SmallVector<int64_t, 5> sizes{options_.capacity};
    sizes.append(dense->sizes.begin(), dense->sizes.end());
    column.tensor = at::empty(sizes, at::TensorOptions().dtype(dense->dtype).pinned_memory(options_.pin_memory));
    column.data = static_cast<char*>(column.tensor.data_ptr());
    column.row_bytes = dense->num_bytes;
    column.is_large = options_.copier && dense->num_bytes >= kLeastRow &&
                      column.tensor.nbytes() >= lockstep::detail::HostCopier::kLeastBytes;
  }
}

void BatchAssembler::add(Element& element) {
  if (size_ == 0) start(element);
  if (!form_->fits(element)) return replace(misfits_.hold(element, misfit(element), size_));
  copy(element);
  if (!misfits_.empty()) misfits_.batch_grows(size_);
}

void BatchAssembler::end() {
  const auto is_as_before = [&](const Element& element) { return form_before_ && form_before_->fits(element); };
  replace(misfits_.decide(size_, is_as_before));
}

void BatchAssembler::replace(std::vector<Element> group) {
  if (group.empty()) return;
  const std::string message = misfit(group.front());
  for (; size_ > 0; --size_) misfits_.add_error(message);
  waiting_.clear();
  held_.clear();
  for (Element& element : group) add(element);
}

std::string BatchAssembler::misfit(const Element& element) const {
  if (!form_->has_parts_of(element)) {
    return c10::str("[", options_.operation, "] all elements of a batch must have the same parts: element ", size_,
                    " of the batch has ", element.leaves.size(), ", the first had ", columns_.size(), " or other keys");
  }
  const size_t part = form_->num_fitting(element);
  return c10::str("[", options_.operation, "] all elements of a batch must have one shape and dtype: element ", size_,
                  " of the batch is ", describe(element.leaves[part]), ", the first was ",
                  describe(columns_[part].first()), "; use padded_batch for tensors of different sizes");
}

bool BatchAssembler::can_be_joined(const Element& a, const Element& b) { return Form(a).fits(b); }

void BatchAssembler::copy(Element& element) {
  for (size_t i = 0; i < columns_.size(); ++i) copy_now(i, element.leaves[i]);
  // Behind all that may fail: an element whose copy failed is not in the batch.
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (is_copied_later(i, element.leaves[i])) copy_later(i, element.leaves[i]);
  }
  ++size_;
  if (waiting_.num_bytes() >= kMostWaiting) copy_waiting();
}

void BatchAssembler::copy_now(size_t index, Leaf& leaf) {
  Column& column = columns_[index];
  if (!column.tensor.defined()) {
    column.stored.resize(size_);  // removes the leaf of an element whose copy failed
    column.stored.push_back(std::move(leaf));
    return;
  }
  if (column.row_bytes == 0 || is_copied_later(index, leaf)) return;
  if (const char* data = form_->data[index]) {
    std::memcpy(column.data + size_ * column.row_bytes, data, column.row_bytes);
    if (any_bus_error()) check_read(leaf);
  } else {
    column.tensor.select(0, size_).copy_(*leaf.as<at::Tensor>());
  }
}

bool BatchAssembler::is_copied_later(size_t index, const Leaf& leaf) const {
  const Column& column = columns_[index];
  if (!column.is_large || form_->data[index] == nullptr) return false;
  if (const auto* row = leaf.as<Row>()) return !row->buffer->may_fail();  // that is found when it is copied
  const auto* tensor = leaf.as<at::Tensor>();
  return tensor != nullptr && lockstep::detail::is_only_handle(*tensor);
}

void BatchAssembler::copy_later(size_t index, Leaf& leaf) {
  const Column& column = columns_[index];
  waiting_.add(column.data + size_ * column.row_bytes, form_->data[index], column.row_bytes);
  const auto* row = leaf.as<Row>();
  const auto* last = held_.empty() ? nullptr : held_.back().as<Row>();
  if (row == nullptr || last == nullptr || row->buffer != last->buffer) held_.push_back(std::move(leaf));
}

void BatchAssembler::copy_waiting() {
  if (waiting_.num_bytes() > 0) options_.copier->copy(waiting_);
  waiting_.clear();
  held_.clear();
}

void BatchAssembler::finish(Element& batch) {
  copy_waiting();
  // Out of their places first: whatever happens, the next batch is another one.
  std::vector<Column> columns = std::move(columns_);
  columns_.clear();
  form_before_ = std::move(form_);
  const int64_t size = std::exchange(size_, 0);
  batch.clear();
  for (Column& column : columns) {
    if (column.tensor.defined()) {
      batch.leaves.push_back(size == options_.capacity ? std::move(column.tensor) : column.tensor.narrow(0, 0, size));
    } else if (column.stored.front().as<at::Tensor>() != nullptr) {
      std::vector<at::Tensor> tensors;
      for (const Leaf& leaf : column.stored) tensors.push_back(to_tensor(leaf));
      batch.leaves.push_back(at::stack(tensors));
    } else {
      batch.leaves.push_back(LeafList{std::make_shared<const std::vector<Leaf>>(std::move(column.stored))});
    }
  }
  batch.layout = form_before_->layout;
}

}  // namespace lockstep::data::detail
