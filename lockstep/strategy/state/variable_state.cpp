#include <ATen/ATen.h>

#include "lockstep/strategy/access.h"
#include "lockstep/strategy/run_replicas.h"
#include "lockstep/strategy/state/copy_tensors.h"
#include "lockstep/strategy/state/state_object.h"
#include "lockstep/strategy/state/state_of.h"
#include "lockstep/strategy/state/worker_pieces.h"
#include "lockstep/strategy/strategy_impl.h"
#include "lockstep/strategy/variable/variable.h"
#include "lockstep/strategy/variable/variable_impl.h"

namespace lockstep {
namespace detail {
namespace {

constexpr const char* kValue = "value";
constexpr const char* kCopies = "copies";

/// A variable has one value. One whose copies differ (ON_READ) also has its copies, so that with the same number of
/// replicas each takes its own again.
class VariableState final : public StateObject {
 public:
  explicit VariableState(Variable variable) : variable_(std::move(variable)) {}

  State state() const override {
    check_cross_replica(*impl().strategy, "Variable::state", "call it outside of `run`");
    State state;
    if (!has_copies()) {
      state.set(kValue, impl().components[0]);
      return state;
    }
    state.set(kValue, variable_.read_value());
    StateTensor copies;
    copies.dtype = impl().components[0].scalar_type();
    copies.sizes = sizes_of_copies();
    for (int i = 0; i < impl().num_components(); ++i) {
      copies.pieces.push_back({begin_of(i), impl().components[static_cast<size_t>(i)].detach().contiguous()});
    }
    if (impl().strategy->num_workers() > 1) gather_from_workers(impl().strategy, copies);
    state.set(kCopies, copies);
    return state;
  }

  void plan_load(LoadPlan::Part part) override {
    check_cross_replica(*impl().strategy, "Variable::load_state", "load it outside of `run`");
    if (!has_copies()) {
      if (part.has(kCopies)) part.ignore(kCopies);
      read_into(part, kValue, impl().components[0]);
      part.after([self = *this] { self.take_value(); });
      return;
    }
    const std::vector<int64_t> sizes = sizes_of_copies();
    const State::Value* const saved = part.find(kCopies);
    const auto* const copies = saved == nullptr ? nullptr : std::get_if<StateTensor>(saved);
    if (copies != nullptr && copies->sizes == sizes) {
      plan_copies(part, sizes);
    } else {
      if (saved != nullptr) part.ignore(kCopies);
      plan_total(part);
    }
  }

  std::shared_ptr<StrategyImpl> strategy() const override { return impl().strategy; }

 private:
  const VariableImpl& impl() const { return Access::impl(variable_); }
  bool has_copies() const { return impl().distributed && impl().on_read() && !impl().central; }
  int64_t begin_of(int component) const {
    return impl().strategy->global_replica(component) * impl().components[0].numel();
  }

  std::vector<int64_t> sizes_of_copies() const {
    std::vector<int64_t> sizes = impl().components[0].sizes().vec();
    sizes.insert(sizes.begin(), impl().strategy->num_replicas_in_sync());
    return sizes;
  }

  /// All copies take the first one.
  void take_value() const {
    std::vector<TensorCopy> copies;
    for (size_t i = 1; i < impl().components.size(); ++i) {
      copies.push_back({impl().components[0], impl().components[i]});
    }
    copy_tensors(copies);
    impl().refresh();
    bump_versions(impl().components);
    if (impl().central) bump_versions(impl().seen());
  }

  void plan_copies(LoadPlan::Part& part, const std::vector<int64_t>& sizes) const {
    const at::Tensor& first = impl().components[0];
    const std::vector<int64_t> own_sizes = first.sizes().vec();
    part.want_tensor(kValue, first.scalar_type(), &own_sizes);
    auto loaded = std::make_shared<std::vector<at::Tensor>>();
    part.read(kCopies, first.scalar_type(), sizes, [self = *this, loaded] {
      std::vector<StatePiece> targets;
      for (int i = 0; i < self.impl().num_components(); ++i) {
        loaded->push_back(at::empty(self.impl().components[0].sizes(), self.impl().components[0].scalar_type()));
        targets.push_back({self.begin_of(i), loaded->back()});
      }
      return targets;
    });
    part.after([self = *this, loaded] { self.take_each(*loaded); });
  }

  /// Of another number of replicas, or of a plain tensor. The first replica takes a sum, so that it stays exactly what
  /// it was; every replica takes a mean.
  void plan_total(LoadPlan::Part& part) const {
    const at::Tensor total = at::empty(impl().components[0].sizes(), impl().components[0].scalar_type());
    part.read(kValue, total);
    part.after([self = *this, total] {
      std::vector<at::Tensor> parts;
      const bool is_sum = self.impl().options.aggregation == VariableAggregation::Sum;
      for (int i = 0; i < self.impl().num_components(); ++i) {
        parts.push_back(is_sum && self.impl().strategy->global_replica(i) != 0 ? at::zeros_like(total) : total);
      }
      self.take_each(parts);
    });
  }

  void take_each(const std::vector<at::Tensor>& values) const {
    std::vector<TensorCopy> copies;
    for (size_t i = 0; i < values.size(); ++i) copies.push_back({values[i], impl().components[i]});
    copy_tensors(copies);
    bump_versions(impl().components);
  }

  Variable variable_;
};

}  // namespace
}  // namespace detail

std::shared_ptr<detail::StateObject> Variable::state_object() const {
  return std::make_shared<detail::VariableState>(*this);
}

State Variable::state() const { return detail::state_of_object(*state_object()); }

LoadResult Variable::load_state(const State& state, const LoadOptions& options) const {
  return detail::load_object(*state_object(), state, options);
}

}  // namespace lockstep
