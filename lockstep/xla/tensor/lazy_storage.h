#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/xla/graph/ops/build.h"
#include "lockstep/xla/pjrt/buffer.h"
#include "lockstep/xla/tensor/view_positions.h"
#include "lockstep/xla/tensor/xla_device.h"

/// Lazy tensors: ordinary TensorImpls of device `xla:k` whose storage holds a value of the graph in place of memory.
/// All tensors that share a storage see one value, so views, writes through views, `set_data` and `Module::to` work.
namespace lockstep::xla {

/// The data of an argument: one buffer for each logical device, or a host tensor that is uploaded when its layout is
/// known. One thread at a time replaces them, by `replace`. Others may read them at the same time, by BeingRead.
struct DeviceData final : ArgumentData {
  explicit DeviceData(int device_index) : device_index(device_index) {}

  int device_index;
  at::Tensor host;
  std::vector<Buffer> buffers;
  /// The shape of the buffers if they are padded; the value is in the first rows. Empty if it is that of the node.
  Shape padded;
  /// Why there is no data any more; empty if there is.
  std::string lost;
  /// Whether what is lost had never been computed: it was made in a run that failed.
  bool is_uncomputed = false;

  /// Holds these buffers from now on, and no host tensor. Threads that read go on with the last ones.
  void replace(std::vector<Buffer> now, Ints padded_shape);

  /// Keeps what an argument holds for as long as it lives.
  class BeingRead {
   public:
    explicit BeingRead(DeviceData& data);
    ~BeingRead();
    BeingRead(const BeingRead&) = delete;
    BeingRead& operator=(const BeingRead&) = delete;

    at::Tensor host;
    at::ArrayRef<Buffer> buffers;
    Shape padded;

   private:
    DeviceData& data_;
  };

 private:
  /// How many threads read, and what they may read. Guarded by the lock of the device.
  int num_readers_ = 0;
  std::vector<std::vector<Buffer>> replaced_;
};

inline DeviceData& data_of(const Node& argument) { return static_cast<DeviceData&>(*argument.data); }

/// Throws unless the calling thread may compute on a device: inside of a run its own threads may.
LOCKSTEP_API void check_may_compute(const XlaDevice& device);

/// The context of a storage of lazy tensors.
class LOCKSTEP_API LazyStorage final : public PendingStorage {
 public:
  enum class Listing {
    /// The next execution on the device computes the value.
    Pending,
    /// The value is computed only when it is read: uninitialized memory, which is about to be written. Any thread may
    /// make such a storage and write an argument to it, while other threads compute.
    Blank
  };
  LazyStorage(XlaDevice& device, Value value, Listing listing = Listing::Pending);
  ~LazyStorage();

  XlaDevice& device() const { return *device_; }
  const Value& value() const { return value_; }
  /// Holds `value` from now on. The last argument that it held is stored for `roll_back`.
  void bind(Value value);
  /// Holds an argument from now on; nothing is pending and nothing can be rolled back.
  void settle(Value value);
  /// Executes what is pending on the device if the value is.
  void compute();
  bool is_pending() const override { return value_->op != Op::Argument; }
  Trace::Result pending_result() override;
  void executed() override { before_.reset(); }
  bool roll_back() override;
  void lose(const std::string& why) override;

  /// Whether it was made in the present run.
  bool is_made_in_run() const { return made_in_ == device_->run_number(); }
  /// Notes that the present run reads the value.
  void note_read() { read_in_.store(device_->run_number(), std::memory_order_relaxed); }
  bool is_read_in_run() const { return read_in_.load(std::memory_order_relaxed) == device_->run_number(); }

  /// The argument that it held before its pending value; null if it held none.
  const Value& before() const { return before_; }

  /// Whether programs may take over its memory for its next value. Without, other threads may read every value that it
  /// has held.
  bool may_be_donated = true;

  /// The layout of every value that it holds.
  LayoutPtr layout = nullptr;

  /// A view that was read, and its value.
  struct View {
    Shape size;
    Shape stride;
    int64_t offset = 0;
    Value value;
  };
  /// Views of the current value that the present run has read, so that each is traced once. Those of other runs are
  /// forgotten: a tensor that stays on the device may be read at another position in each of them. Under the lock of
  /// the device.
  std::vector<View>& views_of_run();

  /// Notes that a view of it was made of a tensor over it. Thread-safe.
  void note_view(const at::Tensor& of, Ints size, Ints stride, int64_t offset);
  /// The positions of the slices that led to a view, with units in elements; those that are not known are left out: the
  /// view was made by `as_strided` where it is no slice, in two ways, or before a run that has made other views.
  /// Thread-safe.
  Positions positions_of(Ints size, Ints stride, int64_t offset) const;

  /// A pointer that can be locked for as long as this object lives. Both under the lock of the device, which is held
  /// while the object is used: another thread may drop the last tensor.
  std::weak_ptr<LazyStorage*> watch();

 private:
  void take(Value value);
  void let_go();
  bool is_whole(Ints size, Ints stride, int64_t offset) const;
  void bind_unchecked(Value value);
  void settle_unchecked(Value value);

  XlaDevice* device_;
  Value value_;
  Value before_;
  bool is_blank_ = false;
  /// Numbers of runs; 0 for none.
  uint64_t made_in_ = 0;
  std::atomic<uint64_t> read_in_{0};
  std::vector<View> views_;
  uint64_t views_run_ = 0;
  /// Guarded by the lock of the device.
  ViewPositions positions_;
  uint64_t positions_run_ = 0;
  std::shared_ptr<LazyStorage*> token_;
};

inline LazyStorage& lazy_storage(PendingStorage& storage) { return static_cast<LazyStorage&>(storage); }

/// Null for tensors of other devices.
LOCKSTEP_API LazyStorage* storage_of(const at::Tensor& tensor);

/// Makes a tensor with a storage of its own.
LOCKSTEP_API at::Tensor wrap(Value value, XlaDevice& device,
                             LazyStorage::Listing listing = LazyStorage::Listing::Pending);
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
LOCKSTEP_API void ensure_padded(const Node& argument, Ints shape);
/// Throws if the data of an argument is lost.
void check_not_lost(const Node& argument);
/// Whether the value of a lazy tensor is lost that had never been computed: it was made in a run that failed.
LOCKSTEP_API bool is_uncomputed(const at::Tensor& tensor);
/// Copies an argument to the CPU; tiles are put together.
LOCKSTEP_API at::Tensor download(const Node& argument);
/// Copies a tensor to the CPU; executes what is pending if its value is.
LOCKSTEP_API at::Tensor to_cpu(const at::Tensor& tensor);
/// Copies a tensor of an XLA device to one of the CPU; tiles go to their places in it, without a copy of the whole.
LOCKSTEP_API void copy_to_cpu(const at::Tensor& tensor, const at::Tensor& target);

/// Sets the layout of a tensor for all of its values.
LOCKSTEP_API void set_layout(const at::Tensor& tensor, LayoutPtr layout);
/// Bytes that a tensor takes on each logical device.
LOCKSTEP_API std::vector<size_t> bytes_per_device(const at::Tensor& tensor);

LOCKSTEP_API ElementType element_type(Dtype dtype);

}  // namespace lockstep::xla
