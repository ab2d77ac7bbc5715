#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/xla/graph/build.h"
#include "lockstep/xla/tensor/place.h"

/// Lazy tensors: ordinary TensorImpls of device `xla:k` whose storage has no memory but a value of the graph. All
/// tensors that share a storage see one value, so views, writes through views, `set_data` and `Module::to` work.
namespace lockstep::xla {

/// The memory of an argument: one buffer for each logical device of its place, or data of the host that are sent when
/// their layout is known.
struct DeviceData final : ArgumentData {
  explicit DeviceData(int place) : place(place) {}

  int place;
  at::Tensor host;
  std::vector<Buffer> buffers;
};

inline DeviceData& data_of(const Node& argument) { return static_cast<DeviceData&>(*argument.data); }

/// What stands in a storage in place of memory.
class LOCKSTEP_API LazyStorage {
 public:
  LazyStorage(Place& place, Value value);
  ~LazyStorage();
  LazyStorage(const LazyStorage&) = delete;
  LazyStorage& operator=(const LazyStorage&) = delete;

  Place& place() const { return *place_; }
  const Value& value() const { return value_; }
  /// Takes another value; the first one of a run is remembered.
  void bind(Value value);
  /// Takes a value that is memory, as the end of what was pending.
  void settle(Value value);
  /// Says that the value it holds has become memory.
  void executed() { before_.reset(); }
  /// Gives back what was there before anything was pending; false where nothing was.
  bool roll_back();

  /// The memory that it held when what is pending began; null where there was none.
  const Value& before() const { return before_; }

  /// The lasting layout of whatever it holds.
  LayoutPtr layout = nullptr;

  /// A view that was read, and the value it has.
  struct View {
    Shape size;
    Shape stride;
    int64_t offset = 0;
    Value value;
  };
  /// Views of the present value, so that each is expressed once.
  std::vector<View> views;

  /// Lets others notice that it is gone: locks to this object for as long as it lives.
  std::weak_ptr<LazyStorage*> watch();

 private:
  friend class Place;

  void take(Value value);
  void let_go();

  Place* place_;
  Value value_;
  Value before_;
  /// Its position in the place's list, or none.
  size_t slot_ = SIZE_MAX;
  std::shared_ptr<LazyStorage*> token_;
};

/// The storage that holds an argument, where there is one.
inline LazyStorage* holder_of(const Node& argument) { return static_cast<LazyStorage*>(argument.holder); }

/// Null for tensors of other devices.
LOCKSTEP_API LazyStorage* storage_of(const at::Tensor& tensor);

/// A new tensor on a storage of its own.
LOCKSTEP_API at::Tensor wrap(Value value, Place& place);
LOCKSTEP_API at::Tensor view_of(const at::Tensor& tensor, at::IntArrayRef size, at::IntArrayRef stride, int64_t offset);

/// The value of a lazy tensor, through its view.
LOCKSTEP_API Value read(const at::Tensor& tensor);
/// Writes to a lazy tensor, through its view; `value` is converted and broadcast.
LOCKSTEP_API void write(const at::Tensor& tensor, Value value);

/// The value of a CPU tensor at a place; its data are copied before the call returns.
LOCKSTEP_API Value upload(const at::Tensor& cpu, Place& place, LayoutPtr layout = nullptr);
/// Puts data that wait onto the devices.
LOCKSTEP_API void send(const Node& argument);
/// The whole tensor that an argument is, put together where its parts are apart.
LOCKSTEP_API at::Tensor fetch(const Node& argument);
/// Executes what is pending where it must, and copies a tensor to the CPU.
LOCKSTEP_API at::Tensor to_cpu(const at::Tensor& tensor);

/// Keeps a tensor in a layout from now on.
LOCKSTEP_API void set_layout(const at::Tensor& tensor, LayoutPtr layout);
/// Bytes that a tensor takes on each logical device.
LOCKSTEP_API std::vector<size_t> bytes_per_device(const at::Tensor& tensor);

LOCKSTEP_API ElementType element_type(Dtype dtype);

}  // namespace lockstep::xla
