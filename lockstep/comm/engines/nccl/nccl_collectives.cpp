#include "lockstep/comm/engines/nccl/nccl_collectives.h"

#include <algorithm>
#include <cstring>

#include "lockstep/base/backoff.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/engines/nccl/current_device.h"
#include "lockstep/comm/engines/nccl/detached_calls.h"
#include "lockstep/comm/engines/nccl/operations.h"

namespace lockstep::comm {
namespace {

constexpr std::chrono::microseconds kSettlePoll{50};
constexpr std::chrono::milliseconds kWatchPoll{5};
/// How long finalizing and aborting may take.
constexpr std::chrono::seconds kFinalizeLimit{10};
constexpr std::chrono::seconds kAbortLimit{30};
/// How long work in flight may go on after a rank has failed.
constexpr std::chrono::seconds kGrace{3};
/// By how much the job may hear of a lost worker later than NCCL does.
constexpr std::chrono::seconds kJobDetectionTime{1};

bool is_error(ncclResult_t code) { return code != ncclSuccess && code != ncclInProgress; }

std::string error_words(ncclResult_t code) {
  return std::string(ncclGetErrorString(code)) + ": " + ncclGetLastError(nullptr);
}

}  // namespace

NcclCollectives::NcclCollectives(const DeviceCollectivesOptions& options) : options_(options) {
  LOCKSTEP_CHECK_VALUE(!options.devices.empty(), "[nccl] a group needs GPUs: group=", options.name);
  if (options_.job) connect();
}

NcclCollectives::~NcclCollectives() {
  finish_work();
  stop_watching();
  heed_job();
  if (has_failed()) {
    abort_all(communicators_);
    return;
  }
  const auto deadline = Clock::now() + kFinalizeLimit;
  bool is_whole = true;
  for (const auto& communicator : communicators_) is_whole = !is_error(communicator->finalize()) && is_whole;
  for (const auto& communicator : communicators_) {
    while (communicator->state() == ncclInProgress && Clock::now() < deadline) std::this_thread::sleep_for(kSettlePoll);
    is_whole = communicator->state() == ncclSuccess && is_whole;
  }
  if (!is_whole) {
    abort_all(communicators_);
    return;
  }
  for (const auto& communicator : communicators_) communicator->destroy();
}

/// Work in flight is done, or fails by the limits of its calls.
void NcclCollectives::finish_work() const {
  const auto is_done = [&] {
    return has_failed() || std::all_of(communicators_.begin(), communicators_.end(),
                                       [](const auto& communicator) { return communicator->is_idle(); });
  };
  while (connected_.load(std::memory_order_acquire) && !is_done()) std::this_thread::sleep_for(kSettlePoll);
}

bool NcclCollectives::reduces(c10::ScalarType dtype) const { return nccl_dtype(dtype).has_value(); }

int NcclCollectives::first_rank() const {
  return options_.job ? options_.job->worker() * static_cast<int>(options_.devices.size()) : 0;
}

int NcclCollectives::num_ranks() const {
  return static_cast<int>(options_.devices.size()) * (options_.job ? options_.job->num_workers() : 1);
}

/// The first worker makes the identity of the communicator; the others get it from the job.
ncclUniqueId NcclCollectives::make_id() {
  ncclUniqueId id{};
  Job* const job = options_.job.get();
  const std::string key = c10::str(options_.name, "/nccl-", num_connects_++);
  if (job == nullptr || job->worker() == 0) {
    const auto code = ncclGetUniqueId(&id);
    LOCKSTEP_CHECK_COLLECTIVE(code == ncclSuccess, "[nccl] ncclGetUniqueId failed: group=", options_.name,
                              "; NCCL says: ", error_words(code));
    if (job != nullptr) job->set(key, std::string(id.internal, sizeof(id.internal)));
    return id;
  }
  const auto text = job->get(key, options_.timeout);
  LOCKSTEP_ASSERT(text.size() == sizeof(id.internal), "size=", text.size());
  std::memcpy(id.internal, text.data(), text.size());
  return id;
}

NcclCollectives::Communicators NcclCollectives::make_communicators() {
  const std::string text = c10::str("connecting ", num_ranks(), " ranks");
  const auto deadline = Clock::now() + std::max(options_.timeout, options_.connect_timeout);
  Communicators made;
  for (size_t local = 0; local < options_.devices.size(); ++local) {
    made.push_back(std::make_shared<Communicator>(options_.devices[local], first_rank() + static_cast<int>(local)));
  }
  try {
    const auto id = make_id();
    auto code = ncclGroupStart();
    for (const auto& communicator : made) {
      if (!is_error(code)) code = communicator->join(num_ranks(), id);
    }
    const auto ended = ncclGroupEnd();
    settle(made, is_error(code) ? code : ended, text, deadline);
  } catch (...) {
    abort_all(made);
    throw;
  }
  return made;
}

void NcclCollectives::connect() {
  if (connected_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(connect_mutex_);
  if (connected_.load(std::memory_order_acquire)) return;
  if (has_failed()) throw_failure("connect");
  communicators_ = make_communicators();
  start_watching();
  connected_.store(true, std::memory_order_release);
}

void NcclCollectives::settle(const Communicators& communicators, ncclResult_t code, const std::string& text,
                             Clock::time_point deadline) {
  if (is_error(code)) fail_and_throw(cause_of(c10::str(text, ": NCCL says: ", error_words(code))), text);
  for (const auto& communicator : communicators) {
    ncclResult_t state = ncclInProgress;
    detail::Patience patience;
    const auto is_settled = [&] {
      if (has_failed()) throw_failure(text);
      state = communicator->state();
      if (is_error(state)) {
        const std::string words = communicator->words(state);
        fail_and_throw(cause_of(c10::str(text, " of rank ", communicator->rank(), ": NCCL says: ", words)), text);
      }
      return state == ncclSuccess;
    };
    detail::spin_then_sleep(patience, is_settled, [&] {
      if (options_.job && options_.job->failure() != nullptr) {
        fail_and_throw(options_.job->failure()->reason, text);
      }
      if (Clock::now() >= deadline) {
        fail_and_throw(c10::str(text, " of rank ", communicator->rank(), " waited too long for other ranks"), text);
      }
      std::this_thread::sleep_for(kSettlePoll);
      return true;
    });
  }
}

void NcclCollectives::run(std::span<const RankOperations> work, const DeviceCall& call) {
  if (has_failed()) throw_failure(call.text);
  if (!connected_.load(std::memory_order_acquire)) {
    for (const RankOperations& of_rank : work) {
      LOCKSTEP_CHECK_CONTEXT(!is_capturing(options_.devices[static_cast<size_t>(of_rank.local)]),
                             "[nccl] ranks connect before work is captured: group=", options_.name,
                             ", call=", call.text, "; call the function once without capture");
    }
    connect();
  }
  try {
    queue(work, {call.text, call.timeout.count() > 0 ? call.timeout : options_.timeout});
  } catch (const c10::Error& error) {
    // The other ranks may have queued theirs. error_text(std::current_exception()) crashes in an engine where libstdc++
    // is linked statically into each library.
    fail(error.what_without_backtrace());
    throw;
  } catch (const std::exception& error) {
    fail(error.what());
    throw;
  } catch (...) {
    fail(c10::str(call.text, " could not be queued"));
    throw;
  }
}

void NcclCollectives::queue(std::span<const RankOperations> work, const DeviceCall& call) {
  const auto deadline = Clock::now() + call.timeout;
  Communicators ranks;
  std::vector<Communicator::Work> begun;
  for (const RankOperations& of_rank : work) {
    ranks.push_back(communicators_[static_cast<size_t>(of_rank.local)]);
    begun.push_back(ranks.back()->begin());
  }
  ncclResult_t code = ncclSuccess;
  {
    std::vector<std::unique_lock<std::timed_mutex>> in_use;
    for (const auto& rank : ranks) in_use.push_back(rank->use());
    code = ncclGroupStart();
    for (size_t i = 0; i < work.size(); ++i) {
      if (!is_error(code)) code = ranks[i]->post(work[i].operations);
    }
    const auto ended = ncclGroupEnd();
    if (!is_error(code)) code = ended;
  }
  const auto end = [&] {
    for (size_t i = 0; i < work.size(); ++i) ranks[i]->end(begun[i], call);
  };
  try {
    if (has_failed()) throw_failure(call.text);
    settle(ranks, code, call.text, deadline);
  } catch (...) {
    end();  // memory of the call is not used again before kernels in flight have ended
    throw;
  }
  end();
}

std::optional<int> NcclCollectives::worker_that_left() const {
  for (int worker = 0; options_.job && worker < options_.job->num_workers(); ++worker) {
    if (options_.job->has_left(worker)) return worker;
  }
  return std::nullopt;
}

std::string NcclCollectives::cause_of(const std::string& problem) const {
  if (!options_.job) return problem;
  for (const auto deadline = Clock::now() + kJobDetectionTime; Clock::now() < deadline && !has_failed();) {
    if (const JobFailure* const failure = options_.job->failure()) return failure->reason;
    if (const auto worker = worker_that_left()) return options_.job->name(*worker) + " has left the job; " + problem;
    std::this_thread::sleep_for(kWatchPoll);
  }
  return problem;
}

void NcclCollectives::heed_job() {
  if (!options_.job) return;
  if (const JobFailure* const failure = options_.job->failure()) fail(failure->reason);
  if (worker_that_left()) give_up_soon();
}

void NcclCollectives::fail(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (has_failed()) return;
    reason_ = reason;
    failed_.store(true, std::memory_order_release);
  }
  wake_.notify_all();
}

void NcclCollectives::throw_failure(const std::string& text) {
  const std::lock_guard lock(mutex_);
  reported_ = true;
  LOCKSTEP_THROW(CollectiveError, "[nccl] collectives between the GPUs of this group have been ended: call=", text,
                 ", group=", options_.name, "; reason: ", reason_, "; ",
                 options_.job ? "a new strategy joins a new job"
                              : "the next run connects the replicas again; parameters that were updated since may hold "
                                "anything: restore a checkpoint");
}

void NcclCollectives::fail_and_throw(const std::string& reason, const std::string& text) {
  fail(reason);
  throw_failure(text);
}

void NcclCollectives::abort(const std::string& reason) { fail(reason); }

void NcclCollectives::give_up_soon() {
  if (!connected_.load(std::memory_order_acquire)) return;
  for (const auto& communicator : communicators_) communicator->shorten(kGrace);
}

void NcclCollectives::check(const char* asks) {
  if (has_failed()) throw_failure(asks);
}

void NcclCollectives::renew() {
  if (!has_failed()) return;
  if (options_.job || !reported_) throw_failure("begin of the run");
  stop_watching();
  abort_all(communicators_);
  communicators_.clear();
  connected_.store(false);
  const std::lock_guard lock(mutex_);
  reason_.clear();
  reported_ = false;
  failed_.store(false, std::memory_order_release);
}

void NcclCollectives::start_watching() {
  stops_ = false;
  watcher_ = std::thread([this] { watch(); });
}

void NcclCollectives::stop_watching() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  wake_.notify_all();
  if (watcher_.joinable()) watcher_.join();
}

