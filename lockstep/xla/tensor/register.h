#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "lockstep/api.h"

/// Inside: what LibTorch's dispatcher is told of the device `xla`.
namespace lockstep::xla {

/// Registers all kernels, once; they stay for as long as the process lives.
void register_device();

/// Computes a call on the CPU and brings the results back: exact, counted, and named once in the log. For everything
/// that has no emitter.
void fall_back(const c10::OperatorHandle& op, torch::jit::Stack* stack);

/// The device index that a call computes on: of its first lazy tensor, of its `device` argument, or the current one.
int place_of_call(const c10::IValue* arguments, size_t count);

/// Which arguments a function writes, and which of them each of its results is (-1: a new tensor).
struct Aliases {
  explicit Aliases(const c10::FunctionSchema& schema);
  c10::SmallVector<int, 3> written;
  c10::SmallVector<int, 3> returned;
};

/// Kernels of functions that are not "values in, values out".
struct SpecialKernel {
  const char* name;
  const char* overload;
  void (*run)(const c10::OperatorHandle&, torch::jit::Stack*);
};
c10::ArrayRef<SpecialKernel> special_kernels();

/// While it lives, what the thread traces comes from this function of LibTorch.
class Origin {
 public:
  explicit Origin(const char* name);
  ~Origin();
  Origin(const Origin&) = delete;
  Origin& operator=(const Origin&) = delete;

 private:
  const char* before_;
};

}  // namespace lockstep::xla
