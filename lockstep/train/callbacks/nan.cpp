#include <cmath>
#include <filesystem>

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/state/weights.h"
#include "lockstep/strategy/access.h"
#include "lockstep/strategy/strategy_impl.h"
#include "lockstep/train/callbacks/callbacks.h"
#include "lockstep/train/trainer/trainer.h"

namespace lockstep::callbacks {
namespace {

/// The batches of one update of this worker.
struct KeptBatches {
  int64_t step = 0;
  std::vector<std::vector<Batch>> micro;
};

void add_tensors(State& state, const std::string& parent, const std::vector<at::Tensor>& tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    state.set(c10::str(parent, ".", i), tensors[i].detach().cpu().contiguous());
  }
}

State state_of_batches(const std::vector<KeptBatches>& kept) {
  State state;
  for (const KeptBatches& update : kept) {
    for (size_t m = 0; m < update.micro.size(); ++m) {
      for (size_t r = 0; r < update.micro[m].size(); ++r) {
        const Batch& batch = update.micro[m][r];
        const std::string parent = c10::str("step", update.step, ".batch", m, ".replica", r);
        add_tensors(state, parent + ".input", batch.inputs);
        add_tensors(state, parent + ".target", batch.targets);
        if (batch.weights) state.set(parent + ".weights", batch.weights->detach().cpu().contiguous());
      }
    }
  }
  return state;
}

class TerminateOnNan final : public Callback {
 public:
  explicit TerminateOnNan(const NanOptions& options) : options_(options) {
    LOCKSTEP_CHECK_VALUE(options.every_steps >= 1,
                         "[terminate_on_nan] every_steps must be at least 1: every_steps=", options.every_steps);
  }

  void on_step_end(Trainer& trainer, int64_t step) override {
    if (!options_.folder.empty()) kept_.push_back({step, trainer.last_batches()});
    if (step % options_.every_steps != 0) return;
    const double loss = trainer.step_loss();
    if (!std::isfinite(loss)) {
      trainer.stop(c10::str("the loss is ", loss, " after step ", step, write(trainer, step)), /*save=*/false);
    }
    kept_.clear();
  }

 private:
  std::string write(const Trainer& trainer, int64_t step) const {
    if (options_.folder.empty()) return "";
    const int worker = detail::Access::impl(trainer.strategy()).worker();
    std::filesystem::create_directories(options_.folder);
    const std::string path = c10::str(options_.folder, "/nan_step", step, "_worker", worker, ".safetensors");
    save_safetensors(state_of_batches(kept_), path);
    LOCKSTEP_LOG(Error) << "[terminate_on_nan] the loss is not finite after step " << step << "; the batches are in "
                        << path;
    return "; the batches are in " + path;
  }

  NanOptions options_;
  std::vector<KeptBatches> kept_;
};

}  // namespace

std::shared_ptr<Callback> terminate_on_nan(const NanOptions& options) {
  return std::make_shared<TerminateOnNan>(options);
}

}  // namespace lockstep::callbacks
