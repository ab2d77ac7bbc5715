#include "lockstep/strategy/strategies/one_device.h"

#include "lockstep/device/device_scope.h"
#include "lockstep/strategy/reduce/cross_device_ops.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep {
namespace {

class OneDeviceImpl final : public detail::StrategyImpl {
 public:
  explicit OneDeviceImpl(const std::string& device) : StrategyImpl({find_logical_device(resolve(device))}) {}

  const char* type_name() const override { return "OneDeviceStrategy"; }
  bool distributes_values() const override { return false; }
  const CrossDeviceOps& cross_device_ops() const override { return cross_device_ops_; }
  void update_config(RuntimeConfig&) const override {}

 private:
  ReductionToOneDevice cross_device_ops_;
};

}  // namespace

OneDeviceStrategy::OneDeviceStrategy(const std::string& device) : Strategy(std::make_shared<OneDeviceImpl>(device)) {}

}  // namespace lockstep
