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
  /// is larger than `kMaxChunkBytes`; they are in the order of the parameters.
  ShardedUpdate(const std::vector<UpdateChunk>& chunks, const std::vector<at::Tensor>& parameters,
                const std::vector<size_t>& groups, MakeOptimizer make);

  /// Inside a collective: reduces, updates and writes all chunks of sharded parameters in `segment`, for all replicas.
  /// `owner` is this replica's rank among `all`; `options` are the parameter groups that hold for all.
  void apply(int owner, const AllGradients& all, const UpdateMethods& methods, ParameterRange segment,
             const Groups& options);

  /// A chunk of a parameter, with its optimizer and the tensor that this updates. Both are null before the first
  /// update.
  struct ChunkState {
    UpdateChunk where;
    torch::optim::Optimizer* optimizer = nullptr;
    at::Tensor parameter;
  };
  /// Returns the chunks of a parameter.
  std::vector<ChunkState> chunks_of(size_t parameter) const;
  /// Drops the optimizers of a parameter's chunks, and with them their state; makes new ones where `whole`, the
  /// parameter's memory, is given. Outside of steps.
  std::vector<ChunkState> renew(size_t parameter, const at::Tensor& whole);

 private:
  struct Chunk {
    UpdateChunk where;
    size_t group = 0;
    at::Tensor parameter;
    at::Tensor gradient;
    std::unique_ptr<torch::optim::Optimizer> optimizer;
  };

  size_t first_chunk(size_t parameter) const;
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
