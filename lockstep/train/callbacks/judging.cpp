// Callbacks that judge an epoch by one of its logs.

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/state/weights.h"
#include "lockstep/train/callbacks/callbacks.h"
#include "lockstep/train/callbacks/chief_files.h"
#include "lockstep/train/callbacks/monitor.h"
#include "lockstep/train/trainer/trainer.h"

namespace lockstep::callbacks {
namespace {

class EarlyStopping final : public Callback {
 public:
  explicit EarlyStopping(const EarlyStoppingOptions& options)
      : monitor_({options.monitor, options.larger_is_better, options.min_delta}),
        patience_(options.patience),
        start_epoch_(options.start_epoch) {
    LOCKSTEP_CHECK_VALUE(patience_ >= 0, "[early_stopping] patience must not be negative: patience=", patience_);
  }

  /// A restored training that was stopped stays so; another `fit` judges anew.
  void on_train_begin(Trainer& trainer) override {
    if (!std::exchange(is_restored_, false)) num_bad_ = 0;
    judge(trainer);
  }

  void on_epoch_end(Trainer& trainer, int64_t epoch, Logs& logs) override {
    const auto value = monitor_.value(logs);
    if (!value || epoch < start_epoch_) return;
    num_bad_ = monitor_.improves(*value) ? 0 : num_bad_ + 1;
    judge(trainer);
  }

  State state() const override {
    State state = monitor_.state();
    state.set("num_bad", State::Value(num_bad_));
    return state;
  }
  void load_state(const State& state) override {
    monitor_.load_state(state);
    num_bad_ = state.integer("num_bad");
    is_restored_ = true;
  }

 private:
  void judge(Trainer& trainer) const {
    if (num_bad_ < std::max<int64_t>(patience_, 1)) return;
    trainer.stop(
        c10::str(monitor_.name(), " has not become better in ", num_bad_, num_bad_ == 1 ? " epoch" : " epochs"));
  }

  Monitor monitor_;
  int64_t patience_;
  int64_t start_epoch_;
  int64_t num_bad_ = 0;
  bool is_restored_ = false;
};

/// Copies of all tensors: where other workers hold a part, all of them call it.
State read_tensors_of(const State& state) {
  State copies;
  for (const auto& [name, value] : state) {
    if (const auto* const tensor = std::get_if<StateTensor>(&value)) {
      copies.set(name, tensor->read());
    } else {
      copies.set(name, value);
    }
  }
  return copies;
}

class BestModel final : public Callback {
 public:
  BestModel(std::string path, const MonitorOptions& options) : path_(std::move(path)), monitor_(options) {
    LOCKSTEP_CHECK_VALUE(!path_.empty(), "[best_model] the file must have a name");
  }

  void on_epoch_end(Trainer& trainer, int64_t /*epoch*/, Logs& logs) override {
    const auto value = monitor_.value(logs);
    if (!value || !monitor_.improves(*value)) return;
    const State best = read_tensors_of(trainer.model_state());
    write_on_chief(trainer, [&] { save_safetensors(best, path_); });
  }

  State state() const override { return monitor_.state(); }
  void load_state(const State& state) override { monitor_.load_state(state); }

 private:
  std::string path_;
  Monitor monitor_;
};

PlateauOptions with_mode_of(const Monitor& monitor, PlateauOptions options) {
  if (monitor.larger_is_better()) options.mode = PlateauOptions::Mode::Max;
  return options;
}

class ReduceOnPlateau final : public Callback {
 public:
  ReduceOnPlateau(const std::string& name, const PlateauOptions& options)
      : monitor_({.monitor = name}), options_(with_mode_of(monitor_, options)), judge_(options_) {}

  void on_epoch_end(Trainer& trainer, int64_t epoch, Logs& logs) override {
    const auto value = monitor_.value(logs);
    if (!value || !judge_.step(*value)) return;
    const double before = trainer.lr();
    const double after = std::max(before * options_.factor, options_.min_lr);
    if (before - after <= options_.eps) return;
    trainer.multiply_lr(after / before);
    LOCKSTEP_LOG(Info) << "epoch " << epoch << ": the learning rates are multiplied by " << after / before;
  }

  State state() const override { return judge_.state(); }
  void load_state(const State& state) override { judge_.load_state(state); }

 private:
  Monitor monitor_;
  PlateauOptions options_;
  PlateauJudge judge_;
};

}  // namespace

std::shared_ptr<Callback> early_stopping(const EarlyStoppingOptions& options) {
  return std::make_shared<EarlyStopping>(options);
}

std::shared_ptr<Callback> best_model(const std::string& path, const MonitorOptions& options) {
  return std::make_shared<BestModel>(path, options);
}

std::shared_ptr<Callback> reduce_on_plateau(const std::string& monitor, const PlateauOptions& options) {
  return std::make_shared<ReduceOnPlateau>(monitor, options);
}

}  // namespace lockstep::callbacks
