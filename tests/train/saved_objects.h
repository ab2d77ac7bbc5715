#pragma once

#include <map>
#include <memory>
#include <string>

#include <torch/types.h>

#include "lockstep/base/log.h"
#include "lockstep/strategy/state/state_object.h"
#include "tests/support/message_of.h"
#include "tests/support/test_folder.h"

/// Objects with state for tests of checkpoints.
namespace lockstep::tests {

/// Tensors and numbers under names.
class SavedValues final : public detail::StateObject {
 public:
  State state() const override {
    State state;
    for (const auto& [name, tensor] : tensors) state.set(name, tensor);
    for (const auto& [name, number] : numbers) state.set(name, number);
    for (const auto& [name, text] : texts) state.set(name, text);
    return state;
  }
  void plan_load(detail::LoadPlan::Part part) override {
    for (const auto& [name, tensor] : tensors) part.read(name, tensor);
    for (auto& [name, number] : numbers) {
      const double loaded = part.number_or(name, 0);
      part.after([&target = number, loaded] { target = loaded; });
    }
    for (auto& [name, text] : texts) {
      const std::string loaded = part.text_or(name, "");
      part.after([&target = text, loaded] { target = loaded; });
    }
  }

  std::map<std::string, torch::Tensor> tensors = {};
  std::map<std::string, double> numbers = {};
  std::map<std::string, std::string> texts = {};
};

/// The lines of the log for as long as it lives.
class LogLines {
 public:
  LogLines() {
    log::set_sink([this](log::Level, std::string_view line) { text_ += std::string(line) + "\n"; });
  }
  ~LogLines() { log::set_sink({}); }
  LogLines(const LogLines&) = delete;
  LogLines& operator=(const LogLines&) = delete;

  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace lockstep::tests
