#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"

/// Internal: how often lockstep's optimizers write parameters, so that other writes can be recognized.
namespace lockstep::detail {

/// The writes of optimizers to all parameters of a strategy. Thread-safe; each count is used by one replica.
class LOCKSTEP_API ParameterWrites {
 public:
  using Count = std::shared_ptr<uint32_t>;

  /// Returns the count of a parameter, which modules and optimizers share.
  Count of(const at::Tensor& parameter);
  /// Whether a module or an optimizer has the count of a parameter.
  bool knows(const at::Tensor& parameter);

 private:
  std::mutex mutex_;
  std::unordered_map<const c10::TensorImpl*, std::weak_ptr<uint32_t>> counts_;
  /// With more counts than this, those that nobody uses are dropped.
  size_t limit_ = 64;
};

/// The parameters of one replica as one optimizer writes them.
class LOCKSTEP_API OptimizerWrites {
 public:
  OptimizerWrites(ParameterWrites& writes, const std::vector<at::Tensor>& parameters);

  /// Counts all writes during its lifetime as those of the optimizer.
  class Scope {
   public:
    explicit Scope(OptimizerWrites& writes);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    OptimizerWrites& writes_;
  };

 private:
  struct Parameter {
    at::Tensor tensor;
    ParameterWrites::Count count;
    uint32_t before = 0;
  };
  std::vector<Parameter> parameters_;
};

}  // namespace lockstep::detail
