#include "lockstep/comm/messages/message_groups.h"

#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/dump.h"
#include "lockstep/comm/exchange_group.h"
#include "lockstep/comm/messages/lane.h"
#include "lockstep/comm/messages/reduce_devices.h"
#include "lockstep/comm/messages/reduce_messages.h"
#include "lockstep/comm/reduce/device_reduce.h"
#include "lockstep/comm/reduce/tensor_parts.h"
#include "lockstep/comm/rendezvous.h"

namespace lockstep::comm {
namespace {

/// The sizes of one tensor, as they travel.
struct Sizes {
  int64_t of[kMaxDims] = {};
};

/// What a rank has of the ranks of its number: the tensors of each worker's.
struct Received {
  std::vector<std::vector<at::Tensor>> of_worker;
};

/// The tensors of which a list consists: dense, contiguous, on the CPU. Sparse ones are indices and values.
std::vector<at::Tensor> parts_of(at::TensorList tensors) {
  std::vector<at::Tensor> parts;
  const auto add = [&](const at::Tensor& part) {
    LOCKSTEP_CHECK_VALUE(part.dim() <= kMaxDims, "[exchange] tensors of up to ", kMaxDims,
                         " dimensions can be sent: dim=", part.dim());
    parts.push_back(part.detach().to(at::kCPU).resolve_conj().resolve_neg().contiguous());
  };
  for (const at::Tensor& tensor : tensors) for_each_part(tensor, add);
  return parts;
}

/// Puts a list like `like` together from its parts.
std::vector<at::Tensor> put_together(const std::vector<at::Tensor>& parts, at::TensorList like) {
  std::vector<at::Tensor> tensors;
  auto next = parts.begin();
  for (const at::Tensor& tensor : like) {
    tensors.push_back(from_parts(tensor, [&](const at::Tensor&) { return *next++; }));
  }
  return tensors;
}

class MessageGroup final : public ExchangeGroup {
 public:
  MessageGroup(std::shared_ptr<MessageTeam> team, std::shared_ptr<Rendezvous> rendezvous, int local)
      : team_(team), rendezvous_(std::move(rendezvous)), lane_(std::move(team), local) {}

  int rank() const override { return lane_.rank(); }
  int size() const override { return team_->num_ranks(); }
  const std::string& name() const override { return team_->name; }

  void do_reduce_scatter(const at::Tensor& input, const at::Tensor& output, ReduceOp op,
                         const CommunicationOptions& options) override {
    const auto share = row_share(input.size(0), rank(), size());
    at::Tensor whole = at::empty(input.sizes(), input.options().requires_grad(false));
    do_all_reduce(at::TensorList(&input, 1), at::TensorList(&whole, 1), op, options);
    output.copy_(whole.narrow(0, share.begin, share.count));
  }

 protected:
  void reduce_on_cpu(const Call& call, const Parcel& parcel, const CommunicationOptions& options) override {
    Call mine = call;
    mine.payload = const_cast<Parcel*>(&parcel);
    failing_the_job([&] {
      Meeting meeting(*rendezvous_, lane_.local(), mine, options.timeout());
      lane_.begin(call, options);
      c10::SmallVector<const Parcel*, 16> parcels;
      for (const Call* other : meeting.calls()) parcels.push_back(static_cast<const Parcel*>(other->payload));
      reduce_by_messages(lane_, call, {parcels.data(), parcels.size()}, scratch_);
      meeting.finish();
    });
  }

  void reduce_on_devices(const Call& call, const CommunicationOptions& options) override {
    if (!team_->device_transport) return reduce_through_cpu(call, options);
    const at::NoGradGuard no_grad;
    const auto mine = flatten_by_dtype(call.inputs);
    synchronize(call.inputs);
    failing_the_job([&] {
      const auto parts =
          meet_locally(call, mine, options, [&](const std::vector<const std::vector<at::Tensor>*>& local) {
            lane_.begin(call, options);
            return reduce_parts_on_devices(lane_, call, local);
          });
      const auto whole =
          meet_locally(call, parts, options, [&](const std::vector<const std::vector<at::Tensor>*>& local) {
            std::vector<at::Tensor> result;
            for (const at::Tensor& part : parts) result.push_back(at::empty_like(part));
            for (int from = 0; from < team_->ranks_per_worker; ++from) take_parts(*team_, from, *local[from], result);
            synchronize(result);
            return result;
          });
      if (!call.outputs.empty()) unflatten_by_dtype(whole, call.outputs);
    });
  }

