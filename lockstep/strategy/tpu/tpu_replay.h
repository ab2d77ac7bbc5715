#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "lockstep/strategy/step_replay.h"
#include "lockstep/strategy/tpu/tpu_impl.h"
#include "lockstep/xla/engine/replay.h"

namespace lockstep::detail {

/// Inside: replays pure steps of a TPUStrategy. Calls whose arguments have other sizes, and other modes and options,
/// are other steps.
class TPUReplay final : public StepReplay {
 public:
  explicit TPUReplay(TPUImpl& strategy) : strategy_(strategy) {}

  Tensors placed(const Tensors& arguments) override;
  bool replay(const Tensors& arguments, const std::string& other_arguments, Tensors& results) override;
  void begin_run(const Tensors& arguments, const std::string& other_arguments) override;
  void end_run(const Tensors& results) override;
  void run_failed() override;
  bool is_ready() const override { return refusal_.empty() && current_ != nullptr && current_->is_ready(); }
  std::string why_not() const override;
  void refuse(const std::string& why) override { refusal_ = why; }

 private:
  xla::Replay& find(const Tensors& arguments, const std::string& other_arguments);

  TPUImpl& strategy_;
  std::map<std::string, std::unique_ptr<xla::Replay>> steps_;
  xla::Replay* current_ = nullptr;
  std::string refusal_;
  /// Held while the function is traced.
  std::optional<std::unique_lock<std::recursive_mutex>> turn_;
};

}  // namespace lockstep::detail
