#include "tools/train/observers.h"

#include "lockstep/train/callbacks/callbacks.h"

namespace lockstep::tools {

std::vector<std::shared_ptr<Callback>> make_observers(const TrainPlan& /*plan*/, const std::string& folder) {
  return {callbacks::json_log(folder + "/metrics.jsonl"), callbacks::csv_log(folder + "/metrics.csv")};
}

}  // namespace lockstep::tools
