#include "lockstep/train/runs/run_folder.h"

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <utility>

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/diagnostics/dump.h"
#include "lockstep/state/file_writer.h"
#include "lockstep/strategy/access.h"
#include "lockstep/strategy/strategy_impl.h"
#include "lockstep/train/callbacks/chief_files.h"
#include "lockstep/train/runs/run_description.h"
#include "lockstep/train/runs/step_intervals.h"
#include "lockstep/train/tensorboard/event_message.h"
#include "lockstep/train/tensorboard/tensorboard_log.h"

namespace lockstep::callbacks {
namespace {

namespace fs = std::filesystem;
using detail::json_number;
using detail::JsonLines;
using detail::RunJson;
using detail::unix_time;
using lockstep::tensorboard::HyperParameters;
using lockstep::tensorboard::learning_rate_of;
using lockstep::tensorboard::SessionStatus;
using lockstep::tensorboard::TensorBoardLog;

/// Members of objects inside objects are "outer.inner"; lists are texts.
void add_parameters(HyperParameters& parameters, const std::string& parent, const RunJson& object) {
  for (const auto& [key, value] : object.items()) {
    const std::string name = parent.empty() ? key : parent + "." + key;
    if (value.is_object()) {
      add_parameters(parameters, name, value);
    } else if (value.is_boolean()) {
      parameters[name] = value.get<bool>();
    } else if (value.is_number()) {
      parameters[name] = value.get<double>();
    } else {
      parameters[name] = value.is_string() ? value.get<std::string>() : detail::json_text(value);
    }
  }
}

/// The last part of the path that is a name: "b" of "a/b/" and of "a/b".
std::string name_of_folder(const std::string& path) {
  const fs::path whole = fs::path(path).lexically_normal();
  return whole.has_filename() ? whole.filename().string() : whole.parent_path().filename().string();
}

/// A number of each worker, summed. All workers call it.
int64_t sum_of_workers(const Trainer& trainer, int64_t own) {
  const detail::StrategyImpl& strategy = detail::Access::impl(trainer.strategy());
  if (strategy.num_workers() == 1) return own;
  return strategy.worker_group()->all_reduce(at::scalar_tensor(own, at::kLong)).item<int64_t>();
}

class RunFolder final : public Callback {
 public:
  RunFolder(const std::string& path, const RunFolderOptions& options)
      : path_(path),
        options_(options),
        intervals_(options.line_every),
        metrics_(file("metrics.jsonl")),
        steps_(file("steps.jsonl")) {
    LOCKSTEP_CHECK_VALUE(!path_.empty(), "[run_folder] the folder must have a name");
    LOCKSTEP_CHECK_VALUE(options_.line_every > 0 && std::isfinite(options_.line_every),
                         "[run_folder] line_every must be a positive number: line_every=", options_.line_every);
    detail::parse_configuration(options_);
  }

  void on_train_begin(Trainer& trainer) override {
    intervals_.begin(trainer);
    is_training_ = true;
    write_on_chief(trainer, [&] { begin(trainer); });
  }

  void on_epoch_begin(Trainer& /*trainer*/, int64_t /*epoch*/) override {
    epoch_begin_ = std::chrono::steady_clock::now();
    examples_ = 0;
  }

  void on_step_end(Trainer& trainer, int64_t /*step*/) override {
    for (const std::vector<Batch>& batches : trainer.last_batches()) {
      for (const Batch& batch : batches) examples_ += batch.rows();
    }
    write_line(trainer, intervals_.end_step(trainer));
  }

  void on_evaluate_begin(Trainer& /*trainer*/) override {
    if (is_training_) intervals_.pause();
  }
  void on_evaluate_end(Trainer& /*trainer*/, const Logs& /*logs*/) override {
    if (is_training_) intervals_.resume();
  }

  void on_epoch_end(Trainer& trainer, int64_t epoch, Logs& logs) override {
    const int64_t examples = sum_of_workers(trainer, examples_);
    write_on_chief(trainer, [&] {
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - epoch_begin_;
      RunJson line{{"epoch", epoch},
                   {"step", trainer.step()},
                   {"time", unix_time()},
                   {"seconds", seconds.count()},
                   {"examples", examples}};
      for (const auto& [name, value] : logs) line[line.contains(name) ? "log_" + name : name] = json_number(value);
      metrics_.append(line);
      if (events_) events_->add_epoch(trainer.step(), logs, learning_rate_of(trainer));
    });
  }

