#include "lockstep/comm/job_engine.h"

#include <algorithm>
#include <array>
#include <map>
#include <sstream>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/device_collectives.h"
#include "lockstep/comm/diagnostics/dump.h"
#include "lockstep/comm/engines.h"
#include "lockstep/comm/engines/shm/shm.h"
#include "lockstep/comm/messages/message_groups.h"
#include "lockstep/comm/transport/engine_module.h"

namespace lockstep::comm {
namespace {

/// Engines for the memory of hosts in the order in which they are tried, and why each is taken.
struct EnginePreference {
  const char* engine;
  const char* reason;
};
constexpr std::array kMessageEngines{
    EnginePreference{"mpi", "the job was started by MPI, whose network is the fastest there"},
    EnginePreference{"gloo", "it works between any hosts"},
};

constexpr std::chrono::milliseconds kReadTime{5000};

/// Names the cards of this process, one a line; equal lines are one card. CUDA_VISIBLE_DEVICES does not matter.
std::string card_names(const std::vector<int>& gpus) {
  const EngineModule& nccl = load_engine("nccl");
  std::string all;
  for (const int gpu : gpus) all += nccl.card_of(gpu) + "\n";
  return all;
}

/// A group whose recorder is part of the process's dumps for as long as it lives.
struct DumpedGroups {
  std::shared_ptr<WorkerGroups> groups;
  DumpedRecorder recorder;
};

}  // namespace

JobEngine::JobEngine(std::shared_ptr<Job> job, EngineRequest request)
    : job_(std::move(job)), request_(std::move(request)), asked_(env::text("LOCKSTEP_ENGINE")) {
  choose();
}

JobEngine::~JobEngine() = default;

void JobEngine::choose() {
  LOCKSTEP_CHECK_VALUE(asked_ == "auto" || asked_ == "shm" || asked_ == "gloo" || asked_ == "mpi" || asked_ == "nccl",
                       "[environment] the engine must be auto, shm, gloo, mpi or nccl: LOCKSTEP_ENGINE=", asked_);
  const auto implementation = request_.implementation;
  const bool any = asked_ == "auto" && implementation == CommunicationImplementation::Auto;
  const bool nccl_only = asked_ == "nccl" || (asked_ == "auto" && implementation == CommunicationImplementation::Nccl);
  LOCKSTEP_CHECK_VALUE(!nccl_only || !request_.gpus.empty(), "[", request_.operation,
                       "] NCCL works between GPUs, and the replicas are on CPUs; use AUTO or RING");
  const bool nccl = (nccl_only || (any && !request_.gpus.empty())) && can_use_nccl(nccl_only);
  if (nccl && choose_for_messages(true)) return;
  if (nccl && !nccl_only && job_->worker() == 0) {
    LOCKSTEP_LOG(Warn) << "[" << request_.operation << "] collectives between GPUs go through the host: " << refusals_;
  }
  if (!nccl_only && (asked_ == "shm" || any) && connect_memory()) return;
  if (!nccl_only && !nccl && choose_for_messages(false)) return;
  wait_for_readers("engines");
  LOCKSTEP_CHECK_VALUE(false, "[", request_.operation,
                       "] no engine can carry collectives between the workers: asked=", asked_,
                       ", communication=", implementation.name(), "; ", refusals_);
}

bool JobEngine::can_use_nccl(bool is_asked_for) {
  if (!all_workers_have("nccl")) return false;
  if (takes_ranks_of_one_card()) return true;
  const std::string shared = ranks_on_one_card();
  if (shared.empty()) return true;
  wait_for_readers("cards");
  LOCKSTEP_CHECK_VALUE(!is_asked_for, "[", request_.operation, "] NCCL needs a card for each replica: ", shared,
                       "; use RING, LOCKSTEP_ENGINE=gloo or shm, or give each worker cards of its own with "
                       "CUDA_VISIBLE_DEVICES");
  add_refusal("nccl: " + shared);
  return false;
}

bool JobEngine::connect_memory() {
  std::string why_not;
  memory_ = SharedMemory::connect(job_, request_.name + "/memory", request_.timeout, why_not);
  if (!memory_) {
    add_refusal("shm: " + why_not);
    return false;
  }
  const SharedAllocation installs_the_allocator(true);  // before any replica computes
  name_ = "shm";
  reason_ = c10::str("all ", job_->num_workers(), " workers are on one machine and share memory",
                     refusals_.empty() ? "" : "; " + refusals_);
  return true;
}

bool JobEngine::choose_for_messages(bool with_nccl) {
  for (const EnginePreference& preference : kMessageEngines) {
    const bool fits = asked_ == "auto" || asked_ == preference.engine || with_nccl;
    if (!fits || !all_workers_have(preference.engine)) continue;
    host_engine_ = preference.engine;
    name_ = with_nccl ? "nccl" : host_engine_;
    reason_ = with_nccl          ? "the replicas are on GPUs"
              : asked_ == "auto" ? preference.reason
                                 : "LOCKSTEP_ENGINE asks for it";
    return true;
  }
  if (with_nccl) add_refusal("nccl: it needs mpi or gloo for what the hosts exchange");
  return false;
}

/// Whether all workers can use an engine; where one cannot, it and its reason are noted.
bool JobEngine::all_workers_have(std::string_view engine) {
  const Engine own = find_engine(engine);
  const auto reasons = job_->all_gather(c10::str(request_.name, "/has/", engine),
                                        own.available ? "" : std::string(own.why_not), request_.timeout);
  for (int worker = 0; worker < job_->num_workers(); ++worker) {
    const std::string& reason = reasons[static_cast<size_t>(worker)];
    if (reason.empty()) continue;
    add_refusal(c10::str(engine, ": ", job_->name(worker), ": ", reason));
    return false;
  }
  return true;
}

std::string JobEngine::ranks_on_one_card() {
  const auto cards = job_->all_gather(request_.name + "/cards", card_names(request_.gpus), request_.timeout);
  std::map<std::string, std::string> owners;
  std::string shared;
  for (int worker = 0; worker < job_->num_workers(); ++worker) {
    std::istringstream in(cards[static_cast<size_t>(worker)]);
    int gpu = 0;
    for (std::string card; std::getline(in, card); ++gpu) {
      const auto [owner, is_new] = owners.emplace(card, c10::str("replica ", gpu, " of ", job_->name(worker)));
      if (is_new || !shared.empty()) continue;
      shared = c10::str("card=", card, " of ", owner->second, " and replica ", gpu, " of ", job_->name(worker));
    }
  }
  return shared;
}

/// Waits until all workers have read what each has said: those who throw then leave the job. Not for long: another
/// worker may have other settings, and be elsewhere.
void JobEngine::wait_for_readers(const char* what) {
  try {
    job_->all_gather(c10::str(request_.name, "/", what, "/read"), "", std::min(request_.timeout, kReadTime));
  } catch (const CollectiveError&) {
    // Somebody has read and gone.
  }
}

void JobEngine::add_refusal(const std::string& text) { refusals_ += (refusals_.empty() ? "" : "; ") + text; }

std::shared_ptr<WorkerGroups> JobEngine::make_groups(const std::string& purpose, int ranks_per_worker) {
  const std::string name = c10::str(request_.name, "/", purpose);
  std::shared_ptr<WorkerGroups> groups;
  if (memory_) {
    groups = make_shm_groups(std::make_shared<SharedRendezvous>(memory_, name, ranks_per_worker, request_.timeout));
  } else {
    TransportOptions options{.name = name, .num_lanes = ranks_per_worker, .timeout = request_.timeout};
    auto transport = make_transport(host_engine_, *job_, options);
    std::shared_ptr<Transport> device_transport;
    std::shared_ptr<DeviceCollectives> collectives;
    if (name_ == "nccl" && ranks_per_worker == static_cast<int>(request_.gpus.size())) {
      options.devices = request_.gpus;
      device_transport = make_transport("nccl", *job_, options);
      if (!request_.deterministic) {
        collectives =
            make_device_collectives({.name = name, .devices = request_.gpus, .timeout = request_.timeout, .job = job_});
      }
    }
    groups = make_message_groups(job_, std::move(transport), name, ranks_per_worker, request_.timeout,
                                 std::move(device_transport), std::move(collectives));
  }
  const auto dumped = std::shared_ptr<DumpedGroups>(
      new DumpedGroups{groups, DumpedRecorder(purpose, job_->worker() * ranks_per_worker, groups->recorder())});
  return {dumped, dumped->groups.get()};
}

}  // namespace lockstep::comm
