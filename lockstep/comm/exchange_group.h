#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include <c10/core/Device.h>  // before FunctionRef.h, which needs what it includes
#include <c10/util/FunctionRef.h>

#include "lockstep/api.h"
#include "lockstep/comm/collective_call.h"
#include "lockstep/comm/group.h"
#include "lockstep/comm/group_impl.h"
#include "lockstep/comm/reduce/flat_tensors.h"

namespace lockstep::comm {

class Rendezvous;

/// What the ranks of a group have published to each other, in rank order.
struct PublishedCalls {
  std::span<const CollectiveCall* const> calls;
  /// Empty where the call reduces nothing.
  std::span<const FlatTensors* const> flats;
};

/// The collectives of a group whose ranks can read each other's tensors. How they come to do so is up to the engine:
/// threads of one process publish pointers (`make_local_groups`), processes of one machine map each other's memory, and
/// others send messages.
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
  std::vector<at::Tensor> do_all_to_all(at::TensorList inputs, const RowCounts& sent, RowCounts& received,
                                        const CommunicationOptions& options) override;
  std::shared_ptr<GroupImpl> do_within(const std::shared_ptr<GroupImpl>& self,
                                       std::shared_ptr<const RankGroups> groups) override;
  void do_barrier(const CommunicationOptions& options) override;

 protected:
  friend class GroupWithin;

  /// Whether ranks may write where the flat tensors of others say. Where they may not, `run_collective` gets none.
  virtual bool ranks_share_memory() const { return true; }
  /// Whether ranks may also read and write tensors of others that are not on the CPU: `run_collective` then orders the
  /// streams of the ranks by events. Otherwise a rank waits for its device before and after it.
  virtual bool orders_streams() const { return false; }
  /// Calls `work` when all ranks have arrived with an equal call, and returns when all ranks have done their work.
  /// While it runs, a rank may read what any rank's call and flat tensors refer to, and write where the rule of the
  /// collective says.
  virtual void run_collective(const CollectiveCall& call, const FlatTensors* flat, const CommunicationOptions& options,
                              c10::function_ref<void(const PublishedCalls&)> work) = 0;
  /// Reduces tensors on the CPU into the outputs of the call's root, or of all ranks where it has none.
  virtual void reduce_on_cpu(const CollectiveCall& call, const FlatTensors& flat, const CommunicationOptions& options);
  /// Reduces tensors on other devices into the outputs of the call's root, or of all ranks where it has none.
  virtual void reduce_on_devices(const CollectiveCall& call, const CommunicationOptions& options);
  /// Reduces tensors on other devices through copies on the CPU.
  void reduce_through_cpu(const CollectiveCall& call, const CommunicationOptions& options);

 private:
  void reduce(const CollectiveCall& call, const CommunicationOptions& options);
  void wait_for_device(at::TensorList tensors) const;
  bool may_reduce_in_one_pass(at::TensorList inputs, ReduceOp op) const;
  void reduce_in_one_pass(const CollectiveCall& call, const CommunicationOptions& options);
  void scatter_in_one_pass(const CollectiveCall& call, const at::Tensor& output, RowShare share,
                           const CommunicationOptions& options);
  template <typename Make>
  std::vector<at::Tensor> exchange(const CollectiveCall& call, const CommunicationOptions& options, Make make);
};

/// Makes a rank's handle of the group that it is in (group_within.cpp).
std::shared_ptr<GroupImpl> make_group_within(std::shared_ptr<ExchangeGroup> whole,
                                             std::shared_ptr<const RankGroups> groups);

/// Returns where the part of `rank` of `size` begins in a concatenation of `bytes`. Parts begin on cache lines.
int64_t part_begin(int64_t bytes, int rank, int size);

/// Makes one group handle for each rank of `rendezvous`; ranks are threads of this process.
///
/// Nothing is copied on the way: ranks publish pointers to their tensors, each reduces its own part over all of them
/// and writes it to all. Tensors may live on the CPU or on CUDA devices. Those of GPUs are reduced by one kernel where
/// each GPU can read and write the memory of the others, else by LibTorch's operators on copies. Work is queued on the
/// current stream of each rank and ordered by events; the host does not wait for a device.
LOCKSTEP_API std::vector<Group> make_local_groups(const std::shared_ptr<Rendezvous>& rendezvous);

}  // namespace lockstep::comm
