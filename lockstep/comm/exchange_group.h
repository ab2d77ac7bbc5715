#pragma once

#include <span>
#include <string>
#include <vector>

#include <c10/core/Device.h>  // before FunctionRef.h, which needs what it includes
#include <c10/util/FunctionRef.h>

#include "lockstep/comm/call.h"
#include "lockstep/comm/group_impl.h"
#include "lockstep/comm/reduce/parcel.h"

namespace lockstep::comm {

/// What the ranks of a group have laid open to each other, in rank order.
struct Gathering {
  std::span<const Call* const> calls;
  /// Empty where the call reduces nothing.
  std::span<const Parcel* const> parcels;
};

/// The collectives of a group whose ranks can look at each other's tensors; how they come to do so is what a backend
/// adds.
///
/// Reductions are divided: each rank reduces its own part over all ranks and writes it to all of them.
class ExchangeGroup : public GroupImpl {
 public:
  void do_all_reduce(at::TensorList inputs, at::TensorList outputs, ReduceOp op,
                     const CommunicationOptions& options) override;
  std::vector<at::Tensor> do_all_reduce_sparse(at::TensorList inputs, ReduceOp op,
                                               const CommunicationOptions& options) override;
  void do_reduce(at::TensorList inputs, at::TensorList outputs, ReduceOp op, int root,
                 const CommunicationOptions& options) override;
  void do_broadcast(at::TensorList inputs, at::TensorList outputs, int root,
                    const CommunicationOptions& options) override;
  std::vector<at::Tensor> do_all_gather(at::TensorList inputs, int64_t dim,
                                        const CommunicationOptions& options) override;
  std::vector<at::Tensor> do_gather(at::TensorList inputs, int64_t dim, int root,
                                    const CommunicationOptions& options) override;
  void do_reduce_scatter(const at::Tensor& input, const at::Tensor& output, ReduceOp op,
                         const CommunicationOptions& options) override;
  void do_barrier(const CommunicationOptions& options) override;

 protected:
  /// Calls `work` when all ranks have come with an equal call, and returns when all have done theirs. Between the two,
  /// every rank may read what any rank's call and parcel refer to, and write where the rule of the collective says.
  virtual void meet(const Call& call, const Parcel* parcel, const CommunicationOptions& options,
                    c10::function_ref<void(const Gathering&)> work) = 0;

  /// Reduces tensors on the CPU into the outputs of the call's root, or of all ranks where it has none.
  virtual void reduce_on_cpu(const Call& call, const Parcel& parcel, const CommunicationOptions& options);
  /// The same for tensors on other devices.
  virtual void reduce_on_devices(const Call& call, const CommunicationOptions& options);
  /// A way to do so: through copies on the CPU.
  void reduce_through_cpu(const Call& call, const CommunicationOptions& options);

 private:
  void reduce(const Call& call, const CommunicationOptions& options);
  template <typename Make>
  std::vector<at::Tensor> exchange(const Call& call, const CommunicationOptions& options, Make make);
};

/// Where the part of `rank` of `size` begins in a concatenation of `bytes`; parts begin on cache lines.
int64_t part_begin(int64_t bytes, int rank, int size);

}  // namespace lockstep::comm
