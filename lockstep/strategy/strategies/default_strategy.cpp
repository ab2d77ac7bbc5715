#include <atomic>

#include "lockstep/device/logical_devices.h"
#include "lockstep/strategy/context_frame.h"
#include "lockstep/strategy/reduce/cross_device_ops.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep::detail {
namespace {

/// One replica without a device of its own: code behaves as without lockstep.
class DefaultImpl final : public StrategyImpl {
 public:
  DefaultImpl() : StrategyImpl({list_logical_devices("CPU").front()}) {}

  const char* type_name() const override { return "default strategy"; }
  bool distributes_values() const override { return false; }
  bool is_default() const override { return true; }
  const CrossDeviceOps& cross_device_ops() const override { return cross_device_ops_; }
  void update_config(RuntimeConfig&) const override {}

  /// Calls the function on the calling thread, with its device and random numbers. Any number may run at once.
  void call_for_each_replica(c10::function_ref<void(int)> body) override {
    static std::atomic<uint64_t> num_runs{0};
    ContextGuard context({this, 0, 0, ++num_runs, /*is_default=*/true});
    body(0);
  }

 private:
  ReductionToOneDevice cross_device_ops_;
};

}  // namespace

StrategyImpl& default_strategy() {
  static const auto strategy = std::make_shared<DefaultImpl>();
  return *strategy;
}

}  // namespace lockstep::detail
