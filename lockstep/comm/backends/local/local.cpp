#include "lockstep/comm/backends/local/local.h"

#include "lockstep/comm/exchange_group.h"

namespace lockstep::comm {
namespace {

/// Ranks are threads of one process: each publishes pointers to its tensors, nothing is copied.
class LocalGroup final : public ExchangeGroup {
 public:
  LocalGroup(std::shared_ptr<Rendezvous> rendezvous, int rank) : rendezvous_(std::move(rendezvous)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return rendezvous_->size(); }
  const std::string& name() const override { return rendezvous_->name(); }

 protected:
  void meet(const Call& call, const Parcel* parcel, const CommunicationOptions& options,
            c10::function_ref<void(const Gathering&)> work) override {
    Call mine = call;
    mine.payload = const_cast<Parcel*>(parcel);
    Meeting meeting(*rendezvous_, rank_, mine, options.timeout());
    c10::SmallVector<const Parcel*, 16> parcels;
    if (parcel != nullptr) {
      for (const Call* other : meeting.calls()) parcels.push_back(static_cast<const Parcel*>(other->payload));
    }
    work({meeting.calls(), {parcels.data(), parcels.size()}});
    meeting.finish();
  }

 private:
  std::shared_ptr<Rendezvous> rendezvous_;
  int rank_;
};

}  // namespace

std::vector<Group> make_local_groups(const std::shared_ptr<Rendezvous>& rendezvous) {
  std::vector<Group> groups;
  for (int rank = 0; rank < rendezvous->size(); ++rank) {
    groups.emplace_back(std::make_shared<LocalGroup>(rendezvous, rank));
  }
  return groups;
}

}  // namespace lockstep::comm
