#pragma once

#include <memory>

#include "lockstep/api.h"

namespace lockstep::xla {

/// Whether products of float32 keep full precision. Otherwise TPUs round operands to bfloat16 and GPUs to TF32, which
/// is several times as fast. LibTorch's own switch (`at::globalContext().setAllowTF32CuBLAS`,
/// `setFloat32MatmulPrecision`) decides: full precision unless it allows less.
LOCKSTEP_API bool uses_full_precision();

/// Whether products of float32, matrix products and convolutions with their derivatives, get operands that are rounded
/// to bfloat16. Their sums and results are float32. It is part of the trace: the graph has the conversions.
LOCKSTEP_API bool narrows_products();

/// Sets it for the calling thread and for the threads on which LibTorch runs backward passes for it, during its
/// lifetime. Scopes end in reverse order, on the thread that made them.
class LOCKSTEP_API NarrowProductsScope {
 public:
  explicit NarrowProductsScope(bool narrows);
  ~NarrowProductsScope();
  NarrowProductsScope(const NarrowProductsScope&) = delete;
  NarrowProductsScope& operator=(const NarrowProductsScope&) = delete;

 private:
  struct Guard;
  std::unique_ptr<Guard> guard_;
};

}  // namespace lockstep::xla