  void meet(const Call& call, const Parcel* parcel, const CommunicationOptions& options,
            c10::function_ref<void(const Gathering&)> work) override {
    LOCKSTEP_ASSERT(parcel == nullptr, "reductions have their own way");
    Received received;
    failing_the_job([&] {
      {
        Meeting meeting(*rendezvous_, lane_.local(), call, options.timeout());
        lane_.begin(call, options);
        received = exchange_tensors(call);
        meeting.finish();
      }
      Call shared{.operation = call.operation, .payload = &received, .payload_type = &typeid(Received)};
      Meeting meeting(*rendezvous_, lane_.local(), shared, options.timeout());
      use_all(call, meeting.calls(), work);
      meeting.finish();
    });
  }

 private:
  /// Whatever goes wrong in a collective ends the job: other workers are in it too, and would wait.
  template <typename F>
  void failing_the_job(F&& collective) {
    try {
      collective();
    } catch (const c10::Error& error) {
      fail(error.what_without_backtrace());
      throw;
    } catch (const std::exception& error) {
      fail(error.what());
      throw;
    }
  }
  void fail(const std::string& reason) {
    team_->job->fail(reason);
    dump_failure(reason);
  }

  /// Shows `work` a list of tensors of each local rank; all have finished with them when it returns.
  template <typename Work>
  std::vector<at::Tensor> meet_locally(const Call& call, const std::vector<at::Tensor>& mine,
                                       const CommunicationOptions& options, Work work) {
    Call shown = call;
    shown.payload = const_cast<std::vector<at::Tensor>*>(&mine);
    Meeting meeting(*rendezvous_, lane_.local(), shown, options.timeout());
    std::vector<const std::vector<at::Tensor>*> local;
    for (const Call* other : meeting.calls()) {
      local.push_back(static_cast<const std::vector<at::Tensor>*>(other->payload));
    }
    auto results = work(local);
    meeting.finish();
    return results;
  }

  int lane_rank(int worker) const { return team_->rank_of(worker, lane_.local()); }
  bool is_read(const Call& call, int worker) const { return !call.only_root_is_read || call.root == lane_rank(worker); }
  bool reads(const Call& call, int worker) const {
    return call.root < 0 || call.only_root_is_read || call.root / team_->ranks_per_worker == worker;
  }

  Received exchange_tensors(const Call& call) {
    const auto mine = parts_of(call.inputs);
    const auto num_workers = static_cast<size_t>(team_->num_workers());
    std::vector<Sizes> own_sizes(mine.size());
    for (size_t i = 0; i < mine.size(); ++i) std::copy(mine[i].sizes().begin(), mine[i].sizes().end(), own_sizes[i].of);
    std::vector<std::vector<Sizes>> sizes(num_workers, own_sizes);
    std::vector<Outgoing> outgoing;
    std::vector<Incoming> incoming;
    for_each_message(
        call,
        [&](int to) {
          outgoing.push_back({to, own_sizes.data(), mine.size() * sizeof(Sizes)});
        },
        [&](int from) {
          incoming.push_back({from, sizes[static_cast<size_t>(from)].data(), mine.size() * sizeof(Sizes)});
        });
    lane_.exchange(outgoing, incoming);
    outgoing.clear();
    incoming.clear();
    Received received{std::vector<std::vector<at::Tensor>>(num_workers)};
    for_each_message(
        call,
        [&](int to) {
          for (const at::Tensor& part : mine) outgoing.push_back({to, part.data_ptr(), part.nbytes()});
        },
        [&](int from) {
          auto& theirs = received.of_worker[static_cast<size_t>(from)];
          for (size_t i = 0; i < mine.size(); ++i) {
            const at::IntArrayRef shape(sizes[static_cast<size_t>(from)][i].of, static_cast<size_t>(mine[i].dim()));
            theirs.push_back(at::empty(shape, mine[i].options()));
            incoming.push_back({from, theirs.back().data_ptr(), theirs.back().nbytes()});
          }
        });
    lane_.exchange(outgoing, incoming);
    for (size_t worker = 0; worker < num_workers; ++worker) {
      auto& theirs = received.of_worker[worker];
      if (static_cast<int>(worker) == team_->worker()) {
        theirs = call.inputs.vec();
      } else if (!theirs.empty()) {
        theirs = put_together(theirs, call.inputs);
      }
    }
    return received;
  }

