// Callbacks that write a line for each epoch.

#include <cmath>
#include <cstdio>
#include <fstream>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/state/file_writer.h"
#include "lockstep/train/callbacks/callbacks.h"
#include "lockstep/train/callbacks/chief_files.h"
#include "lockstep/train/trainer/trainer.h"

namespace lockstep::callbacks {
namespace {

std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.9g", value);
  return text;
}

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char letter : text) quoted += letter == '"' ? "\"\"" : std::string(1, letter);
  return quoted + "\"";
}

void append_to_file(const std::string& path, const std::string& line) {
  std::ofstream file(path, std::ios::app);
  file << line << std::flush;
  LOCKSTEP_CHECK_DATA(file.good(), "[callbacks] the file cannot be written: path=", path);
}

/// Writes the epochs so far at the beginning, and a line at the end of each one.
class EpochLog : public Callback {
 public:
  explicit EpochLog(std::string path) : path_(std::move(path)) {
    LOCKSTEP_CHECK_VALUE(!path_.empty(), "[callbacks] the file must have a name");
  }

  void on_train_begin(Trainer& trainer) override {
    write_on_chief(trainer, [&] { rewrite(trainer.history().epochs); });
  }

  void on_epoch_end(Trainer& trainer, int64_t epoch, Logs& logs) override {
    write_on_chief(trainer, [&] {
      if (!std::exchange(may_be_torn_, true) && fits(logs)) {
        append_to_file(path_, line(epoch, logs));
      } else {
        std::vector<Logs> all = trainer.history().epochs;
        all.push_back(logs);
        rewrite(all);
      }
      may_be_torn_ = false;
    });
  }

 protected:
  /// What the file has before the lines of these epochs.
  virtual std::string header(const std::vector<Logs>& epochs) = 0;
  virtual std::string line(int64_t epoch, const Logs& logs) const = 0;
  /// Whether a line of these logs can follow the others.
  virtual bool fits(const Logs& logs) const = 0;

 private:
  void rewrite(const std::vector<Logs>& epochs) {
    std::string text = header(epochs);
    for (size_t epoch = 0; epoch < epochs.size(); ++epoch) text += line(static_cast<int64_t>(epoch), epochs[epoch]);
    detail::replace_file(path_, text, /*sync=*/false);
  }

  std::string path_;
  /// Whether the last line could not be written.
  bool may_be_torn_ = false;
};

class CsvLog final : public EpochLog {
 public:
  using EpochLog::EpochLog;

 protected:
  std::string header(const std::vector<Logs>& epochs) override {
    columns_.clear();
    for (const Logs& logs : epochs) {
      for (const auto& [name, value] : logs) columns_.insert(name);
    }
    if (epochs.empty()) return "";
    std::string text = "epoch";
    for (const std::string& name : columns_) text += "," + csv_cell(name);
    return text + "\n";
  }

  /// A log that an epoch does not have is an empty cell.
  std::string line(int64_t epoch, const Logs& logs) const override {
    std::string text = std::to_string(epoch);
    for (const std::string& name : columns_) {
      const auto found = logs.find(name);
      text += found == logs.end() ? "," : "," + number_text(found->second);
    }
    return text + "\n";
  }

  bool fits(const Logs& logs) const override {
    for (const auto& [name, value] : logs) {
      if (!columns_.contains(name)) return false;
    }
    return true;
  }

 private:
  std::set<std::string> columns_;
};

class JsonLog final : public EpochLog {
 public:
  using EpochLog::EpochLog;

 protected:
  std::string header(const std::vector<Logs>& /*epochs*/) override { return ""; }

  /// JSON has no infinite numbers and no NaN: they are null.
  std::string line(int64_t epoch, const Logs& logs) const override {
    nlohmann::ordered_json object{{"epoch", epoch}};
    for (const auto& [name, value] : logs) {
      if (std::isfinite(value)) {
        object[name] = value;
      } else {
        object[name] = nullptr;
      }
    }
    return object.dump() + "\n";
  }

  bool fits(const Logs& /*logs*/) const override { return true; }
};

}  // namespace

std::shared_ptr<Callback> csv_log(const std::string& path) { return std::make_shared<CsvLog>(path); }

std::shared_ptr<Callback> json_log(const std::string& path) { return std::make_shared<JsonLog>(path); }

}  // namespace lockstep::callbacks
