#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"
#include "lockstep/strategy/optimizer/replica_parameters.h"

/// Internal: who updates which part of which parameter.
namespace lockstep::detail {

/// How a parameter is updated.
///   - `Sharded`: on CPUs, for optimizers that treat every element alone (SGD, Adam, ...). Each replica owns chunks of
///     all parameters: it sums the gradients of all replicas, updates and writes the new values to all replicas, one
///     pass over memory, chunk by chunk in cache.
///   - `Rows`: for tables with sparse gradients. Each replica owns a part of the rows.
///   - `Replicated`: everything else (GPUs, LBFGS, optimizers that are not known to be elementwise). Gradients are
///     all-reduced, and every replica updates all of its own copy.
///   - `Divided`: where it would be replicated, for elementwise optimizers and a `Shard`. Each replica owns a part
///     of the elements of all parameters: it has state for them alone, updates them, and gets the values of the others
///     from their owners.
/// All but rows add gradients in the same fixed tree, so they give the same bits. What a strategy stores once is
/// updated once.
enum class UpdateMethod : char { Sharded, Rows, Replicated, Divided };

/// Elements [begin, end) of one parameter that one replica reduces and updates for all.
struct UpdateChunk {
  size_t parameter = 0;
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
};

/// Largest chunk, in bytes: small enough that gradients, parameters and state of a chunk stay in a core's cache from
/// the reduction through every pass of the optimizer.
inline constexpr int64_t kMaxChunkBytes = 128 * 1024;

/// What is decided before the first step.
struct UpdatePlan {
  /// The parameter group of each parameter.
  std::vector<size_t> groups;
  /// The method of each parameter until its gradients turn out to be sparse.
  std::vector<UpdateMethod> methods;
  /// The chunks of each owner. They cover each sharded parameter exactly once.
  std::vector<std::vector<UpdateChunk>> chunks;
  /// Consecutive ranges of all parameters. Each is updated in a collective of its own, so that updated values of one
  /// are copied to other devices while the next is computed.
  std::vector<ParameterRange> segments;
};

/// Plans the updates of parameters, `groups[p]` being the parameter group of parameter p. Chunks are for `num_owners`
/// replicas; no parameter is sharded unless the optimizer is elementwise.
LOCKSTEP_API UpdatePlan plan_updates(const std::vector<ReplicaParameters>& replicas, std::vector<size_t> groups,
                                     bool elementwise, int num_owners);
/// Divides what would be replicated over all replicas, `num_replicas` in number: parameters that owners would not
/// share, or share with a part of the replicas only (`num_owners`).
LOCKSTEP_API UpdatePlan plan_divided_updates(const std::vector<ReplicaParameters>& replicas, std::vector<size_t> groups,
                                             int num_owners, int num_replicas);

/// Divides parameters of the given sizes into `num_owners` lists of chunks with about the same number of elements.
LOCKSTEP_API std::vector<std::vector<UpdateChunk>> plan_chunks(const std::vector<int64_t>& sizes,
                                                               const std::vector<int64_t>& element_bytes,
                                                               int num_owners);

/// The methods of one replica's parameters. They follow the gradients: all replicas see the same ones, so their methods
/// stay equal.
class LOCKSTEP_API UpdateMethods {
 public:
  explicit UpdateMethods(std::vector<UpdateMethod> planned)
      : methods_(std::move(planned)), has_dense_state_(methods_.size(), 0) {}

  UpdateMethod operator[](size_t parameter) const { return methods_[parameter]; }
  size_t count(UpdateMethod method) const;

  /// Whether chunks of the parameter have been updated, so that the optimizer has state for them: its sparse gradients
  /// are made dense.
  bool has_dense_state(size_t parameter) const { return has_dense_state_[parameter] != 0; }

  /// Updates sharded parameters with sparse gradients by rows from now on, where `rows_known` says that the optimizer
  /// can do that and the parameter has contiguous rows; otherwise they become replicated.
  void follow(const std::vector<char>& present, const std::vector<at::Tensor>& stored, bool rows_known);
  /// Sets the method of a parameter whose state was loaded.
  void set_loaded(size_t parameter, UpdateMethod method, bool has_dense_state);

 private:
  std::vector<UpdateMethod> methods_;
  std::vector<char> has_dense_state_;
};

/// Makes `slice` a tensor over elements [begin, end) of `whole`, which must be contiguous. It is not a view: LibTorch's
/// optimizers may detach it, and it shares ownership of the storage.
LOCKSTEP_API void point_at(at::Tensor& slice, const at::Tensor& whole, int64_t begin, int64_t end);

}  // namespace lockstep::detail
