#include "lockstep/comm/shared/shared_rendezvous.h"

#include <atomic>
#include <cstring>
#include <linux/futex.h>
#include <new>
#include <sstream>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/trace/trace.h"
#include "lockstep/comm/diagnostics/dump.h"
#include "lockstep/comm/diagnostics/worker_error.h"

namespace lockstep::comm {
namespace {

using Clock = std::chrono::steady_clock;
using detail::Patience;
using detail::spin_then_sleep;

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

/// How long a waiting rank sleeps before it checks the state of the job.
constexpr std::chrono::milliseconds kSlice{50};
constexpr std::chrono::seconds kReminder{60};
constexpr std::chrono::seconds kExplain{2};
/// How long a rank that fails waits for ranks of other workers that still write into its memory.
constexpr std::chrono::seconds kWriteTime{5};
/// The group has ended; the other bits count the arrivals before that.
constexpr uint64_t kEnded = 1ull << 63;

void sleep_on(std::atomic<uint32_t>& word, uint32_t seen, std::chrono::milliseconds limit) {
  const timespec time{limit.count() / 1000, limit.count() % 1000 * 1'000'000};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, seen, &time, nullptr, 0);
}

void wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

}  // namespace

/// What a rank publishes; written by its owner alone.
struct alignas(128) SharedRendezvous::Slot {
  std::atomic<uint64_t> arrived;
  uint64_t fingerprint;
  uint64_t run;
  uint64_t descriptor;
  /// The public operation, for error messages of ranks that wait for this one.
  char operation[32];
  /// Number of the call that `text` describes; only written when calls differ.
  std::atomic<uint64_t> explained;
  char text[384];
  alignas(128) std::atomic<uint64_t> departed;
  /// The call that the rank departed from with an error.
  std::atomic<uint64_t> failed_call;
  /// The last run that the rank has ended.
  std::atomic<uint64_t> left_run;
  std::atomic<uint64_t> failed_run;
};

struct alignas(128) SharedRendezvous::Control {
  std::atomic<uint32_t> bell;
  std::atomic<uint32_t> sleepers;
  /// All arrivals of all ranks, and kEnded: one word, so that all its changes have one order, and so that a process
  /// that dies leaves no change half done.
  alignas(128) std::atomic<uint64_t> arrivals;
};

/// Private state of a local rank.
struct SharedRendezvous::Own {
  uint64_t calls = 0;
  char* descriptor = nullptr;
  size_t descriptor_bytes = 0;
  Patience patience;
};

SharedRendezvous::SharedRendezvous(std::shared_ptr<SharedMemory> memory, std::string name, int ranks_per_worker,
                                   std::chrono::milliseconds timeout)
    : memory_(std::move(memory)),
      name_(std::move(name)),
      ranks_per_worker_(ranks_per_worker),
      timeout_(timeout),
      own_(static_cast<size_t>(ranks_per_worker)),
      recorder_(ranks_per_worker) {
  const auto num_ranks = static_cast<size_t>(job().num_workers() * ranks_per_worker);
  const size_t bytes = sizeof(Control) + num_ranks * sizeof(Slot) + alignof(Slot);
  std::string where;
  if (job().worker() == 0) {
    void* made = memory_->own().allocate(bytes);
    LOCKSTEP_ASSERT(made != nullptr, "shared memory is full");
    std::memset(made, 0, bytes);
    where = std::to_string(memory_->own().offset_of(made));
    job().set(name_ + "/control", where);
  } else {
    where = job().get(name_ + "/control", timeout);
  }
  char* begin = memory_->at(0, std::stoull(where));
  begin += (alignof(Slot) - reinterpret_cast<uintptr_t>(begin) % alignof(Slot)) % alignof(Slot);
  control_ = reinterpret_cast<Control*>(begin);
  slots_ = {reinterpret_cast<Slot*>(begin + sizeof(Control)), num_ranks};
  num_forks_ = num_forks();
  watch_ = job().on_change([this] { ring(); });
}

