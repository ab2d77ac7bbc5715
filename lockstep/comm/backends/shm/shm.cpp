#include "lockstep/comm/backends/shm/shm.h"

#include "lockstep/comm/backends/shm/notice.h"
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
  void meet(const Call& call, const Parcel* parcel, const CommunicationOptions& options,
            c10::function_ref<void(const Gathering&)> work) override {
    if (parcel != nullptr) {
      meet_with_parcel(call, *parcel, options, work);
    } else {
      meet_with_tensors(call, options, work);
    }
  }

  void reduce_on_devices(const Call& call, const CommunicationOptions& options) override {
    const SharedAllocation allocation(true);  // the copies need not be copied again
    reduce_through_cpu(call, options);
  }

 private:
  SharedMemory& memory() const { return rendezvous_->memory(); }
  bool is_own(int rank) const { return rank == rank_; }

  void meet_with_parcel(const Call& call, const Parcel& parcel, const CommunicationOptions& options,
                        c10::function_ref<void(const Gathering&)> work) {
    const StagedParcel staged(memory().own(), parcel);
    staged.write_notice(rendezvous_->notice(local_, StagedParcel::notice_bytes(parcel)));
    SharedMeeting meeting(*rendezvous_, local_, call, options.timeout());
    c10::SmallVector<Parcel, 4> theirs;
    theirs.reserve(static_cast<size_t>(size()));
    c10::SmallVector<const Parcel*, 16> parcels;
    for (int rank = 0; rank < size(); ++rank) {
      if (is_own(rank)) {
        parcels.push_back(&staged.parcel());
        continue;
      }
      theirs.push_back(parcel_of(memory(), rendezvous_->worker_of(rank), rendezvous_->notice_of(rank), parcel));
      parcels.push_back(&theirs.back());
    }
    work({{}, {parcels.data(), parcels.size()}});
    meeting.finish();
    staged.deliver();
  }

  void meet_with_tensors(const Call& call, const CommunicationOptions& options,
                         c10::function_ref<void(const Gathering&)> work) {
    const auto is_read = [&](int rank) { return !call.only_root_is_read || rank == call.root; };
    const StagedTensors staged(memory().own(), is_read(rank_) ? call.inputs : at::TensorList());
    staged.write_notice(rendezvous_->notice(local_, staged.notice_bytes()));
    SharedMeeting meeting(*rendezvous_, local_, call, options.timeout());
    std::vector<std::vector<at::Tensor>> tensors(static_cast<size_t>(size()));
    std::vector<Call> calls(static_cast<size_t>(size()), call);
    std::vector<const Call*> pointers;
    for (int rank = 0; rank < size(); ++rank) {
      Call& other = calls[static_cast<size_t>(rank)];
      if (!is_own(rank) && is_read(rank)) {
        auto& theirs = tensors[static_cast<size_t>(rank)];
        theirs = tensors_of(memory(), rendezvous_->worker_of(rank), rendezvous_->notice_of(rank), call.inputs);
        other.inputs = theirs;
      }
      pointers.push_back(&other);
    }
    work({pointers, {}});
    meeting.finish();
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

SharedMeeting::SharedMeeting(SharedRendezvous& rendezvous, int local, const Call& call,
                             std::chrono::milliseconds timeout)
    : rendezvous_(rendezvous), local_(local) {
  rendezvous_.arrive(local, call, timeout);
}

SharedMeeting::~SharedMeeting() {
  if (!finished_)
    rendezvous_.fail(local_, c10::str("rank ", rendezvous_.rank_of(local_), " failed inside a collective"));
}

void SharedMeeting::finish() {
  finished_ = true;
  rendezvous_.depart(local_);
}

std::shared_ptr<WorkerGroups> make_shm_groups(std::shared_ptr<SharedRendezvous> rendezvous) {
  return std::make_shared<ShmGroups>(std::move(rendezvous));
}

}  // namespace lockstep::comm
