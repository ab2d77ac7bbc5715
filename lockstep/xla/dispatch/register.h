#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "lockstep/api.h"

/// Internal: kernels of LibTorch's dispatcher for the device `xla`.
namespace lockstep::xla {

/// Registers all kernels, once, for the lifetime of the process.
void register_device();

/// Runs a call on the CPU and uploads the results, for functions without a lowering. Counted, and logged once for each
/// function.
void fall_back(const c10::OperatorHandle& op, torch::jit::Stack* stack);

/// The index of the device that a call computes on: that of its first lazy tensor or `device` argument, or the current
/// one.
int device_index_of(const c10::IValue* arguments, size_t count);

/// Which arguments a function writes, and which of them each result is (-1 for a new tensor).
struct Aliases {
  explicit Aliases(const c10::FunctionSchema& schema);
  c10::SmallVector<int, 3> written;
  c10::SmallVector<int, 3> returned;
};

/// Kernels of functions that do more than compute values from values: views, copies, reads.
struct SpecialKernel {
  const char* name;
  const char* overload;
  void (*run)(const c10::OperatorHandle&, torch::jit::Stack*);
};
c10::ArrayRef<SpecialKernel> special_kernels();
/// Kernels that replace compositions of LibTorch above autograd; they have derivatives of their own.
c10::ArrayRef<SpecialKernel> recurrent_kernels();

}  // namespace lockstep::xla
