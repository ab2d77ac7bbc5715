#include "lockstep/train/runs/run_folder.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <exception>
#include <filesystem>
#include <fstream>
#include <limits>
#include <utility>

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/diagnostics/dump.h"
#include "lockstep/state/file_writer.h"
#include "lockstep/strategy/access.h"
#include "lockstep/strategy/strategy_impl.h"
#include "lockstep/train/callbacks/callbacks.h"
#include "lockstep/train/callbacks/chief_files.h"
#include "lockstep/train/runs/earlier_steps.h"
#include "lockstep/train/runs/git_state.h"
#include "lockstep/train/runs/run_attempts.h"
#include "lockstep/train/runs/run_description.h"
#include "lockstep/train/runs/run_lock.h"
#include "lockstep/train/runs/step_intervals.h"
#include "lockstep/train/tensorboard/event_files.h"
#include "lockstep/train/tensorboard/event_message.h"
#include "lockstep/train/tensorboard/tensorboard_log.h"
#include "lockstep/train/trainer/trainer_impl.h"

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

/// What a training leaves in its folder, beside event files.
constexpr std::array kFiles{"run.json", "metrics.jsonl", "metrics.csv", "steps.jsonl", "collectives.jsonl", "git.diff"};
constexpr std::chrono::seconds kDifferenceLimit{5};
constexpr size_t kMostDifference = 1 << 20;
/// Those that are worth keeping when another training begins.
constexpr std::array kCurves{"metrics.jsonl", "steps.jsonl"};

