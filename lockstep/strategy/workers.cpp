#include "lockstep/strategy/workers.h"

#include <algorithm>
#include <fstream>
#include <mutex>
#include <sched.h>
#include <sstream>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/trace/trace_writer.h"
#include "lockstep/cluster/cluster_resolver.h"
#include "lockstep/cluster/multi_worker.h"
#include "lockstep/comm/diagnostics/dump.h"
#include "lockstep/comm/job/join.h"
#include "lockstep/device/cpu_quota.h"

namespace lockstep::detail {
namespace {

/// The job that all strategies of this process share.
struct CurrentJob {
  std::mutex mutex;
  std::shared_ptr<comm::Job> job;
  /// Of that job; the strategies own it.
  std::weak_ptr<comm::WaitMonitor> monitor;
  std::vector<std::string> addresses;
  int worker = -1;
  int num_strategies = 0;
};

CurrentJob& current_job() {
  static CurrentJob instance;
  return instance;
}

/// Addresses and names of the workers that train together, in their order.
comm::JobOptions describe(const ClusterResolver& resolver, const WorkerPlace& place) {
  const ClusterSpec cluster = resolver.cluster_spec();
  comm::JobOptions options;
  for (const char* job : {"chief", "worker"}) {
    if (!cluster.has_job(job)) continue;
    for (const int task : cluster.task_indices(job)) {
      options.addresses.push_back(cluster.task_address(job, task));
      options.names.push_back(c10::str(job, " ", task));
    }
  }
  options.addresses.at(0) = place.coordinator;
  options.worker = place.index;
  options.token = job_token();
  options.interface_address = env::text("LOCKSTEP_INTERFACE");
  options.join_timeout = env::seconds("LOCKSTEP_JOIN_TIMEOUT");
  options.heartbeat_timeout = env::seconds("LOCKSTEP_HEARTBEAT_TIMEOUT");
  options.heartbeat_interval = std::clamp<std::chrono::milliseconds>(
      options.heartbeat_timeout / 5, std::chrono::milliseconds(50), std::chrono::milliseconds(1000));
  return options;
}

/// Returns the job of this process, joined anew where it has failed or is another one.
std::shared_ptr<comm::Job> join_job(const comm::JobOptions& options, int& number) {
  CurrentJob& current = current_job();
  const std::lock_guard lock(current.mutex);
  const bool fits = current.job && current.job->failure() == nullptr && current.addresses == options.addresses &&
                    current.worker == options.worker;
  if (!fits) {
    current.job.reset();
    current.monitor.reset();
    current.job = comm::join_job(options);
    if (options.worker == 0) current.job->set(kTraceJobKey, trace::new_trace_job());
    current.addresses = options.addresses;
    current.worker = options.worker;
    current.num_strategies = 0;
  }
  number = current.num_strategies++;
  return current.job;
}

/// Returns the monitor that all strategies of the job share.
std::shared_ptr<comm::WaitMonitor> monitor_of(const std::shared_ptr<comm::Job>& job) {
  CurrentJob& current = current_job();
  const std::lock_guard lock(current.mutex);
  std::shared_ptr<comm::WaitMonitor> monitor = current.job == job ? current.monitor.lock() : nullptr;
  if (monitor) return monitor;
  monitor = std::make_shared<comm::WaitMonitor>(job);
  if (current.job == job) current.monitor = monitor;
  return monitor;
}

/// The machine of this process, as text. Processes under a quota of their own do not share cores with others.
std::string own_place(const comm::Job& job) {
  const auto& quota = cpu_quota();
  return c10::str(job.one_machine() ? "" : job.local_address(), quota ? c10::str(" quota ", quota->group) : "", ": ");
}

/// The cores that this process may run on, as text.
std::string own_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::string cores;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores += (cores.empty() ? "" : " ") + std::to_string(core);
  }
  return cores;
}

bool cores_overlap(const std::string& some, const std::string& others) {
  std::istringstream in(" " + some);
  for (std::string core; in >> core;) {
    if ((" " + others + " ").find(" " + core + " ") != std::string::npos) return true;
  }
  return false;
}

}  // namespace

