#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/record_function.h>
#include <c10/core/Device.h>
#include <c10/core/Storage.h>
#include <c10/util/intrusive_ptr.h>

namespace lockstep::detail {

/// Internal: the LibTorch functions that are called while a step is recorded into a graph. There is at most one at a
/// time.
class CaptureWatch {
 public:
  explicit CaptureWatch(c10::Device device);
  ~CaptureWatch();
  CaptureWatch(const CaptureWatch&) = delete;
  CaptureWatch& operator=(const CaptureWatch&) = delete;

  /// The last function that was called on a stream that is recorded: "aten::_local_scalar_dense".
  std::string last_function() const;
  /// A hash of all calls, with shapes and numbers among their arguments, in any order.
  uint64_t calls() const;
  /// The memory that functions have read or written and that is still there. After the recording it is that of tensors
  /// from outside, and of results.
  std::vector<c10::Storage> used_memory() const;

 private:
  static std::unique_ptr<at::ObserverContext> on_call(const at::RecordFunction& function);
  void note(const at::RecordFunction& function);
  void note_memory(const at::Tensor& tensor);

  at::CallbackHandle handle_;
  mutable std::mutex mutex_;
  std::string last_function_;
  uint64_t calls_ = 0;
  std::unordered_map<const c10::StorageImpl*, c10::weak_intrusive_ptr<c10::StorageImpl>> memory_;
};

}  // namespace lockstep::detail