/// Moves what an earlier training has left to a folder below.
void set_aside(const std::string& folder) {
  const auto has_bytes = [&](const char* name) {
    std::error_code error;
    const auto size = fs::file_size(fs::path(folder) / name, error);
    return !error && size > 0;
  };
  const bool has_curves = std::any_of(kCurves.begin(), kCurves.end(), has_bytes);
  if (!has_curves && !lockstep::tensorboard::has_earlier_events(folder)) return;
  const std::string before = lockstep::tensorboard::folder_for_earlier(folder);
  std::error_code error;
  fs::create_directories(before, error);
  for (const char* const name : kFiles) {
    if (!error && has_bytes(name)) fs::rename(fs::path(folder) / name, fs::path(before) / name, error);
  }
  LOCKSTEP_CHECK_DATA(!error, "[run_folder] the files of an earlier training cannot be moved: folder=", folder,
                      ", to=", before, ", reason=", error.message());
  lockstep::tensorboard::move_event_files(folder, before);
  LOCKSTEP_LOG(Warn) << "[run_folder] the training begins anew; what an earlier one has left is now in " << before;
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
    if (options_.csv) csv_ = csv_log(file("metrics.csv"));
  }

  void on_train_begin(Trainer& trainer) override {
    intervals_.begin(trainer);
    is_training_ = true;
    write_on_chief(trainer, [&] { begin(trainer); });
    if (csv_) csv_->on_train_begin(trainer);
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
    if (trainer.is_chief()) write_epoch(trainer, epoch, logs, examples);
    if (!csv_) return;
    try {
      csv_->on_epoch_end(trainer, epoch, logs);
    } catch (const std::exception&) {  // on all workers, of another type than on the chief
      if (trainer.is_chief()) warn_once(error_text(std::current_exception()));
    }
  }

  void on_train_end(Trainer& trainer, const History& history) override {
    write_line(trainer, intervals_.finish(trainer));
    const bool is_success = history.end == History::End::Finished || history.end == History::End::Stopped;
    is_training_ = false;
    intervals_.stop();
    last_step_ = trainer.step();
    if (!trainer.is_chief()) return;
    end(to_string(history.end), history.reason, is_success ? SessionStatus::Success : SessionStatus::Unknown);
  }

  void on_train_error(Trainer& trainer, const std::string& reason) override {
    intervals_.stop();
    last_step_ = -1;
    if (!std::exchange(is_training_, false) || !trainer.is_chief() || !has_begun_) return;
    end("failed", reason, SessionStatus::Failure);
  }

 private:
  std::string file(const char* name) const { return (fs::path(path_) / name).string(); }

  void begin(Trainer& trainer) {
    std::error_code error;
    fs::create_directories(path_, error);
    LOCKSTEP_CHECK_DATA(!error, "[run_folder] the folder cannot be made: path=", path_, ", reason=", error.message());
    lock_.acquire(path_, earlier_run());
    try {
      begin_locked(trainer, earlier_run());  // read again: the training before may just have ended
    } catch (...) {
      events_.reset();
      lock_.release();
      throw;
    }
    has_begun_ = true;
  }

  void begin_locked(Trainer& trainer, const RunJson& before) {
    const bool wants_events = options_.tensorboard.value_or(lockstep::tensorboard::has_event_messages());
    if (wants_events) lockstep::tensorboard::encode_file_version(0);  // throws where it cannot
    const std::string name = options_.name.empty() ? name_of_folder(path_) : options_.name;
    RunJson run = detail::describe_run(trainer, options_, name, intervals_.devices());
    if (last_step_ == trainer.step() && last_step_ > 0 && run_.is_object()) {  // another `fit` of this trainer
      run = run_;
      detail::set_state(run, "running", "", nullptr);
    } else {
      run = detail::with_attempts(std::move(run), before);
    }
    if (trainer.step() == 0) {
      set_aside(path_);
      write_difference(run);
    }
    keep_lines(trainer);
    std::error_code ignored;
    fs::remove(file("collectives.jsonl"), ignored);  // of an earlier training
    has_warned_ = false;
    if (wants_events) begin_events(trainer);
    detail::replace_file(file("run.json"), detail::json_text(run, 2) + "\n", /*sync=*/false);
    run_ = std::move(run);
  }

  /// How the sources differ from the commit.
  void write_difference(const RunJson& run) const {
    std::error_code ignored;
    fs::remove(file("git.diff"), ignored);
    if (!run["git"].is_object() || !run["git"]["dirty"].get<bool>()) return;
    const auto text = detail::git_difference(fs::current_path(ignored).string(), kDifferenceLimit, kMostDifference);
    if (text) detail::replace_file(file("git.diff"), *text, /*sync=*/false);
  }

  void keep_lines(const Trainer& trainer) {
    const int64_t step = trainer.step();
    earlier_ = detail::earlier_steps(steps_, {step, trainer.epoch(), detail::TrainerSteps::in_epoch(trainer)});
    intervals_.add_earlier(earlier_.seconds);
    metrics_.keep([&](const RunJson& line) { return number_at(line, "epoch") < trainer.epoch(); });
    steps_.keep([&](const RunJson& line) { return number_at(line, "step") <= step; });
    if (earlier_.missing) steps_.append(*earlier_.missing);
  }

  /// Of a line; the largest one where there is none, so that the line is not kept.
  static int64_t number_at(const RunJson& line, const char* name) {
    const auto found = line.find(name);
    const bool is_known = found != line.end() && found->is_number() && std::abs(found->get<double>()) < 0x1p62;
    return is_known ? found->get<int64_t>() : std::numeric_limits<int64_t>::max();
  }

  void begin_events(const Trainer& trainer) {
    events_ = std::make_unique<TensorBoardLog>(path_, trainer.step());
    HyperParameters parameters;
    add_parameters(parameters, "", detail::parse_configuration(options_));
    if (!parameters.empty()) events_->hyper_parameters(parameters);
  }

  RunJson earlier_run() const {
    std::ifstream stored(file("run.json"));
    return stored ? RunJson::parse(stored, nullptr, /*allow_exceptions=*/false) : RunJson();
  }

  void write_epoch(const Trainer& trainer, int64_t epoch, const Logs& logs, int64_t examples) {
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - epoch_begin_;
    RunJson line{{"epoch", epoch},
                 {"step", trainer.step()},
                 {"time", unix_time()},
                 {"seconds", seconds.count() + earlier_.epoch_seconds},
                 {"examples", examples + std::llround(earlier_.epoch_examples)}};
    earlier_ = {};
    for (const auto& [name, value] : logs) line[line.contains(name) ? "log_" + name : name] = json_number(value);
    metrics_.append(line);
    try_events([&] {
      if (!events_) begin_events(trainer);  // again, where there is space now
      events_->add_epoch(trainer.step(), logs, learning_rate_of(trainer));
    });
  }

  void write_line(const Trainer& trainer, const detail::StepIntervals::Result& result) {
    if (!result.ended || !trainer.is_chief()) return;
    const RunJson& line = *result.line;
    steps_.append(line);
    try_events([&] {
      if (!events_) return;
      const int64_t step = line["step"];
      events_->add_step(step, result.loss, learning_rate_of(trainer));
      const double seconds = line["seconds"];
      if (seconds > 0) {
        events_->add_step_scalar("step/examples_per_second", step, line["examples"].get<double>() / seconds);
      }
    });
  }

  /// Event files that cannot be written do not end the training.
  template <class Write>
  void try_events(Write&& write) {
    if (!options_.tensorboard.value_or(lockstep::tensorboard::has_event_messages())) return;
    try {
      write();
    } catch (const c10::Error& error) {
      events_.reset();
      warn_once(error.what_without_backtrace());
    }
  }

  void warn_once(const std::string& reason) {
    if (std::exchange(has_warned_, true)) return;
    LOCKSTEP_LOG(Warn) << "[run_folder] a file could not be written, the training goes on without it: " << reason;
  }

  void end(const std::string& state, const std::string& reason, SessionStatus status) {
    has_begun_ = false;
    detail::set_state(run_, state, reason, detail::iso_time(unix_time()));
    if (const int64_t missing = metrics_.num_missing() + steps_.num_missing()) run_["missing_lines"] = missing;
    if (!detail::write_last_words(file("run.json"), run_, lock_)) {
      warn_once("[run_folder] the end could not be written: path=" + file("run.json"));
    }
    try {
      detail::replace_file(file("collectives.jsonl"), comm::dump_text(state), /*sync=*/false);
    } catch (const c10::Error& error) {
      warn_once(error.what_without_backtrace());
    }
    try_events([&] {
      if (const auto events = std::move(events_)) events->end(status);
    });
    lock_.release();
  }

  std::string path_;
  RunFolderOptions options_;
  detail::StepIntervals intervals_;
  JsonLines metrics_;
  JsonLines steps_;
  std::shared_ptr<Callback> csv_;
  bool is_training_ = false;
  /// The step at which this object's last training has ended; -1 where it failed.
  int64_t last_step_ = 0;
  std::chrono::steady_clock::time_point epoch_begin_;
  /// Of this worker in the running epoch.
  int64_t examples_ = 0;

  // On the worker that writes.
  detail::RunLock lock_;
  RunJson run_;
  bool has_begun_ = false;
  bool has_warned_ = false;
  std::unique_ptr<TensorBoardLog> events_;
  /// What the running epoch had before a restore.
  detail::EarlierSteps earlier_;
};

}  // namespace

std::shared_ptr<Callback> run_folder(const std::string& path, const RunFolderOptions& options) {
  return std::make_shared<RunFolder>(path, options);
}

}  // namespace lockstep::callbacks
