#include "lockstep/comm/messages/message_groups.h"

#include <algorithm>
#include <exception>
#include <stdexcept>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/device_group.h"
#include "lockstep/comm/diagnostics/dump.h"
#include "lockstep/comm/diagnostics/worker_error.h"
#include "lockstep/comm/exchange_group.h"
#include "lockstep/comm/messages/exchange_tensors.h"
#include "lockstep/comm/messages/peer_exchange.h"
#include "lockstep/comm/messages/reduce_devices.h"
#include "lockstep/comm/messages/reduce_messages.h"
#include "lockstep/comm/reduce/device_reduce.h"
#include "lockstep/comm/rendezvous.h"

namespace lockstep::comm {
namespace {

/// Throws what has failed the job, unless nothing has, or it is an error of this worker, which reports its own.
void throw_failure_of_another(const MessageTeam& team, const CollectiveCall& call, int rank) {
  const JobFailure* const failure = team.job->failure();
  if (failure == nullptr) return;
  const bool is_own_error = failure->worker == team.worker() && failure->kind == JobFailure::Kind::Failed;
  if (!is_own_error) throw_worker_failure(*failure, call, rank, team.name);
}

class MessageGroup final : public ExchangeGroup {
 public:
  MessageGroup(std::shared_ptr<MessageTeam> team, std::shared_ptr<Rendezvous> rendezvous, int local)
      : team_(team), rendezvous_(std::move(rendezvous)), peers_(std::move(team), local) {}

  int rank() const override { return peers_.rank(); }
  int size() const override { return team_->num_ranks(); }
  const std::string& name() const override { return team_->name; }
  bool uses_nccl() const override { return team_->device_transport != nullptr; }

  /// Calls `work` when all ranks have made an equal call.
  void agree(const CollectiveCall& call, const CommunicationOptions& options, c10::function_ref<void()> work) {
    failing_the_job(call, [&] {
      run_together(call, options, [&](LocalCalls) {
        peers_.begin(call, options);
        work();
      });
    });
  }

  void do_reduce_scatter(const at::Tensor& input, const at::Tensor& output, ReduceOp op,
                         const CommunicationOptions& options) override {
    const auto share = row_share(input.size(0), rank(), size());
    at::Tensor whole = at::empty(input.sizes(), input.options().requires_grad(false));
    do_all_reduce(at::TensorList(&input, 1), at::TensorList(&whole, 1), op, options);
    output.copy_(whole.narrow(0, share.begin, share.count));
  }

 protected:
  bool ranks_share_memory() const override { return false; }

  void reduce_on_cpu(const CollectiveCall& call, const FlatTensors& flat,
                     const CommunicationOptions& options) override {
    CollectiveCall mine = call;
    mine.payload = const_cast<FlatTensors*>(&flat);
    failing_the_job(call, [&] {
      run_together(mine, options, [&](LocalCalls calls) {
        peers_.begin(call, options);
        c10::SmallVector<const FlatTensors*, 16> flats;
        for (const CollectiveCall* other : calls) flats.push_back(static_cast<const FlatTensors*>(other->payload));
        reduce_by_messages(peers_, call, {flats.data(), flats.size()}, scratch_);
      });
    });
  }

  void reduce_on_devices(const CollectiveCall& call, const CommunicationOptions& options) override {
    if (!team_->device_transport) return reduce_through_cpu(call, options);
    const at::NoGradGuard no_grad;
    const auto mine = flatten_by_dtype(call.inputs);
    synchronize(call.inputs);
    failing_the_job(call, [&] {
      const auto parts =
          run_locally(call, mine, options, [&](const std::vector<const std::vector<at::Tensor>*>& local) {
            peers_.begin(call, options);
            return reduce_parts_on_devices(peers_, call, local);
          });
      const auto whole =
          run_locally(call, parts, options, [&](const std::vector<const std::vector<at::Tensor>*>& local) {
            std::vector<at::Tensor> result;
            for (const at::Tensor& part : parts) result.push_back(at::empty_like(part));
            for (int from = 0; from < team_->ranks_per_worker; ++from) take_parts(*team_, from, *local[from], result);
            synchronize(result);
            return result;
          });
      if (!call.outputs.empty()) unflatten_by_dtype(whole, call.outputs);
    });
  }

