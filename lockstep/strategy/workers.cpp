#include "lockstep/strategy/workers.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <mutex>
#include <sched.h>
#include <sstream>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/cluster/cluster_resolver.h"
#include "lockstep/comm/backend.h"
#include "lockstep/comm/backends/gloo/gloo.h"
#include "lockstep/comm/backends/mpi/mpi.h"
#include "lockstep/comm/backends/nccl/nccl.h"
#include "lockstep/comm/backends/shm/shm.h"
#include "lockstep/comm/dump.h"
#include "lockstep/comm/messages/message_groups.h"

namespace lockstep::detail {
namespace {

/// The job that all strategies of this process share.
struct CurrentJob {
  std::mutex mutex;
  std::shared_ptr<comm::Job> job;
  std::vector<std::string> addresses;
  int worker = -1;
  int num_strategies = 0;
};

CurrentJob& current_job() {
  static CurrentJob instance;
  return instance;
}

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
    current.job = comm::Job::join(options);
    current.addresses = options.addresses;
    current.worker = options.worker;
    current.num_strategies = 0;
  }
  number = current.num_strategies++;
  return current.job;
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

bool meet(const std::string& some, const std::string& others) {
  std::istringstream in(" " + some);
  for (std::string core; in >> core;) {
    if ((" " + others + " ").find(" " + core + " ") != std::string::npos) return true;
  }
  return false;
}

/// Engines in the order in which they are tried, and what each is best at.
struct Preference {
  const char* engine;
  const char* reason;
};
constexpr std::array kMessageEngines{
    Preference{"mpi", "the job was started by MPI, whose network is the fastest there"},
    Preference{"gloo", "it works between any hosts"},
};

std::string availability(const std::string& engine) {
  const comm::Backend backend = comm::find_backend(engine);
  return backend.available ? "" : std::string(backend.why_not);
}

}  // namespace

Workers::~Workers() = default;

std::shared_ptr<Workers> Workers::join(const ClusterResolver& resolver, int replicas_per_worker, bool on_gpus,
                                       const CommunicationOptions& options) {
  const auto place = worker_place(resolver);
  LOCKSTEP_ASSERT(place && place->num_workers > 1, "a strategy alone has no workers");
  std::shared_ptr<Workers> workers(new Workers);
  int number = 0;
  workers->job_ = join_job(describe(resolver, *place), number);
  workers->name_ = c10::str("strategy", number);
  workers->timeout_ =
      options.timeout().count() > 0 ? options.timeout() : env::seconds("LOCKSTEP_COLLECTIVE_TIMEOUT");
  const auto replicas =
      workers->job_->all_gather(workers->name_ + "/replicas", std::to_string(replicas_per_worker), workers->timeout_);
  for (int worker = 0; worker < workers->count(); ++worker) {
    LOCKSTEP_CHECK_VALUE(replicas[static_cast<size_t>(worker)] == replicas[0],
                         "[MultiWorkerMirroredStrategy] every worker must have as many devices as the others: ",
                         workers->job_->name(0), " has ", replicas[0], ", ", workers->job_->name(worker), " has ",
                         replicas[static_cast<size_t>(worker)]);
  }
  const std::string own = c10::str(workers->job_->one_machine() ? "" : workers->job_->local_address(), ": ", own_cores());
  const auto cores = workers->job_->all_gather(workers->name_ + "/cores", own, workers->timeout_);
  const std::string machine = own.substr(0, own.find(':') + 1);
  workers->sharing_cores_ = static_cast<int>(std::count_if(cores.begin(), cores.end(), [&](const std::string& other) {
    return other.rfind(machine, 0) == 0 && meet(own.substr(machine.size()), other.substr(machine.size()));
  }));
  comm::set_dump_identity({workers->index(), workers->count(), replicas_per_worker});
  comm::dump_on_signal();
  workers->choose_engine(on_gpus, options);
  LOCKSTEP_LOG(Info) << workers->count() << " workers, this is " << workers->job_->name(workers->index()) << "; engine "
                     << workers->engine_ << ": " << workers->reason_;
  return workers;
}

