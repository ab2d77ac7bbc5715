#include "tests/golden/later.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace lockstep::golden {
namespace {

struct Later {
  std::string_view what;
  bool (*applies)(const Case&);
};

bool is_about_strategy(const Case& test_case, std::string_view name) {
  return test_case.text("strategy").starts_with(name) || test_case.call.starts_with(name);
}

bool is_about_datasets(const Case& test_case) {
  static constexpr std::array<std::string_view, 11> kCalls{"distribute_dataset",
                                                           "distribute_datasets_from_function",
                                                           "next(iterator)",
                                                           "for loop in a function",
                                                           "enumerate in a function",
                                                           "AutoShardPolicy",
                                                           "SHARD_HINT",
                                                           "InputContext",
                                                           "InputOptions",
                                                           "dataset element_spec",
                                                           "from function element_spec"};
  for (std::string_view field : {"call", "case", "name", "value"}) {
    if (std::count(kCalls.begin(), kCalls.end(), test_case.text(field)) > 0) return true;
  }
  return false;
}

constexpr std::array kLater{
    Later{"CentralStorageStrategy", [](const Case& c) { return is_about_strategy(c, "CentralStorage"); }},
    Later{"MultiWorkerMirroredStrategy", [](const Case& c) { return is_about_strategy(c, "MultiWorker"); }},
    Later{"ParameterServerStrategy", [](const Case& c) { return is_about_strategy(c, "ParameterServer"); }},
    Later{"TPUStrategy", [](const Case& c) { return is_about_strategy(c, "TPU"); }},
    Later{"Trainer (keras_*)", [](const Case& c) { return c.call.starts_with("keras_"); }},
    Later{"distributed datasets", is_about_datasets},
};

}  // namespace

std::string waits_for(const Case& test_case) {
  for (const Later& later : kLater) {
    if (later.applies(test_case)) return std::string(later.what);
  }
  return "";
}

}  // namespace lockstep::golden