  template <typename Send, typename Receive>
  void for_each_message(const Call& call, Send send, Receive receive) const {
    for (int worker = 0; worker < team_->num_workers(); ++worker) {
      if (worker == team_->worker()) continue;
      if (is_read(call, team_->worker()) && reads(call, worker)) send(worker);
      if (is_read(call, worker) && reads(call, team_->worker())) receive(worker);
    }
  }

  /// Shows `work` the calls of all ranks, put together from what the local ranks have received.
  void use_all(const Call& call, std::span<const Call* const> shared, c10::function_ref<void(const Gathering&)> work) {
    std::vector<Call> calls(static_cast<size_t>(size()), call);
    std::vector<const Call*> pointers;
    for (int rank = 0; rank < size(); ++rank) {
      Call& other = calls[static_cast<size_t>(rank)];
      const auto& of_lane =
          *static_cast<const Received*>(shared[static_cast<size_t>(rank % team_->ranks_per_worker)]->payload);
      other.inputs = of_lane.of_worker[static_cast<size_t>(rank / team_->ranks_per_worker)];
      pointers.push_back(&other);
    }
    work({pointers, {}});
  }

  std::shared_ptr<MessageTeam> team_;
  std::shared_ptr<Rendezvous> rendezvous_;
  Lane lane_;
  MessageScratch scratch_;
};

class MessageGroups final : public WorkerGroups {
 public:
  explicit MessageGroups(std::shared_ptr<MessageTeam> team)
      : team_(std::move(team)), rendezvous_(std::make_shared<Rendezvous>(team_->ranks_per_worker, team_->name)) {
    rendezvous_->set_default_timeout(team_->timeout);
    for (int local = 0; local < team_->ranks_per_worker; ++local) {
      local_.emplace_back(std::make_shared<MessageGroup>(team_, rendezvous_, local));
    }
    watch_ = team_->job->on_change([team = team_.get()] {
      const JobFailure* failure = team->job->failure();
      if (failure == nullptr) return;
      team->transport->abort(failure->reason);
      if (team->device_transport) team->device_transport->abort(failure->reason);
    });
  }

  std::string_view engine() const override {
    return team_->device_transport ? team_->device_transport->name() : team_->transport->name();
  }
  void begin_run(uint64_t run) override {
    team_->run = run;
    rendezvous_->reset();
  }
  void leave(int local, std::exception_ptr cause) override { rendezvous_->leave(local, std::move(cause)); }
  const Recorder& recorder() const override { return rendezvous_->recorder(); }

 private:
  std::shared_ptr<MessageTeam> team_;
  std::shared_ptr<Rendezvous> rendezvous_;
  std::shared_ptr<void> watch_;
};

}  // namespace

std::shared_ptr<WorkerGroups> make_message_groups(std::shared_ptr<Job> job, std::shared_ptr<Transport> transport,
                                                  std::string name, int ranks_per_worker,
                                                  std::chrono::milliseconds timeout,
                                                  std::shared_ptr<Transport> device_transport) {
  return std::make_shared<MessageGroups>(
      std::make_shared<MessageTeam>(MessageTeam{.job = std::move(job),
                                                .transport = std::move(transport),
                                                .device_transport = std::move(device_transport),
                                                .name = std::move(name),
                                                .ranks_per_worker = ranks_per_worker,
                                                .timeout = timeout}));
}

}  // namespace lockstep::comm