// The control block of worker 0 stays in its arena: a slower worker may still read it.
SharedRendezvous::~SharedRendezvous() {
  watch_.reset();
  for (const Own& own : own_) {
    if (own.descriptor != nullptr) memory_->own().free(own.descriptor);
  }
}

int SharedRendezvous::size() const { return static_cast<int>(slots_.size()); }

void SharedRendezvous::ring() {
  control_->bell.fetch_add(1, std::memory_order_seq_cst);
  wake_all(control_->bell);
}

char* SharedRendezvous::descriptor(int local, size_t bytes) {
  Own& own = own_[static_cast<size_t>(local)];
  if (own.descriptor_bytes < bytes) {
    if (own.descriptor != nullptr) memory_->own().free(own.descriptor);
    own.descriptor = static_cast<char*>(memory_->own().allocate(bytes));
    LOCKSTEP_CHECK_COLLECTIVE(own.descriptor != nullptr, "[", name_, "] shared memory is full: bytes=", bytes);
    own.descriptor_bytes = bytes;
  }
  return own.descriptor;
}

const char* SharedRendezvous::descriptor_of(int rank) const {
  return memory_->at(worker_of(rank), slots_[static_cast<size_t>(rank)].descriptor);
}

/// Waits until `ready`, spinning first; false at the limit. Calls `check`, which may throw, before each sleep.
template <typename Ready, typename Check>
bool SharedRendezvous::wait(Own& own, Ready ready, std::chrono::milliseconds limit, Check check) {
  const trace::Span waiting(trace::Phase::Waiting, "wait for workers");
  Clock::time_point deadline{};
  return spin_then_sleep(own.patience, ready, [&] {
    if (deadline == Clock::time_point{}) deadline = Clock::now() + limit;
    check();
    if (Clock::now() >= deadline) return false;
    control_->sleepers.fetch_add(1, std::memory_order_seq_cst);
    const uint32_t seen = control_->bell.load(std::memory_order_seq_cst);
    if (!ready()) sleep_on(control_->bell, seen, kSlice);
    control_->sleepers.fetch_sub(1, std::memory_order_seq_cst);
    return true;
  });
}

void SharedRendezvous::check_alive(const CollectiveCall& call, int rank) const {
  if (const JobFailure* failure = job().failure()) throw_worker_failure(*failure, call, rank, name_);
  for (int worker = 0; worker < job().num_workers(); ++worker) {
    if (job().has_left(worker)) throw_worker_left(job(), worker, call, rank, name_);
  }
}

void SharedRendezvous::leave(int local, bool failed) {
  Slot& slot = slots_[static_cast<size_t>(rank_of(local))];
  if (failed) slot.failed_run.store(run_, std::memory_order_seq_cst);
  slot.left_run.store(run_, std::memory_order_seq_cst);
  if (control_->sleepers.load(std::memory_order_seq_cst) > 0) ring();
}

