#include "lockstep/comm/engines/shm/shm.h"

#include "lockstep/comm/engines/shm/shared_descriptor.h"
#include "lockstep/comm/exchange_group.h"

namespace lockstep::comm {
namespace {

/// Ranks are threads of several processes on one machine, each with its memory mapped by all.
class ShmGroup final : public ExchangeGroup {
 public:
  ShmGroup(std::shared_ptr<SharedRendezvous> rendezvous, int local)
      : rendezvous_(std::move(rendezvous)), local_(local), rank_(rendezvous_->rank_of(local)) {}

  int rank() const override { return rank_; }
  int size() const override { return rendezvous_->size(); }
  const std::string& name() const override { return rendezvous_->name(); }

 protected:
  void run_collective(const CollectiveCall& call, const FlatTensors* flat, const CommunicationOptions& options,
                      c10::function_ref<void(const PublishedCalls&)> work) override {
    if (flat != nullptr) {
      run_on_flat_tensors(call, *flat, options, work);
    } else {
      run_on_tensors(call, options, work);
    }
  }

  void reduce_on_devices(const CollectiveCall& call, const CommunicationOptions& options) override {
    const SharedAllocation allocation(true);  // copies on the CPU are made in shared memory at once
    reduce_through_cpu(call, options);
  }

 private:
  SharedMemory& memory() const { return rendezvous_->memory(); }
  bool is_own(int rank) const { return rank == rank_; }

  void run_on_flat_tensors(const CollectiveCall& call, const FlatTensors& flat, const CommunicationOptions& options,
                           c10::function_ref<void(const PublishedCalls&)> work) {
    const StagedFlatTensors staged(memory().own(), flat);
    staged.write_descriptor(rendezvous_->descriptor(local_, StagedFlatTensors::descriptor_bytes(flat)));
    SharedCollectiveScope scope(*rendezvous_, local_, call, options.timeout());
    c10::SmallVector<FlatTensors, 4> theirs;
    theirs.reserve(static_cast<size_t>(size()));
    c10::SmallVector<const FlatTensors*, 16> flats;
    for (int rank = 0; rank < size(); ++rank) {
      if (is_own(rank)) {
        flats.push_back(&staged.flat());
        continue;
      }
      theirs.push_back(flat_tensors_of(memory(), rendezvous_->worker_of(rank), rendezvous_->descriptor_of(rank), flat));
      flats.push_back(&theirs.back());
    }
    scope.run([&] { work({{}, {flats.data(), flats.size()}}); });
    staged.deliver();
  }

  /// Tensors with the dtypes and numbers of dimensions that the inputs of a rank have.
  std::vector<at::Tensor> like(const CollectiveCall& call, int rank) const {
    const size_t count = call.num_inputs(rank, size(), call.inputs.size());
    if (count == call.inputs.size()) return call.inputs.vec();
    std::vector<at::Tensor> tensors;
    const size_t readers = count / call.divided.size();
    for (size_t i = 0; i < count; ++i) tensors.push_back(call.divided[i / readers]);
    return tensors;
  }

  void run_on_tensors(const CollectiveCall& call, const CommunicationOptions& options,
                      c10::function_ref<void(const PublishedCalls&)> work) {
    const StagedTensors staged(memory().own(), call.is_read(rank_) ? call.inputs : at::TensorList());
    staged.write_descriptor(rendezvous_->descriptor(local_, staged.descriptor_bytes()));
    SharedCollectiveScope scope(*rendezvous_, local_, call, options.timeout());
    std::vector<std::vector<at::Tensor>> tensors(static_cast<size_t>(size()));
    std::vector<CollectiveCall> calls(static_cast<size_t>(size()), call);
    std::vector<const CollectiveCall*> pointers;
    for (int rank = 0; rank < size(); ++rank) {
      CollectiveCall& other = calls[static_cast<size_t>(rank)];
      if (!is_own(rank) && call.is_read(rank)) {
        auto& theirs = tensors[static_cast<size_t>(rank)];
        theirs = tensors_of(memory(), rendezvous_->worker_of(rank), rendezvous_->descriptor_of(rank), like(call, rank));
        other.inputs = theirs;
      }
      pointers.push_back(&other);
    }
    scope.run([&] { work({pointers, {}}); });
  }

  std::shared_ptr<SharedRendezvous> rendezvous_;
  int local_;
  int rank_;
};

class ShmGroups final : public WorkerGroups {
 public:
  explicit ShmGroups(std::shared_ptr<SharedRendezvous> rendezvous) : rendezvous_(std::move(rendezvous)) {
    for (int local = 0; local < rendezvous_->ranks_per_worker(); ++local) {
      local_.emplace_back(std::make_shared<ShmGroup>(rendezvous_, local));
    }
  }

  std::string_view engine() const override { return "shm"; }
  void begin_run(uint64_t run) override { rendezvous_->begin_run(run); }
  void leave(int local, std::exception_ptr cause) override { rendezvous_->leave(local, cause != nullptr); }
  SharedRendezvous* shared_rendezvous() const override { return rendezvous_.get(); }
  const Recorder& recorder() const override { return rendezvous_->recorder(); }

 private:
  std::shared_ptr<SharedRendezvous> rendezvous_;
};

}  // namespace

std::shared_ptr<WorkerGroups> make_shm_groups(std::shared_ptr<SharedRendezvous> rendezvous) {
  return std::make_shared<ShmGroups>(std::move(rendezvous));
}

}  // namespace lockstep::comm
