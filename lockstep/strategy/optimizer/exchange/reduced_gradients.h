#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include "lockstep/api.h"

/// Internal: which gradients have been replaced by their sums over all replicas.
namespace lockstep::detail {

/// What a replica keeps of a sum that is reduced once more.
struct SumShare {
  /// Of sums the first replica keeps the whole, all others nothing. Replicas that are compiled as one program make the
  /// same calls, so there each one keeps an equal part. Of weighted means all keep the whole: the weights add up to 1.
  enum Kind { Whole, None, Part } kind = Whole;
  int num_parts = 1;
};

/// The part that one replica's gradients have in their mean. The parts of all replicas add up to 1.
struct GradientWeight {
  /// A scalar on the replica's device.
  at::Tensor value;
  /// The replica was given no rows: its gradients, which may be no numbers, do not count.
  bool is_zero = false;
};

/// The gradients of one replica that are sums.
///
/// A sum is known by its tensor: writing it in place (clipping, scaling) leaves it a sum, clearing or replacing it does
/// not. When backward adds to a sum, the gradient stops being one. It then keeps the replica's share of the sum, so
/// that the next reduction counts the sum once.
class LOCKSTEP_API ReducedGradients {
 public:
  /// `share` is what the replica keeps of the sums that it marks.
  ReducedGradients(const std::vector<at::Tensor>& parameters, SumShare share);
  ~ReducedGradients();
  ReducedGradients(const ReducedGradients&) = delete;
  ReducedGradients& operator=(const ReducedGradients&) = delete;

  /// Whether the gradient of a parameter is the sum over all replicas. Throws if a sum was replaced by another tensor
  /// before it was used.
  bool is_sum(size_t parameter) const;
  /// The gradient of a parameter has been replaced by the sum.
  void mark(size_t parameter);
  /// Makes a sum that must be reduced again this replica's share of it.
  void take_share(size_t parameter);

  /// Sets what gradients are multiplied by before they are summed; nothing if they have their weight already.
  void set_weight(std::optional<GradientWeight> weight) { weight_ = std::move(weight); }
  const std::optional<GradientWeight>& weight() const { return weight_; }

  /// An update has used the sums.
  void set_used();
  /// The gradients are gone.
  void clear();

  struct Known {
    /// Weak: it keeps the identity of the gradient, not its memory.
    std::optional<c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>> sum{};
    /// What the replica keeps of the sum.
    SumShare share{};
    bool used = false;
  };
  /// What is known of the gradients now, for `restore`, when they are those of now again.
  std::vector<Known> known() const;
  void restore(const std::vector<Known>& known);

  struct Entry;

 private:
  std::vector<std::shared_ptr<Entry>> entries_;
  SumShare share_;
  std::optional<GradientWeight> weight_;
};

}  // namespace lockstep::detail
