#include "tools/train/observers.h"

#include "lockstep/train/runs/run_folder.h"

namespace lockstep::tools {

std::vector<std::shared_ptr<Callback>> make_observers(const TrainPlan& plan, const std::string& folder) {
  return {callbacks::run_folder(folder, {.configuration = plan.settings.json().dump(),
                                         .seed = static_cast<uint64_t>(plan.settings.integer("seed"))})};
}

}  // namespace lockstep::tools