  void run_collective(const CollectiveCall& call, const FlatTensors* flat, const CommunicationOptions& options,
                      c10::function_ref<void(const PublishedCalls&)> work) override {
    LOCKSTEP_ASSERT(flat == nullptr, "reductions override reduce_on_cpu");
    ReceivedTensors received;
    failing_the_job(call, [&] {
      run_together(call, options, [&](LocalCalls) {
        peers_.begin(call, options);
        received = exchange_tensors(peers_, call);
      });
      CollectiveCall shared{.operation = call.operation,
                            .reduce_op = call.reduce_op,
                            .payload = &received,
                            .payload_type = &typeid(ReceivedTensors)};
      run_together(shared, options, [&](LocalCalls calls) { use_all(call, calls, work); });
    });
  }

 private:
  using LocalCalls = std::span<const CollectiveCall* const>;

  /// An error in a collective fails the job: other workers take part in it and would wait.
  template <typename F>
  void failing_the_job(const CollectiveCall& call, F&& collective) {
    try {
      check_job(call);
      collective();
    } catch (const WorkerError& error) {
      fail(error.what_without_backtrace());
      throw;
    } catch (const c10::Error& error) {
      fail(error.what_without_backtrace());
      rethrow_cause(call);
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
  void check_job(const CollectiveCall& call) const {
    if (const JobFailure* failure = team_->job->failure()) throw_worker_failure(*failure, call, rank(), team_->name);
  }

  /// A rank whose wait for local ranks was ended throws the error of the local rank that an engine or another worker
  /// failed, and names the worker that failed the job.
  void rethrow_cause(const CollectiveCall& call) const {
    if (const std::exception_ptr cause = rendezvous_->abort_cause()) {
      try {
        std::rethrow_exception(cause);
      } catch (const WorkerError&) {
        throw;
      } catch (...) {
        // An error of this worker: the caller reports its own.
      }
    }
    throw_failure_of_another(*team_, call, rank());
  }

  /// Calls `work` with the calls of the local ranks, between arrive and depart.
  template <typename Work>
  void run_together(const CollectiveCall& call, const CommunicationOptions& options, Work work) {
    CollectiveScope scope(*rendezvous_, peers_.local(), call, options.timeout());
    scope.run([&] { work(scope.calls()); });
  }

  /// Calls `work` with a list of tensors of each local rank. All ranks have finished with them when it returns.
  template <typename Work>
  std::vector<at::Tensor> run_locally(const CollectiveCall& call, const std::vector<at::Tensor>& mine,
                                      const CommunicationOptions& options, Work work) {
    CollectiveCall published = call;
    published.payload = const_cast<std::vector<at::Tensor>*>(&mine);
    std::vector<at::Tensor> results;
    run_together(published, options, [&](LocalCalls calls) {
      std::vector<const std::vector<at::Tensor>*> local;
      for (const CollectiveCall* other : calls) {
        local.push_back(static_cast<const std::vector<at::Tensor>*>(other->payload));
      }
      results = work(local);
    });
    return results;
  }

  /// Calls `work` with the calls of all ranks, assembled from what the local ranks have received.
  void use_all(const CollectiveCall& call, std::span<const CollectiveCall* const> shared,
               c10::function_ref<void(const PublishedCalls&)> work) {
    std::vector<CollectiveCall> calls(static_cast<size_t>(size()), call);
    std::vector<const CollectiveCall*> pointers;
    for (int rank = 0; rank < size(); ++rank) {
      CollectiveCall& other = calls[static_cast<size_t>(rank)];
      const auto& of_peers =
          *static_cast<const ReceivedTensors*>(shared[static_cast<size_t>(rank % team_->ranks_per_worker)]->payload);
      other.inputs = of_peers.of_worker[static_cast<size_t>(rank / team_->ranks_per_worker)];
      pointers.push_back(&other);
    }
    work({pointers, {}});
  }

  std::shared_ptr<MessageTeam> team_;
  std::shared_ptr<Rendezvous> rendezvous_;
  PeerExchange peers_;
  MessageScratch scratch_;
};

class MessageGroups final : public WorkerGroups {
 public:
  MessageGroups(std::shared_ptr<MessageTeam> team, std::shared_ptr<DeviceCollectives> collectives)
      : team_(std::move(team)),
        collectives_(std::move(collectives)),
        rendezvous_(std::make_shared<Rendezvous>(team_->ranks_per_worker, team_->name)) {
    rendezvous_->set_default_timeout(team_->timeout);
    for (int local = 0; local < team_->ranks_per_worker; ++local) {
      local_.push_back(make_group(local));
    }
    watch_ = team_->job->on_change([this] {
      if (team_->job->failure() != nullptr) return abort();
      for (int worker = 0; worker < team_->num_workers(); ++worker) {
        if (team_->job->has_left(worker)) team_->transport->peer_left(worker);
      }
    });
  }

  std::string_view engine() const override {
    if (collectives_) return collectives_->name();
    return team_->device_transport ? team_->device_transport->name() : team_->transport->name();
  }
  void begin_run(uint64_t run) override {
    team_->run = run;
    // After a failure the group stays aborted: a thread may still be inside its last collective.
    if (team_->job->failure() != nullptr) return abort();
    rendezvous_->reset();
    if (team_->job->failure() != nullptr) abort();
  }
  void leave(int local, std::exception_ptr cause) override { rendezvous_->leave(local, std::move(cause)); }
  void check_queued_work(const char* asks) override {
    if (!collectives_) return;
    try {
      collectives_->check(asks);
    } catch (const c10::Error&) {
      // It has ended what the GPUs were doing when the function had returned.
      throw_failure_of_another(*team_, {.operation = asks}, team_->worker() * team_->ranks_per_worker);
      throw;
    }
  }
  uint64_t bytes_sent() const override { return team_->bytes_sent->load(); }
  const Recorder& recorder() const override { return rendezvous_->recorder(); }

 private:
  Group make_group(int local) const {
    auto group = std::make_shared<MessageGroup>(team_, rendezvous_, local);
    if (!collectives_) return Group(group);
    return Group(make_device_group(group, collectives_, local,
                                   [group](const CollectiveCall& call, const CommunicationOptions& options,
                                           c10::function_ref<void()> work) { group->agree(call, options, work); }));
  }

  /// Ends all waits of the local ranks, for each other and for other workers.
  void abort() {
    const std::string& reason = team_->job->failure()->reason;
    team_->transport->abort(reason);
    if (team_->device_transport) team_->device_transport->abort(reason);
    if (collectives_) collectives_->abort(reason);
    rendezvous_->abort(std::make_exception_ptr(std::runtime_error(reason)));
  }

  std::shared_ptr<MessageTeam> team_;
  std::shared_ptr<DeviceCollectives> collectives_;
  std::shared_ptr<Rendezvous> rendezvous_;
  std::shared_ptr<void> watch_;
};

}  // namespace

std::shared_ptr<WorkerGroups> make_message_groups(std::shared_ptr<Job> job, std::shared_ptr<Transport> transport,
                                                  std::string name, int ranks_per_worker,
                                                  std::chrono::milliseconds timeout,
                                                  std::shared_ptr<Transport> device_transport,
                                                  std::shared_ptr<DeviceCollectives> collectives) {
  return std::make_shared<MessageGroups>(
      std::make_shared<MessageTeam>(MessageTeam{.job = std::move(job),
                                                .transport = std::move(transport),
                                                .device_transport = std::move(device_transport),
                                                .name = std::move(name),
                                                .ranks_per_worker = ranks_per_worker,
                                                .timeout = timeout}),
      std::move(collectives));
}

}  // namespace lockstep::comm
