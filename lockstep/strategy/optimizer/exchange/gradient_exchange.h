#pragma once

#include <vector>

#include <c10/core/Device.h>  // before FunctionRef.h, which needs what it includes
#include <c10/util/FunctionRef.h>

#include "lockstep/strategy/optimizer/exchange/reduced_gradients.h"
#include "lockstep/strategy/optimizer/exchange/replica_gradients.h"
#include "lockstep/strategy/optimizer/replica_parameters.h"

/// Internal: how the replicas of an optimizer exchange gradients. There are six implementations:
///   - local_exchange.h: replicas of one process, which publish addresses at a rendezvous;
///   - device_exchange.h: replicas on GPUs of one process, which sum gradients during backward;
///   - shared_memory_exchange.h: replicas of several workers of one machine, which publish offsets into shared memory;
///   - message_exchange.h: workers that are reached by messages, so that gradients are summed before the update;
///   - cross_device_exchange.h: replicas of one process, whose gradients are summed by the user's CrossDeviceOps;
///   - central_exchange.h: parameters are stored once; gradients of other devices are copied to where they are stored.
namespace lockstep::detail {

class GradientBuckets;

/// Which replicas read what this one publishes. It does not change.
struct ExchangeScope {
  /// Number of replicas that read each other's memory, and the rank of this one among them.
  int num_readers = 1;
  int reader = 0;
  /// Whether the readers are all replicas. Otherwise gradients are summed (`reduce`) before each update.
  bool reaches_all = true;
  /// Whether readers see sparse gradients too: they are threads of one process.
  bool publishes_sparse = true;
};

/// What replicas together have: for each parameter its presence, and whether its gradient is a sum on all of them.
struct AgreedGradients {
  std::vector<char> present;
  std::vector<char> sums;
};

/// One replica's side of the exchange. All replicas make the same calls in the same order, each on its own thread.
class GradientExchange {
 public:
  using Work = c10::function_ref<void(const AllGradients&)>;

  GradientExchange() = default;
  GradientExchange(const GradientExchange&) = delete;
  GradientExchange& operator=(const GradientExchange&) = delete;
  virtual ~GradientExchange() = default;

  virtual ExchangeScope scope() const = 0;

  /// The next backward pass computes the gradients of one step: they may be sent while it runs. Where a pass is for
  /// several optimizers, `after` is what this exchange must send after; it returns what the next one must send after.
  virtual GradientBuckets* begin_backward(GradientBuckets* after) { return after; }
  /// Backward threw. Waits for what is in flight and drops the rest.
  virtual void abandon_backward() {}
  /// Whether another thread may be sending the gradient of a parameter, after `begin_backward` and until `reduce` or
  /// `publish`: it must not be replaced.
  virtual bool is_in_flight(size_t /*parameter*/) const { return false; }

  /// Collective: replaces this replica's gradients by their sums over all replicas, where they are not sums already.
  virtual void reduce(ReducedGradients& reduced) = 0;
  /// Collective over all replicas: replaces the gradients of parameters with a zero in `skip` by their sums. `present`
  /// is what all replicas together have.
  virtual void sum(const std::vector<char>& present, const std::vector<char>& skip, ReducedGradients& reduced) = 0;

  /// Collective over all replicas: extends what the readers together have to all replicas.
  virtual AgreedGradients of_all_replicas(AgreedGradients of_readers) const { return of_readers; }

  /// Returns what the others read of this replica in one step. `reduced` says which of its gradients are sums.
  virtual ReplicaGradients publish(const ReducedGradients& reduced) = 0;
  /// Collective over the readers: does `work` on what all of them have published. Nobody returns before all are done.
  virtual void collective(const char* operation, ReplicaGradients& published, Work work) = 0;

  /// Copies updated values of these parameters to the replica, where it computes on another device.
  virtual void refresh(ParameterRange /*updated*/) {}
  /// Ends a step in which the replicas together had gradients of `present`.
  virtual void finish_step(const std::vector<char>& /*present*/) {}
};

/// Collective over the readers: returns what they have, `published` being this replica's `gradient_presence`.
AgreedGradients agree_on_gradients(GradientExchange& exchange, ReplicaGradients published);

}  // namespace lockstep::detail