/// Another rank has failed. Its worker reports the reason to the job, which takes longer than shared memory.
void SharedRendezvous::wait_for_reason(const CollectiveCall& call, int rank) const {
  for (const auto until = Clock::now() + kExplain; Clock::now() < until;) {
    check_alive(call, rank);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void SharedRendezvous::check_still_in_run(const CollectiveCall& call, int rank, uint64_t target) const {
  for (size_t other = 0; run_ > 0 && other < slots_.size(); ++other) {
    const bool gone = slots_[other].left_run.load(std::memory_order_acquire) >= run_;
    if (gone && slots_[other].arrived.load(std::memory_order_acquire) < target) {
      if (slots_[other].failed_run.load(std::memory_order_acquire) >= run_) wait_for_reason(call, rank);
      throw_rank_left(job(), worker_of(static_cast<int>(other)), static_cast<int>(other), run_, call, rank, name_);
    }
  }
}

bool SharedRendezvous::count_arrival() {
  uint64_t word = control_->arrivals.load(std::memory_order_relaxed);
  do {
    if ((word & kEnded) != 0) return false;
  } while (!control_->arrivals.compare_exchange_weak(word, word + 1, std::memory_order_seq_cst));
  return true;
}

bool SharedRendezvous::give_up(uint64_t target) {
  uint64_t word = control_->arrivals.load(std::memory_order_seq_cst);
  do {
    if ((word & ~kEnded) >= target) return false;
    if ((word & kEnded) != 0) return true;
  } while (!control_->arrivals.compare_exchange_weak(word, word | kEnded, std::memory_order_seq_cst));
  ring();
  return true;
}

void SharedRendezvous::wait_for_arrivals(Own& own, const CollectiveCall& call, int rank,
                                         std::chrono::milliseconds limit) {
  const uint64_t target = own.calls * slots_.size();
  uint64_t word = 0;
  const auto decided = [&] {
    word = control_->arrivals.load(std::memory_order_seq_cst);
    return word >= target;  // kEnded is above all counts
  };
  const auto check = [&] {
    check_alive(call, rank);
    check_still_in_run(call, rank, own.calls);
  };
  try {
    if (!count_arrival()) {
      word = kEnded;
    } else {
      if (control_->sleepers.load(std::memory_order_seq_cst) > 0) ring();
      if (!wait(own, decided, limit, check)) throw_worker_late(missing(own.calls), limit, call, rank, name_);
    }
    if ((word & ~kEnded) >= target) return;
    wait_for_reason(call, rank);
    throw_engine_failure("another rank has ended the group", call, rank, name_);
  } catch (const c10::Error&) {
    if (give_up(target)) throw;  // else all have arrived meanwhile
  }
}

void SharedRendezvous::arrive(int local, const CollectiveCall& call, std::chrono::milliseconds timeout) {
  LOCKSTEP_CHECK_COLLECTIVE(num_forks_ == num_forks(), "[", call.operation,
                            "] a forked process is no member of the job: group=", name_,
                            "; use the strategy in the process that made it");
  Own& own = own_[static_cast<size_t>(local)];
  const int rank = rank_of(local);
  Slot& slot = slots_[static_cast<size_t>(rank)];
  const uint64_t target = ++own.calls;
  slot.fingerprint = call.fingerprint();
  slot.run = run_;
  slot.descriptor = own.descriptor == nullptr ? 0 : memory_->own().offset_of(own.descriptor);
  const size_t length = std::min(call.operation.size(), sizeof(slot.operation) - 1);
  std::memcpy(slot.operation, call.operation.data(), length);
  slot.operation[length] = '\0';
  recorder_.begin(local, target, call);
  slot.arrived.store(target, std::memory_order_seq_cst);
  try {
    wait_for_arrivals(own, call, rank, timeout.count() > 0 ? timeout : timeout_);
    size_t other = 0;
    while (other < slots_.size() && slots_[other].fingerprint == slot.fingerprint && slots_[other].run == run_) ++other;
    if (C10_UNLIKELY(other < slots_.size())) explain_difference(local, call, other);
  } catch (const c10::Error& error) {
    // No rank writes: calls that differ are detected by all.
    tell_failure(local, error.what_without_backtrace());
    throw;
  }
}

/// Writes what this rank calls, reads what the other rank calls, and throws.
void SharedRendezvous::explain_difference(int local, const CollectiveCall& call, size_t other) {
  const int rank = rank_of(local);
  Slot& slot = slots_[static_cast<size_t>(rank)];
  Own& own = own_[static_cast<size_t>(local)];
  const std::string text = call.describe();
  const size_t length = std::min(text.size(), sizeof(slot.text) - 1);
  std::memcpy(slot.text, text.data(), length);
  slot.text[length] = '\0';
  slot.explained.store(own.calls, std::memory_order_seq_cst);
  ring();
  const Slot& theirs = slots_[other];
  const auto known = [&] { return theirs.explained.load(std::memory_order_acquire) == own.calls; };
  const bool explained = wait(own, known, kExplain, [] {});
  const auto worker_name = [&](size_t of) { return job().name(worker_of(static_cast<int>(of))); };
  throw_difference(
      {rank, worker_name(static_cast<size_t>(rank)), text, slot.run},
      {static_cast<int>(other), worker_name(other), explained ? theirs.text : theirs.operation, theirs.run}, call,
      own.calls, name_);
}

void SharedRendezvous::depart(int local) {
  Own& own = own_[static_cast<size_t>(local)];
  Slot& slot = slots_[static_cast<size_t>(rank_of(local))];
  slot.departed.store(own.calls, std::memory_order_seq_cst);
  if (control_->sleepers.load(std::memory_order_seq_cst) > 0) ring();
  const auto all_done = [&] {
    for (const Slot& other : slots_) {
      if (other.departed.load(std::memory_order_acquire) < own.calls) return false;
    }
    return true;
  };
  const CollectiveCall call{.operation = slot.operation};
  auto reminder = Clock::now() + kReminder;
  const auto check = [&] {
    try {
      check_alive(call, rank_of(local));
    } catch (const c10::Error&) {
      if (!all_done()) throw;  // a worker may leave or fail after it is done
    }
    if (Clock::now() < reminder) return;
    reminder += kReminder;
    LOCKSTEP_LOG(Warn) << "rank " << rank_of(local) << " of group " << name_ << " has done its part of call "
                       << own.calls << " and waits for the other ranks";
  };
  try {
    wait(own, all_done, std::chrono::hours(24 * 365), check);
    for (const Slot& other : slots_) {
      if (other.failed_call.load(std::memory_order_acquire) < own.calls) continue;
      wait_for_reason(call, rank_of(local));
      throw_engine_failure("another rank has failed in the call", call, rank_of(local), name_);
    }
  } catch (const c10::Error& error) {
    fail(local, error.what_without_backtrace());
    throw;
  }
  recorder_.end(local, Record::State::Done);
}

void SharedRendezvous::tell_failure(int local, const std::string& reason) {
  recorder_.end(local, Record::State::Failed);
  job().fail(reason);
  dump_failure(reason);
}

void SharedRendezvous::fail(int local, const std::string& reason) {
  tell_failure(local, reason);
  wait_for_writers(local);
}

/// The collective has taken place, and this rank fails in it: waits until no other rank writes into its memory.
void SharedRendezvous::wait_for_writers(int local) {
  Own& own = own_[static_cast<size_t>(local)];
  Slot& slot = slots_[static_cast<size_t>(rank_of(local))];
  slot.failed_call.store(own.calls, std::memory_order_seq_cst);
  slot.departed.store(own.calls, std::memory_order_seq_cst);
  ring();
  const auto is_gone = [&](int worker) {
    const JobFailure* failure = job().failure();
    const bool lost = failure != nullptr && failure->worker == worker && failure->kind != JobFailure::Kind::Failed;
    return lost || job().has_left(worker);
  };
  const auto all_done = [&] {
    for (size_t rank = 0; rank < slots_.size(); ++rank) {
      const bool done = slots_[rank].departed.load(std::memory_order_acquire) >= own.calls;
      if (!done && !is_gone(worker_of(static_cast<int>(rank)))) return false;
    }
    return true;
  };
  wait(own, all_done, kWriteTime, [] {});
}

std::string SharedRendezvous::missing(uint64_t target) const {
  std::ostringstream out;
  const char* separator = "";
  for (size_t rank = 0; rank < slots_.size(); ++rank) {
    const uint64_t arrived = slots_[rank].arrived.load(std::memory_order_acquire);
    if (arrived >= target) continue;
    out << separator << "rank " << rank << " of " << job().name(worker_of(static_cast<int>(rank))) << " (last call: ";
    if (arrived == 0) {
      out << "none)";
    } else {
      out << "number " << arrived << ", " << slots_[rank].operation << ")";
    }
    separator = ", ";
  }
  return out.str();
}

}  // namespace lockstep::comm
