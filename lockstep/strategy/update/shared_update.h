#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include <torch/optim/optimizer.h>

#include "lockstep/strategy/update/update_offer.h"
#include "lockstep/strategy/update/update_plan.h"

/// Inside: one replica's part of the shared update (see optimizer_core.h).
namespace lockstep::detail {

/// The chunks that one replica updates for all, each with an optimizer of its own.
class SharedUpdate {
 public:
  using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(at::Tensor slice, size_t group)>;

  /// `parameters` are the owning replica's, and must outlive this; `groups[p]` is the parameter group of parameter p.
  SharedUpdate(const std::vector<UpdateChunk>& chunks, const std::vector<at::Tensor>& parameters,
               const std::vector<size_t>& groups, MakeOptimizer make);

  /// Reduces, updates and writes all chunks of parameters that `skip` does not name, for all replicas of `offers`.
  /// `owner` is this replica's place among them; `options` are the parameter groups that hold for all.
  void apply(int owner, const std::vector<const UpdateOffer*>& offers, const std::vector<char>& skip,
             const std::vector<torch::optim::OptimizerParamGroup>& options);

 private:
  struct Chunk {
    UpdateChunk where;
    size_t group = 0;
    at::Tensor parameter;
    at::Tensor gradient;
    std::unique_ptr<torch::optim::Optimizer> optimizer;
  };

  void prepare(Chunk& chunk);
  void update(Chunk& chunk, int owner, int thread, const std::vector<const UpdateOffer*>& offers,
              const std::vector<torch::optim::OptimizerParamGroup>& options);
  bool load_gradient(Chunk& chunk, int owner, int thread, const std::vector<const UpdateOffer*>& offers);
  const at::Tensor& scratch(at::ScalarType dtype, int thread);

  const std::vector<at::Tensor>& parameters_;
  MakeOptimizer make_;
  std::vector<Chunk> chunks_;
  /// For each dtype one buffer for each thread that may work for this replica.
  std::map<at::ScalarType, std::vector<at::Tensor>> scratch_;
};

}  // namespace lockstep::detail
