#include "lockstep/train/trainer/model_mode.h"

namespace lockstep::detail {

EvaluationMode::EvaluationMode(const std::vector<std::shared_ptr<ModuleReplicas>>& modules) : modules_(modules) {
  for (const auto& module : modules) {
    modes_.emplace_back();
    for (const auto& part : module->all()[0]->modules()) modes_.back().push_back(part->is_training());
    module->train(false);
  }
}

EvaluationMode::~EvaluationMode() {
  for (size_t m = 0; m < modules_.size(); ++m) {
    for (const auto& replica : modules_[m]->all()) {
      // A module comes before its submodules, whose modes it sets, too.
      const auto parts = replica->modules();
      for (size_t i = 0; i < parts.size(); ++i) parts[i]->train(modes_[m][i]);
    }
  }
}

void set_training(const std::vector<std::shared_ptr<ModuleReplicas>>& modules) {
  for (const auto& module : modules) {
    if (!module->all()[0]->is_training()) module->train(true);
  }
}

}  // namespace lockstep::detail