  void on_train_end(Trainer& trainer, const History& history) override {
    write_line(trainer, intervals_.finish(trainer));
    const bool is_success = history.end == History::End::Finished || history.end == History::End::Stopped;
    write_on_chief(trainer, [&] {
      end(to_string(history.end), history.reason, is_success ? SessionStatus::Success : SessionStatus::Unknown);
    });
    is_training_ = false;
    intervals_.stop();
  }

  void on_train_error(Trainer& trainer, const std::string& reason) override {
    intervals_.stop();
    if (!std::exchange(is_training_, false) || !trainer.is_chief() || !run_.is_object()) return;
    end("failed", reason, SessionStatus::Failure);
  }

 private:
  std::string file(const char* name) const { return (fs::path(path_) / name).string(); }

  void write_run() const { detail::replace_file(file("run.json"), detail::json_text(run_, 2) + "\n", /*sync=*/false); }

  void begin(const Trainer& trainer) {
    std::error_code error;
    fs::create_directories(path_, error);
    LOCKSTEP_CHECK_DATA(!error, "[run_folder] the folder cannot be made: path=", path_, ", reason=", error.message());
    fs::remove(file("collectives.jsonl"), error);  // of an earlier training
    const bool is_first = !run_.is_object();
    const RunJson before = is_first ? earlier_run() : run_;
    const std::string name = options_.name.empty() ? name_of_folder(path_) : options_.name;
    run_ = detail::describe_run(trainer, options_, name, intervals_.devices());
    if (trainer.step() > 0 && before.is_object() && before.contains("created")) run_["created"] = before["created"];
    if (!is_first) run_["resumed_from_step"] = before["resumed_from_step"];
    metrics_.keep([&](const RunJson& line) { return line.value("epoch", int64_t{-1}) < trainer.epoch(); });
    steps_.keep([&](const RunJson& line) { return line.value("step", int64_t{-1}) <= trainer.step(); });
    write_run();
    if (options_.tensorboard.value_or(lockstep::tensorboard::has_event_messages())) {
      events_ = std::make_unique<TensorBoardLog>(path_, trainer.step());
      HyperParameters parameters;
      add_parameters(parameters, "", run_["configuration"]);
      if (!parameters.empty()) events_->hyper_parameters(parameters);
    }
  }

  RunJson earlier_run() const {
    std::ifstream stored(file("run.json"));
    return stored ? RunJson::parse(stored, nullptr, /*allow_exceptions=*/false) : RunJson();
  }

  void write_line(const Trainer& trainer, const detail::StepIntervals::Result& result) {
    if (!result.ended) return;
    write_on_chief(trainer, [&] {
      const RunJson& line = *result.line;
      steps_.append(line);
      if (!events_) return;
      const int64_t step = line["step"];
      events_->add_step(step, result.loss, learning_rate_of(trainer));
      const double seconds = line["seconds"];
      if (seconds > 0) {
        events_->add_step_scalar("step/examples_per_second", step, line["examples"].get<double>() / seconds);
      }
    });
  }

  void end(const char* state, const std::string& reason, SessionStatus status) {
    run_["state"] = state;
    run_["reason"] = reason;
    run_["ended"] = detail::iso_time(unix_time());
    write_run();
    detail::replace_file(file("collectives.jsonl"), comm::dump_text(state), /*sync=*/false);
    if (const auto events = std::move(events_)) events->end(status);
  }

  std::string path_;
  RunFolderOptions options_;
  detail::StepIntervals intervals_;
  JsonLines metrics_;
  JsonLines steps_;
  /// On the worker that writes: run.json, and whether and where events go.
  RunJson run_;
  std::unique_ptr<TensorBoardLog> events_;
  bool is_training_ = false;
  std::chrono::steady_clock::time_point epoch_begin_;
  /// Of this worker in the running epoch.
  int64_t examples_ = 0;
};

}  // namespace

std::shared_ptr<Callback> run_folder(const std::string& path, const RunFolderOptions& options) {
  return std::make_shared<RunFolder>(path, options);
}

}  // namespace lockstep::callbacks
