#include "lockstep/strategy/workers.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <sched.h>
#include <set>
#include <sstream>
#include <unistd.h>

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

/// The cards of this process, told apart from those of others on the machine: by CUDA_VISIBLE_DEVICES, which renumbers.
std::string cards_of(const std::vector<int>& devices) {
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  std::istringstream in(visible == nullptr ? "" : visible);
  std::vector<std::string> names;
  for (std::string name; std::getline(in, name, ',');) names.push_back(name);
  std::string cards;
  for (const int device : devices) {
    const auto index = static_cast<size_t>(device);
    cards += c10::str(host, "/", index < names.size() ? names[index] : std::to_string(device), " ");
  }
  return cards;
}

std::string availability(const std::string& engine) {
  const comm::Backend backend = comm::find_backend(engine);
  return backend.available ? "" : std::string(backend.why_not);
}

}  // namespace

Workers::~Workers() = default;

std::shared_ptr<Workers> Workers::join(const ClusterResolver& resolver, int replicas_per_worker, std::vector<int> gpus,
                                       const CommunicationOptions& options) {
  const auto place = worker_place(resolver);
  LOCKSTEP_ASSERT(place && place->num_workers > 1, "a strategy alone has no workers");
  std::shared_ptr<Workers> workers(new Workers);
  int number = 0;
  workers->job_ = join_job(describe(resolver, *place), number);
  workers->name_ = c10::str("strategy", number);
  workers->devices_ = std::move(gpus);
  workers->timeout_ = options.timeout().count() > 0 ? options.timeout() : env::seconds("LOCKSTEP_COLLECTIVE_TIMEOUT");
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
  const std::string own =
      c10::str(workers->job_->one_machine() ? "" : workers->job_->local_address(), ": ", own_cores());
  const auto cores = workers->job_->all_gather(workers->name_ + "/cores", own, workers->timeout_);
  const std::string machine = own.substr(0, own.find(':') + 1);
  workers->sharing_cores_ = static_cast<int>(std::count_if(cores.begin(), cores.end(), [&](const std::string& other) {
    return other.rfind(machine, 0) == 0 && meet(own.substr(machine.size()), other.substr(machine.size()));
  }));
  comm::set_dump_identity({workers->index(), workers->count(), replicas_per_worker});
  comm::dump_on_signal();
  workers->choose_engine(options);
  LOCKSTEP_LOG(Info) << workers->count() << " workers, this is " << workers->job_->name(workers->index()) << "; engine "
                     << workers->engine_ << ": " << workers->reason_;
  return workers;
}

/// Whether all workers can use an engine; where one cannot, it and its reason are added to `why_not`.
bool Workers::all_have(const std::string& engine, const std::string& own_reason, std::string& why_not) {
  const auto reasons = job_->all_gather(c10::str(name_, "/has/", engine), own_reason, timeout_);
  for (int worker = 0; worker < count(); ++worker) {
    const std::string& reason = reasons[static_cast<size_t>(worker)];
    if (reason.empty()) continue;
    why_not += c10::str(why_not.empty() ? "" : "; ", engine, ": ", job_->name(worker), ": ", reason);
    return false;
  }
  return true;
}

/// NCCL refuses two processes on one card.
bool Workers::share_cards() {
  const auto cards = job_->all_gather(name_ + "/cards", cards_of(devices_), timeout_);
  std::set<std::string> seen;
  for (const std::string& of_worker : cards) {
    std::istringstream in(of_worker);
    for (std::string card; in >> card;) {
      if (!seen.insert(card).second) return true;
    }
  }
  return false;
}

void Workers::wait_for_readers(const std::string& what) {
  try {
    job_->all_gather(c10::str(name_, "/", what, "/read"), "", timeout_);
  } catch (const CollectiveError&) {
    // Somebody has read and gone, or does not come: there is nobody left to wait for.
  }
}

/// All workers take the first engine that all of them have.
void Workers::choose_engine(const CommunicationOptions& options) {
  const std::string asked = env::text("LOCKSTEP_ENGINE");
  LOCKSTEP_CHECK_VALUE(asked == "auto" || asked == "shm" || asked == "gloo" || asked == "mpi" || asked == "nccl",
                       "[environment] the engine must be auto, shm, gloo, mpi or nccl: LOCKSTEP_ENGINE=", asked);
  const auto implementation = options.implementation;
  const bool nccl_only = asked == "nccl" || (asked == "auto" && implementation == CommunicationImplementation::Nccl);
  LOCKSTEP_CHECK_VALUE(!nccl_only || !devices_.empty(),
                       "[MultiWorkerMirroredStrategy] NCCL works between GPUs, and the ",
                       "replicas are on CPUs; use AUTO or RING");
  std::string why_not;
  bool nccl =
      nccl_only || (asked == "auto" && !devices_.empty() && implementation == CommunicationImplementation::Auto);
  if (nccl && share_cards()) {
    why_not = "nccl: workers share a GPU";
    nccl = false;
  }
  nccl = nccl && all_have("nccl", availability("nccl"), why_not);
  const bool shared_memory = asked == "shm" || (asked == "auto" && implementation == CommunicationImplementation::Auto);
  if (!nccl && !nccl_only && shared_memory) {
    std::string reason;
    memory_ = comm::SharedMemory::connect(job_, name_ + "/memory", timeout_, reason);
    if (memory_) {
      const comm::SharedAllocation puts_the_allocator_in_place(true);  // while no replica computes
      engine_ = "shm";
      reason_ = c10::str("all ", count(), " workers are on one machine and share memory");
      return;
    }
    why_not += c10::str(why_not.empty() ? "" : "; ", "shm: ", reason);
  }
  for (const Preference& preference : kMessageEngines) {
    const bool fits = asked == "auto" || asked == preference.engine || nccl;
    if (!fits || (nccl_only && !nccl) || !all_have(preference.engine, availability(preference.engine), why_not))
      continue;
    host_engine_ = preference.engine;
    engine_ = nccl ? "nccl" : host_engine_;
    reason_ = nccl ? "the replicas are on GPUs" : asked == "auto" ? preference.reason : "LOCKSTEP_ENGINE asks for it";
    return;
  }
  LOCKSTEP_CHECK_VALUE(
      false, "[MultiWorkerMirroredStrategy] no engine can carry collectives between the workers: asked=", asked,
      ", communication=", implementation.name(), "; ", why_not);
}

std::shared_ptr<comm::WorkerGroups> Workers::make_groups(const std::string& purpose, int ranks_per_worker) {
  const std::string name = c10::str(name_, "/", purpose);
  std::shared_ptr<comm::WorkerGroups> groups;
  if (memory_) {
    groups = comm::make_shm_groups(std::make_shared<comm::SharedRendezvous>(memory_, name, ranks_per_worker, timeout_));
  } else {
    const auto transport = host_engine_ == "mpi" ? comm::make_mpi_transport(*job_, name, ranks_per_worker, timeout_)
                                                 : comm::make_gloo_transport(*job_, name, ranks_per_worker, timeout_);
    const bool on_devices = engine_ == "nccl" && ranks_per_worker == static_cast<int>(devices_.size());
    groups = comm::make_message_groups(
        job_, transport, name, ranks_per_worker, timeout_,
        on_devices ? comm::make_nccl_transport(*job_, name, ranks_per_worker, devices_, timeout_) : nullptr);
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
  comm::dump_failure(failure != nullptr ? failure->reason : "an exception left a run");
}

}  // namespace lockstep::detail
