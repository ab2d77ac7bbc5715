#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"
#include "lockstep/comm/group.h"
#include "lockstep/strategy/optimizer/compression.h"

/// Internal: sums of gradients over workers that exchange compressed messages.
namespace lockstep::detail {

/// The groups by which the replicas of several workers sum: all of them, those of one worker, and those with the same
/// number in each worker.
class LOCKSTEP_API WorkerSums {
 public:
  /// Rank w·r + l of `all` is replica l of worker w, which has r replicas.
  WorkerSums(const comm::Group& all, int replicas_per_worker);

  const comm::Group& all() const { return all_; }
  int num_workers() const { return all_.size() / replicas_per_worker_; }
  int worker() const { return all_.rank() / replicas_per_worker_; }
  int replicas_per_worker() const { return replicas_per_worker_; }

  /// Collective: replaces tensors by their sums over the replicas of this worker. Nothing is sent.
  void sum_in_worker(const std::vector<at::Tensor>& tensors) const;
  /// Collective: returns the sum over workers of a flat tensor that all replicas of a worker have. Each replica
  /// exchanges a part of it.
  at::Tensor sum_over_workers(const at::Tensor& flat) const;
  /// Collective: returns the tensors of the first replica of each worker; all have the same size.
  std::vector<at::Tensor> of_workers(const at::Tensor& flat) const;

 private:
  comm::Group all_;
  int replicas_per_worker_;
  std::optional<comm::Group> in_worker_;
  std::optional<comm::Group> between_workers_;
};

/// A gradient to be summed, and the number of its parameter.
struct GradientToSum {
  size_t parameter = 0;
  at::Tensor gradient;
};

/// How one replica takes part. All replicas call it in the same order, with gradients of the same parameters.
class LOCKSTEP_API GradientCompressor {
 public:
  virtual ~GradientCompressor() = default;

  /// Collective: replaces dense gradients by approximations of their sums over all replicas of all workers, the same
  /// bits everywhere.
  void sum(const WorkerSums& workers, const std::vector<GradientToSum>& gradients);

  /// The sum of a parameter is not used: what it has of earlier gradients is not lost.
  virtual void put_back(size_t /*parameter*/, const at::Tensor& /*sum*/, int /*num_workers*/) {}

 protected:
  /// Whether a gradient is compressed; float32 or float64. Counts the gradients of the parameter.
  virtual bool takes(const GradientToSum& gradient) = 0;
  /// Collective: sums gradients of one dtype. They hold the sums over the replicas of this worker.
  virtual void sum_compressed(const WorkerSums& workers, const std::vector<GradientToSum>& gradients) = 0;
};

/// Returns null where gradients are sent as they are.
LOCKSTEP_API std::unique_ptr<GradientCompressor> make_compressor(const GradientCompression& compression,
                                                                 size_t num_parameters);

/// Makes the columns of a matrix orthonormal, one after the other, in double on the CPU: equal bits give equal bits on
/// every machine. A column that depends on the ones before becomes zeros.
LOCKSTEP_API at::Tensor orthonormal_columns(const at::Tensor& matrix);

}  // namespace lockstep::detail
