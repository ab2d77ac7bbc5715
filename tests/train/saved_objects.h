#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "lockstep/base/log.h"
#include "lockstep/strategy/state/state_object.h"

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

/// A folder that is removed at the end.
class TestFolder {
 public:
  TestFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "lockstep_train_XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

  /// The names in it, ordered.
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  std::string path_;
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

/// Returns the message of what `call` throws as `Error`; fails where it throws nothing.
template <class Error, class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what_without_backtrace();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace lockstep::tests
