#pragma once

#include <map>
#include <string>
#include <variant>
#include <vector>

namespace lockstep::tensorboard {

/// The hyper-parameters of a training, for TensorBoard's HParams page.
using HyperParameter = std::variant<bool, double, std::string>;
using HyperParameters = std::map<std::string, HyperParameter>;

/// A scalar that the page shows beside them.
struct ShownMetric {
  std::string tag;
  /// The folder of its event file, below that of the hyper-parameters. Empty: the same.
  std::string folder = {};
  /// Empty: the tag.
  std::string display_name = {};
};

/// How a training ended.
enum class SessionStatus { Unknown = 0, Success = 1, Failure = 2, Running = 3 };

}  // namespace lockstep::tensorboard