/// All workers take the first engine that all of them have.
void Workers::choose_engine(bool on_gpus, const CommunicationOptions& options) {
  const std::string asked = env::text("LOCKSTEP_ENGINE");
  LOCKSTEP_CHECK_VALUE(asked == "auto" || asked == "shm" || asked == "gloo" || asked == "mpi" || asked == "nccl",
                       "[environment] the engine must be auto, shm, gloo, mpi or nccl: LOCKSTEP_ENGINE=", asked);
  const bool wants_nccl = asked == "nccl" || (asked == "auto" && options.implementation == CommunicationImplementation::Nccl);
  const bool wants_messages = options.implementation == CommunicationImplementation::Ring;
  std::ostringstream why_not;
  const auto all_have = [&](const std::string& engine) {
    const auto states = job_->all_gather(c10::str(name_, "/has/", engine), availability(engine), timeout_);
    for (int worker = 0; worker < count(); ++worker) {
      if (states[static_cast<size_t>(worker)].empty()) continue;
      why_not << (why_not.tellp() > 0 ? "; " : "") << engine << ": " << job_->name(worker) << ": "
              << states[static_cast<size_t>(worker)];
      return false;
    }
    return true;
  };
  if (wants_nccl || (asked == "auto" && on_gpus && !wants_messages)) {
    LOCKSTEP_CHECK_VALUE(!wants_nccl || on_gpus, "[MultiWorkerMirroredStrategy] NCCL works between GPUs, and the replicas ",
                         "are on CPUs; use AUTO or RING");
    if (all_have("nccl")) {
      engine_ = "nccl";
      reason_ = "the replicas are on GPUs";
      return;
    }
  }
  if (asked == "shm" || (asked == "auto" && !wants_messages && !wants_nccl)) {
    std::string reason;
    memory_ = comm::SharedMemory::connect(job_, name_ + "/memory", timeout_, reason);
    if (memory_) {
      engine_ = "shm";
      reason_ = c10::str("all ", count(), " workers are on one machine and share memory");
      return;
    }
    why_not << (why_not.tellp() > 0 ? "; " : "") << "shm: " << reason;
  }
  for (const Preference& preference : kMessageEngines) {
    if (asked != "auto" && asked != preference.engine) continue;
    if (wants_nccl || !all_have(preference.engine)) continue;
    engine_ = preference.engine;
    reason_ = asked == "auto" ? preference.reason : "LOCKSTEP_ENGINE asks for it";
    return;
  }
  LOCKSTEP_CHECK_VALUE(false, "[MultiWorkerMirroredStrategy] no engine can carry collectives between the workers: asked=",
                       asked, ", communication=", options.implementation.name(), "; ", why_not.str());
}

std::shared_ptr<comm::WorkerGroups> Workers::make_groups(const std::string& purpose, int ranks_per_worker) {
  const std::string name = c10::str(name_, "/", purpose);
  std::shared_ptr<comm::WorkerGroups> groups;
  if (memory_) {
    groups = comm::make_shm_groups(
        std::make_shared<comm::SharedRendezvous>(memory_, name, ranks_per_worker, timeout_));
  } else {
    const auto transport = engine_ == "mpi" ? comm::make_mpi_transport(*job_, name, ranks_per_worker, timeout_)
                                            : comm::make_gloo_transport(*job_, name, ranks_per_worker, timeout_);
    groups = comm::make_message_groups(job_, transport, name, ranks_per_worker, 0, timeout_);
  }
  struct Dumped {
    std::shared_ptr<comm::WorkerGroups> groups;
    comm::DumpedRecorder recorder;
  };
  const auto dumped = std::shared_ptr<Dumped>(
      new Dumped{groups, comm::DumpedRecorder(purpose, index() * ranks_per_worker, groups->recorder())});
  return {dumped, dumped->groups.get()};
}

void Workers::tell(const std::exception_ptr& error) {
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

void Workers::write_down() const {
  const comm::JobFailure* failure = job_->failure();
  const std::string path = comm::write_dump(failure != nullptr ? failure->reason : "an exception left a run");
  if (!path.empty()) {
    LOCKSTEP_LOG(Warn) << "the job is over; the last collectives of this worker are in " << path
                       << " (lockstep doctor FILE... reads those of all workers)";
  }
}

}  // namespace lockstep::detail
