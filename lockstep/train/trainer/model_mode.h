#pragma once

#include <memory>
#include <vector>

#include "lockstep/strategy/optimizer/module.h"

/// Internal: training and evaluation mode of models.
namespace lockstep::detail {

/// While it lives, modules are in evaluation mode; afterwards each submodule has the mode that it had.
class EvaluationMode {
 public:
  explicit EvaluationMode(const std::vector<std::shared_ptr<ModuleReplicas>>& modules);
  ~EvaluationMode();
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  const std::vector<std::shared_ptr<ModuleReplicas>>& modules_;
  /// For each module, and each of its submodules: whether it trains.
  std::vector<std::vector<bool>> modes_;
};

/// Sets modules that are in evaluation mode as a whole to training mode. A module that trains keeps the modes of its
/// submodules.
void set_training(const std::vector<std::shared_ptr<ModuleReplicas>>& modules);

}  // namespace lockstep::detail