void NcclCollectives::watch() {
  cudaSetDevice(options_.devices[0]);
  // Another thread may be capturing: events that are not part of it may be queried all the same.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cudaThreadExchangeStreamCaptureMode(&mode);
  std::unique_lock lock(mutex_);
  while (!stops_) {
    if (has_failed()) {
      const std::string reason = reason_;
      lock.unlock();
      LOCKSTEP_LOG(Warn) << "[nccl] collectives of group " << options_.name << " are ended: " << reason;
      if (options_.job) options_.job->fail(reason);  // first: streams go on when their work is ended
      abort_all(communicators_);
      return;
    }
    lock.unlock();
    heed_job();
    for (const auto& communicator : communicators_) {
      if (auto problem = communicator->problem()) fail(cause_of(*problem));
    }
    lock.lock();
    if (!has_failed()) wake_.wait_for(lock, kWatchPoll);
  }
}

void NcclCollectives::abort_all(const Communicators& communicators) const {
  std::vector<std::function<void()>> aborts;
  for (const auto& communicator : communicators) aborts.emplace_back([communicator] { communicator->abort(); });
  if (const size_t left = call_detached(std::move(aborts), kAbortLimit); left > 0) {
    LOCKSTEP_LOG(Error) << "[nccl] NCCL does not end the work of group " << options_.name << ": ranks=" << left;
  }
}

}  // namespace lockstep::comm
