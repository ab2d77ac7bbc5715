#include <atomic>

#include "lockstep/device/logical_devices.h"
#include "lockstep/strategy/context.h"
#include "lockstep/strategy/cross_device_ops.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep::detail {
namespace {

/// One replica, no device of its own: everything is as without lockstep.
class DefaultImpl final : public StrategyImpl {
 public:
  DefaultImpl() : StrategyImpl({list_logical_devices("CPU").front()}) {}

  const char* type_name() const override { return "default strategy"; }
  bool distributes_values() const override { return false; }
  bool is_default() const override { return true; }
  const CrossDeviceOps& cross_device_ops() const override { return cross_device_ops_; }
  void update_config(RuntimeConfig&) const override {}

  /// Calls the function where it is: no thread, device or random numbers of its own, and any number at once.
  void call_for_each_replica(c10::function_ref<void(int)> body) override {
    static std::atomic<uint64_t> num_runs{0};
    ContextGuard context({this, 0, 0, ++num_runs});
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
