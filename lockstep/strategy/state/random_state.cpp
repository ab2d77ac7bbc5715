#include "lockstep/strategy/state/random_state.h"

#include <mutex>

#include <ATen/ATen.h>

#include "lockstep/comm/collective_call.h"
#include "lockstep/device/random.h"
#include "lockstep/strategy/access.h"
#include "lockstep/strategy/state/state_object.h"
#include "lockstep/strategy/state/state_of.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep {
namespace detail {
namespace {

constexpr const char* kCudaPrefix = "cuda.";

at::Tensor bytes_of(const at::Generator& generator) {
  at::Generator shared = generator;
  const std::lock_guard lock(shared.mutex());
  return shared.get_state().clone();
}

void set_bytes(const at::Generator& generator, const at::Tensor& bytes) {
  at::Generator shared = generator;
  const std::lock_guard lock(shared.mutex());
  shared.set_state(bytes);
}

class GeneratorsState final : public StateObject {
 public:
  explicit GeneratorsState(std::shared_ptr<StrategyImpl> strategy) : strategy_(std::move(strategy)) {}

  State state() const override {
    State state;
    for (const auto& [name, generator] : generators()) state.set(name, of_all_workers(bytes_of(generator)));
    return state;
  }

  void plan_load(LoadPlan::Part part) override {
    // Generators of GPUs that this strategy does not have.
    for (const std::string& name : part.names()) {
      if (name.starts_with(kCudaPrefix)) part.ignore(name);
    }
    for (const auto& [name, generator] : generators()) {
      if (name.starts_with(kCudaPrefix) && !part.has(name)) {
        part.after([self = *this, to = generator] { self.seed_from_cpu(to); });
        continue;
      }
      const StateTensor* const saved = part.want_tensor(name, at::kByte, nullptr);
      if (saved == nullptr) continue;
      const int64_t num_bytes = bytes_of(generator).numel();
      if (saved->sizes.size() != 2 || saved->sizes[0] < 1 || saved->sizes[1] != num_bytes) {
        part.unfitting(name, c10::str("shape ", at::IntArrayRef(saved->sizes), " in the state, one row of ", num_bytes,
                                      " bytes for each worker in this LibTorch"));
        continue;
      }
      const at::Tensor rows = at::empty(saved->sizes, at::kByte);
      part.read(name, rows);
      part.after([self = *this, rows, to = generator] { self.take(rows, to); });
    }
  }

  std::shared_ptr<StrategyImpl> strategy() const override { return strategy_; }
  int load_order() const override { return 1; }

 private:
  int worker() const { return strategy_ ? strategy_->worker() : 0; }
  int num_workers() const { return strategy_ ? strategy_->num_workers() : 1; }

  std::vector<std::pair<std::string, at::Generator>> generators() const {
    std::vector<std::pair<std::string, at::Generator>> all;
    all.emplace_back("cpu", at::globalContext().defaultGenerator(at::kCPU));
    if (!strategy_) return all;
    for (const LogicalDevice& device : strategy_->devices()) {
      if (!device.torch_device.is_cuda()) continue;
      const std::string name = c10::str(kCudaPrefix, static_cast<int>(device.torch_device.index()));
      const bool is_known = std::any_of(all.begin(), all.end(), [&](const auto& one) { return one.first == name; });
      if (!is_known) all.emplace_back(name, at::globalContext().defaultGenerator(device.torch_device));
    }
    return all;
  }

  /// A row for each worker.
  at::Tensor of_all_workers(const at::Tensor& bytes) const {
    const at::Tensor row = bytes.reshape({1, -1});
    if (num_workers() == 1) return row;
    const comm::CollectiveOwnerScope owner({"random", 0, "state"});
    return strategy_->worker_group()->all_gather(row, 0).contiguous();
  }

  void take(const at::Tensor& rows, const at::Generator& generator) const {
    const int64_t saved_by = rows.size(0);
    const bool are_equal = at::equal(rows, rows.slice(0, 0, 1).expand_as(rows).contiguous());
    const bool has_own = saved_by == num_workers() || worker() < saved_by;
    set_bytes(generator, rows[are_equal || !has_own ? 0 : worker()].clone());
    if (are_equal || has_own) return;
    seed_from_cpu(generator);
  }

  /// The generator starts from a number that the CPU's gives.
  void seed_from_cpu(const at::Generator& generator) const {
    const uint64_t drawn = draw_bits(at::globalContext().defaultGenerator(at::kCPU));
    at::Generator shared = generator;
    const std::lock_guard lock(shared.mutex());
    shared.set_current_seed(replica_seed(drawn, worker()));
  }

  std::shared_ptr<StrategyImpl> strategy_;
};

}  // namespace

std::shared_ptr<StateObject> random_state_object(std::shared_ptr<StrategyImpl> strategy) {
  return std::make_shared<GeneratorsState>(std::move(strategy));
}

}  // namespace detail

RandomState::RandomState() : object_(detail::random_state_object(nullptr)) {}

RandomState::RandomState(const Strategy& strategy)
    : object_(detail::random_state_object(detail::Access::shared_impl(strategy))) {}

State RandomState::state() const { return detail::state_of_object(*object_); }

LoadResult RandomState::load_state(const State& state, const LoadOptions& options) const {
  return detail::load_object(*object_, state, options);
}

}  // namespace lockstep
