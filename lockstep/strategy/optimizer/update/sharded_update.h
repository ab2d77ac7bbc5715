#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include <torch/optim/optimizer.h>

#include "lockstep/api.h"
#include "lockstep/strategy/optimizer/exchange/replica_gradients.h"
#include "lockstep/strategy/optimizer/update/update_plan.h"

/// Internal: one replica's part of the sharded update (see `UpdateMethod`).
namespace lockstep::detail {

/// The chunks that one replica updates for all, each with an optimizer of its own.
class LOCKSTEP_API ShardedUpdate {
 public:
  using Groups = std::vector<torch::optim::OptimizerParamGroup>;
  using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(at::Tensor slice, size_t group)>;

  /// `parameters` are those that the owning replica stores; `groups[p]` is the parameter group of parameter p. No chunk
  /// is larger than `kMaxChunkBytes`.
  ShardedUpdate(const std::vector<UpdateChunk>& chunks, const std::vector<at::Tensor>& parameters,
                const std::vector<size_t>& groups, MakeOptimizer make);

  /// Inside a collective: reduces, updates and writes all chunks of sharded parameters in `segment`, for all replicas.
  /// `owner` is this replica's rank among `all`; `options` are the parameter groups that hold for all.
  void apply(int owner, const AllGradients& all, const UpdateMethods& methods, ParameterRange segment,
             const Groups& options);

 private:
  struct Chunk {
    UpdateChunk where;
    size_t group = 0;
    at::Tensor parameter;
    at::Tensor gradient;
    std::unique_ptr<torch::optim::Optimizer> optimizer;
  };

  void prepare(Chunk& chunk, const at::Tensor& whole);
  void update(Chunk& chunk, int owner, int thread, const AllGradients& all, const Groups& options);
  bool load_gradient(Chunk& chunk, int owner, int thread, const AllGradients& all);
  const at::Tensor& scratch(at::ScalarType dtype, int thread);

  MakeOptimizer make_;
  std::vector<Chunk> chunks_;
  /// For each dtype one buffer for each thread that may work for this replica.
  std::map<at::ScalarType, std::vector<at::Tensor>> scratch_;
};

}  // namespace lockstep::detail
