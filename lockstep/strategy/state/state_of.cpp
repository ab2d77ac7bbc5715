#include "lockstep/strategy/state/state_of.h"

#include "lockstep/strategy/state/state_object.h"

namespace lockstep::detail {
namespace {

class FunctionState final : public StateObject {
 public:
  FunctionState(std::function<State()> save, std::function<void(const State&)> load)
      : save_(std::move(save)), load_(std::move(load)) {}

  State state() const override { return save_(); }
  void plan_load(LoadPlan::Part part) override {
    part.after([load = load_, state = part.take_all()] { load(state); });
  }

 private:
  std::function<State()> save_;
  std::function<void(const State&)> load_;
};

}  // namespace

std::shared_ptr<StateObject> function_state_object(std::function<State()> save,
                                                   std::function<void(const State&)> load) {
  return std::make_shared<FunctionState>(std::move(save), std::move(load));
}

State state_of_object(const StateObject& object) { return object.state(); }

LoadResult load_object(StateObject& object, const State& state, const LoadOptions& options) {
  LoadPlan plan(state);
  object.plan_load(plan.all());
  return plan.execute(options);
}

}  // namespace lockstep::detail
