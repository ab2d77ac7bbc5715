#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/xla/graph/ops/build.h"
#include "lockstep/xla/pjrt/buffer.h"
#include "lockstep/xla/tensor/xla_device.h"

/// Lazy tensors: ordinary TensorImpls of device `xla:k` whose storage holds a value of the graph in place of memory.
/// All tensors that share a storage see one value, so views, writes through views, `set_data` and `Module::to` work.
namespace lockstep::xla {

/// The data of an argument: one buffer for each logical device, or a host tensor that is uploaded when its layout is
/// known.
struct DeviceData final : ArgumentData {
  explicit DeviceData(int device_index) : device_index(device_index) {}

  int device_index;
  at::Tensor host;
  std::vector<Buffer> buffers;
  /// The shape of the buffers if they are padded; the value is in the first rows. Empty if it is that of the node.
  Shape padded;
};

inline DeviceData& data_of(const Node& argument) { return static_cast<DeviceData&>(*argument.data); }

/// The context of a storage of lazy tensors.
class LOCKSTEP_API LazyStorage final : public PendingStorage {
 public:
  LazyStorage(XlaDevice& device, Value value);
  ~LazyStorage();

  XlaDevice& device() const { return *device_; }
  const Value& value() const { return value_; }
  /// Holds `value` from now on. The last argument that it held is stored for `roll_back`.
  void bind(Value value);
  /// Holds an argument from now on; nothing is pending and nothing can be rolled back.
  void settle(Value value);
  /// Its value has been computed.
  void executed() { before_.reset(); }
  Trace::Result pending_result() override;
  bool roll_back() override;

  /// The argument that it held before its pending value; null if it held none.
  const Value& before() const { return before_; }

  /// The layout of every value that it holds.
  LayoutPtr layout = nullptr;

  /// A view that was read, and its value.
  struct View {
    Shape size;
    Shape stride;
    int64_t offset = 0;
    Value value;
  };
  /// Views of the current value, so that each is traced once.
  std::vector<View> views;

  /// A pointer that can be locked for as long as this object lives.
  std::weak_ptr<LazyStorage*> watch();

 private:
  void take(Value value);
  void let_go();

  XlaDevice* device_;
  Value value_;
  Value before_;
  std::shared_ptr<LazyStorage*> token_;
};

/// The storage that holds an argument; null if there is none.
inline LazyStorage* holder_of(const Node& argument) { return static_cast<LazyStorage*>(argument.holder); }
inline LazyStorage& lazy_storage(PendingStorage& storage) { return static_cast<LazyStorage&>(storage); }

/// Null for tensors of other devices.
LOCKSTEP_API LazyStorage* storage_of(const at::Tensor& tensor);

/// Makes a tensor with a storage of its own.
LOCKSTEP_API at::Tensor wrap(Value value, XlaDevice& device);
LOCKSTEP_API at::Tensor view_of(const at::Tensor& tensor, at::IntArrayRef size, at::IntArrayRef stride, int64_t offset);

/// The value of a lazy tensor, through its view.
LOCKSTEP_API Value read(const at::Tensor& tensor);
/// Writes to a lazy tensor, through its view; `value` is converted and broadcast.
LOCKSTEP_API void write(const at::Tensor& tensor, Value value);

/// The value of a CPU tensor on a device. The data is copied before the call returns.
LOCKSTEP_API Value upload(const at::Tensor& cpu, XlaDevice& device, LayoutPtr layout = nullptr);
/// Uploads the host tensor of an argument, if it has one. Its buffers then have the shape of the node.
LOCKSTEP_API void ensure_uploaded(const Node& argument);
/// Ensures that the buffers of an argument have this shape, at least that of the node in each dimension.
void ensure_padded(const Node& argument, Ints shape);
/// Copies an argument to the CPU; tiles are put together.
LOCKSTEP_API at::Tensor download(const Node& argument);
/// Copies a tensor to the CPU; executes what is pending if its value is.
LOCKSTEP_API at::Tensor to_cpu(const at::Tensor& tensor);

/// Sets the layout of a tensor for all of its values.
LOCKSTEP_API void set_layout(const at::Tensor& tensor, LayoutPtr layout);
/// Bytes that a tensor takes on each logical device.
LOCKSTEP_API std::vector<size_t> bytes_per_device(const at::Tensor& tensor);

LOCKSTEP_API ElementType element_type(Dtype dtype);

}  // namespace lockstep::xla
