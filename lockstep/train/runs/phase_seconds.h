#pragma once

#include <memory>
#include <string>
#include <vector>

/// Internal: how long replicas were in each part of the steps.
namespace lockstep::detail {

/// The parts: "input", "forward", ...
const std::vector<std::string>& phase_names();

/// The seconds of each part of each local replica since the process began to count.
std::vector<std::vector<double>> phase_seconds(size_t num_replicas);

/// While it lives, the parts are counted.
std::shared_ptr<void> count_phases();

}  // namespace lockstep::detail
