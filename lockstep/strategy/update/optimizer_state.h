#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "lockstep/strategy/optimizer_core.h"
#include "lockstep/strategy/update/device_optimizer.h"
#include "lockstep/strategy/update/gradient_buckets.h"
#include "lockstep/strategy/update/row_update.h"
#include "lockstep/strategy/update/shared_update.h"
#include "lockstep/strategy/update/update_offer.h"

/// Inside: what an optimizer knows of its parameters and replicas (see optimizer_core.h).
namespace lockstep::detail {

/// How a parameter is updated.
enum class UpdateWay : char { kShared, kRows, kReplicated };

/// What one replica owns.
struct OptimizerReplica {
  /// What the replica computes with; its gradients arrive there.
  std::vector<at::Tensor> parameters;
  /// What is updated: the same, or what the strategy keeps once for all replicas.
  std::vector<at::Tensor> kept;
  /// Gradients beside what is kept, where the replica computes on another device.
  std::vector<at::Tensor> fetched;
  std::vector<at::Tensor> buffers;
  /// The way of each parameter; the same on all replicas.
  std::vector<UpdateWay> ways;
  std::unique_ptr<SharedUpdate> shared;
  /// For parameters whose gradients name rows.
  std::vector<std::unique_ptr<RowUpdate>> rows;
  std::unique_ptr<torch::optim::Optimizer> own;
  /// In place of `own` on devices whose steps are compiled.
  std::unique_ptr<DeviceOptimizer> on_device;
  bool own_is_stale = true;
  bool reduced = false;
  /// Gradients that travel during backward, once it is known which parameters have dense ones.
  std::unique_ptr<GradientBuckets> buckets;
};

/// Parameters [begin, end).
struct ParameterRange {
  size_t begin = 0;
  size_t end = 0;
};

struct OptimizerCore::State final : BeforeRun {
  Setup setup;
  std::vector<OptimizerReplica> replicas;
  /// The group of each parameter, in the order of all groups' parameters.
  std::vector<size_t> groups;
  std::unique_ptr<torch::optim::Optimizer> front;
  /// The memory that all workers see; null where there is none.
  const comm::SharedArena* arena = nullptr;
  /// Updates are made stretch by stretch, so that one travels to other devices while the next is computed.
  std::vector<ParameterRange> stretches;

  using Offers = std::vector<const UpdateOffer*>;
  using Work = std::function<void(const Offers&)>;

  explicit State(Setup given);

  void before_run() override;
  size_t fingerprint() const override { return detail::fingerprint(*front); }

  /// Replicas here, replicas everywhere, and those that show each other their memory: here, or everywhere.
  int num_replicas() const { return static_cast<int>(replicas.size()); }
  bool several() const { return setup.strategy->num_replicas_in_sync() > 1; }
  int num_owners() const { return arena == nullptr ? num_replicas() : setup.strategy->num_replicas_in_sync(); }
  int owner_of(int replica) const { return arena == nullptr ? replica : setup.strategy->global_replica(replica); }
  bool has_workers() const { return setup.strategy->num_workers() > 1; }
  /// Whether other workers are reached by messages: gradients are summed over all of them first, updates are local.
  bool by_messages() const { return has_workers() && arena == nullptr; }
  /// Whether parameters are kept once for all replicas.
  bool is_central() const { return !setup.central.empty(); }
  /// Whether a replica computes on another device than where its parameters are kept.
  bool computes_elsewhere(const OptimizerReplica& own) const {
    return is_central() && !own.parameters.empty() && own.parameters[0].device() != own.kept[0].device();
  }

  OptimizerReplica& here(const char* operation, int& replica);

  /// Shows the gradients of a replica to the others; those that `fetched` says are beside what is kept already.
  UpdateOffer offer(OptimizerReplica& own, bool fetched) const;
  /// The same without what it takes to read them.
  UpdateOffer offer_presence(const OptimizerReplica& own) const;
  /// Brings all replicas that see each other's memory together, each with its offer, and does `work` on what they show.
  void meet(int replica, const char* operation, UpdateOffer& mine, const Work& work);

  /// Between replicas that have met: updates a stretch of parameters in the shared way and by rows.
  void update(int replica, OptimizerReplica& own, const Offers& offers, const std::vector<char>& present,
              ParameterRange stretch);
  /// Updates the other parameters, after their gradients have been summed.
  void update_others(int replica, OptimizerReplica& own, const std::vector<char>& present);
  /// The same for optimizers that evaluate the loss again and again, where parameters are kept once.
  at::Tensor step_once_for_all(int replica, OptimizerReplica& own, const std::function<at::Tensor()>& evaluate);
  at::Tensor step_own(OptimizerReplica& own, const std::function<at::Tensor()>& closure);
  /// Shows a replica what was updated in a stretch, where it has copies on another device.
  void refresh(int replica, ParameterRange stretch) const;

  /// Sums gradients over replicas, in place, of all parameters that `skip` does not name.
  void reduce(int replica, OptimizerReplica& own, const std::vector<char>& skip, const std::vector<char>& present);
  void average_buffers(int replica, const OptimizerReplica& own, const Offers& offers);
  void average_other_buffers(int replica, OptimizerReplica& own);

  /// Waits for the gradients that travel; false where none do.
  bool finish_buckets(OptimizerReplica& own);
  /// The same where they travel to where parameters are kept; those that backward did not compute stay undefined.
  bool finish_fetching(OptimizerReplica& own);
  void make_buckets(int replica, OptimizerReplica& own, const std::vector<char>& present);

 private:
  std::unique_ptr<torch::optim::Optimizer> make_front() const;
  /// An optimizer of a group's kind for one tensor: a part of a parameter, or what stands for rows of it.
  std::unique_ptr<torch::optim::Optimizer> make_for_one(at::Tensor parameter, size_t group) const;
  void plan();
  void plan_stretches();
  void meet_workers(int replica, const comm::Call& call, UpdateOffer& mine, const Work& work);
  void check_offers(const char* operation, const Offers& offers) const;
  at::Tensor offered_gradient(OptimizerReplica& own, size_t parameter, bool fetched) const;
  void choose_ways(OptimizerReplica& own, const std::vector<char>& present) const;
  RowUpdate& rows_of(int replica, OptimizerReplica& own, size_t parameter);
  void update_rows(int replica, OptimizerReplica& own, size_t parameter, const Offers& offers);
  void update_once_for_all(int replica, OptimizerReplica& own);
  void take_gradients(OptimizerReplica& own) const;
};

/// Returns for each parameter the strongest of what the replicas' gradients are.
std::vector<char> presence(const OptimizerCore::State::Offers& offers);
/// The same over all ranks of a group.
std::vector<char> presence(const comm::Group& group, std::vector<char> local);

/// Whether it can be averaged through its address; other buffers go through LibTorch.
bool has_plain_memory(const at::Tensor& buffer);

/// Waits until the calling thread's stream has done everything; does nothing for CPUs.
void wait_for_stream(c10::Device device);

}  // namespace lockstep::detail