std::string job_token() {
  if (const auto file = env::given("LOCKSTEP_JOB_TOKEN_FILE")) {
    std::ifstream in(*file);
    std::string token;
    std::getline(in, token);
    LOCKSTEP_CHECK_VALUE(!token.empty(), "[environment] the file must hold the job's token in its first line: ",
                         "LOCKSTEP_JOB_TOKEN_FILE=", *file);
    return token;
  }
  return env::text("LOCKSTEP_JOB_TOKEN");
}

Workers::~Workers() = default;

std::optional<comm::JobFailure> Workers::last_failure() {
  CurrentJob& current = current_job();
  const std::lock_guard lock(current.mutex);
  const comm::JobFailure* const failure = current.job ? current.job->failure() : nullptr;
  return failure == nullptr ? std::nullopt : std::optional(*failure);
}

void Workers::leave_job() {
  CurrentJob& current = current_job();
  const std::lock_guard lock(current.mutex);
  current.job.reset();
  current.monitor.reset();
}

std::shared_ptr<Workers> Workers::join(const ClusterResolver& resolver, int replicas_per_worker, std::vector<int> gpus,
                                       const CommunicationOptions& options) {
  const auto place = worker_place(resolver);
  LOCKSTEP_ASSERT(place && place->num_workers > 1, "a strategy alone has no workers");
  std::shared_ptr<Workers> workers(new Workers);
  int number = 0;
  workers->job_ = join_job(describe(resolver, *place), number);
  workers->name_ = c10::str("strategy", number);
  workers->timeout_ = options.timeout_or_default();
  const auto replicas =
      workers->job_->all_gather(workers->name_ + "/replicas", std::to_string(replicas_per_worker), workers->timeout_);
  // Who sees a difference and ends must not take the numbers away from those who have not read them.
  const bool alike = std::equal(replicas.begin() + 1, replicas.end(), replicas.begin());
  if (!alike) workers->wait_for_readers("replicas");
  for (int worker = 0; worker < workers->count(); ++worker) {
    LOCKSTEP_CHECK_VALUE(
        replicas[static_cast<size_t>(worker)] == replicas[0],
        "[MultiWorkerMirroredStrategy] every worker must have as many devices as the others: ", workers->job_->name(0),
        " has ", replicas[0], ", ", workers->job_->name(worker), " has ", replicas[static_cast<size_t>(worker)]);
  }
  const std::string machine = own_place(*workers->job_);
  const std::string own = machine + own_cores();
  const auto cores = workers->job_->all_gather(workers->name_ + "/cores", own, workers->timeout_);
  workers->sharing_cores_ = static_cast<int>(std::count_if(cores.begin(), cores.end(), [&](const std::string& other) {
    return other.rfind(machine, 0) == 0 && cores_overlap(own.substr(machine.size()), other.substr(machine.size()));
  }));
  std::vector<std::string> names;
  for (int worker = 0; worker < workers->count(); ++worker) names.push_back(workers->job_->name(worker));
  comm::set_dump_identity({workers->index(), workers->count(), replicas_per_worker, std::move(names)});
  comm::dump_on_signal();
  workers->engine_ =
      std::make_unique<comm::JobEngine>(workers->job_, comm::EngineRequest{.name = workers->name_,
                                                                           .operation = "MultiWorkerMirroredStrategy",
                                                                           .implementation = options.implementation,
                                                                           .gpus = std::move(gpus),
                                                                           .deterministic = options.deterministic,
                                                                           .timeout = workers->timeout_});
  workers->monitor_ = monitor_of(workers->job_);
  LOCKSTEP_LOG(Info) << workers->count() << " workers, this is " << workers->job_->name(workers->index()) << "; engine "
                     << workers->engine() << ": " << workers->reason();
  return workers;
}

void Workers::wait_for_readers(const std::string& what) {
  try {
    job_->all_gather(c10::str(name_, "/", what, "/read"), "", timeout_);
  } catch (const CollectiveError&) {
    // Somebody has read and gone, or does not come: there is nobody left to wait for.
  }
}

void Workers::report_failure(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::Error& known) {
    job_->fail(known.what_without_backtrace());
  } catch (const std::exception& known) {
    job_->fail(known.what());
  } catch (...) {
    job_->fail("an exception that is no std::exception");
  }
}

void Workers::dump() const {
  const comm::JobFailure* failure = job_->failure();
  comm::dump_failure(failure != nullptr ? failure->reason : "an exception left a run");
}

}  // namespace lockstep::detail
