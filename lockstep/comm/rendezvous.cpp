#include "lockstep/comm/rendezvous.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <sstream>
#include <vector>

#include "lockstep/base/backoff.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/trace/trace.h"

namespace lockstep::comm {
namespace {

using Clock = std::chrono::steady_clock;
using detail::Patience;
using detail::relax_core;
using detail::spin_then_sleep;

constexpr uint64_t kFailed = 1ull << 63;
constexpr uint64_t kUnknown = ~0ull;
constexpr Clock::duration kReminder = std::chrono::seconds(60);
constexpr auto kDefaultTimeout = std::chrono::minutes(30);

/// Why a rank will not arrive again in this round.
enum Presence : int { kHere, kReturned, kThrew };

std::string message_of(const std::exception_ptr& cause) {
  if (!cause) return "no reason given";
  try {
    std::rethrow_exception(cause);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

[[noreturn]] void throw_collective(const std::string& text) { LOCKSTEP_THROW(CollectiveError, text); }

struct alignas(128) Slot {
  // Published by the rank before it counts itself as arrived, read by the others after all have arrived.
  std::atomic<const CollectiveCall*> call{nullptr};
  std::atomic<uint64_t> fingerprint{0};
  std::atomic<uint64_t> arrived{0};
  std::atomic<int> presence{kHere};
  std::exception_ptr cause;

  // Used by the rank alone.
  alignas(128) std::atomic<uint64_t> generation{0};
  std::atomic<uint64_t> sequence{0};
  std::atomic<bool> inside{false};
  std::vector<const CollectiveCall*> calls;
  Patience patience;
};

}  // namespace

// One decision per generation: `arrivals` counts the ranks that have arrived and carries the failure bit, so all its
// changes have one order. A generation takes place if and only if its last rank was counted before the bit was set;
// `failed_at` stores the count of that moment. Ranks of a generation that takes place read each other's calls, so
// `depart` always waits for all of them. Ranks of a generation that failed have read nothing and return at once.
struct Rendezvous::State {
  State(int size, std::string name)
      : size(static_cast<uint64_t>(size)), name(std::move(name)), recorder(size), slots(this->size) {
    for (auto& slot : slots) slot.calls.resize(this->size);
  }

  const uint64_t size;
  const std::string name;
  std::atomic<std::chrono::milliseconds::rep> timeout{std::chrono::milliseconds(kDefaultTimeout).count()};
  Recorder recorder;
  std::vector<Slot> slots;

  alignas(128) std::atomic<uint64_t> arrivals{0};
  alignas(128) std::atomic<uint64_t> departures{0};
  alignas(128) std::atomic<uint64_t> failed_at{kUnknown};
  std::atomic<int> failed_by{-1};
  std::atomic<bool> aborted{false};
  std::atomic<int> sleepers{0};
  std::mutex mutex;
  std::condition_variable wake;
  std::exception_ptr abort_cause;

  enum class Outcome { Wait, Go, Fail };

  Outcome outcome(uint64_t target) const {
    const uint64_t word = arrivals.load(std::memory_order_seq_cst);
    if ((word & kFailed) == 0) return word >= target ? Outcome::Go : Outcome::Wait;
    uint64_t count = failed_at.load(std::memory_order_acquire);
    while (count == kUnknown) {
      relax_core();
      count = failed_at.load(std::memory_order_acquire);
    }
    return count >= target ? Outcome::Go : Outcome::Fail;
  }

  void wake_sleepers() {
    if (sleepers.load(std::memory_order_seq_cst) == 0) return;
    { const std::lock_guard lock(mutex); }
    wake.notify_all();
  }

  /// Ends the round for every generation that is not complete, because `rank` has gone or, without one, for the cause
  /// that was set.
  void fail(int rank = -1) {
    const uint64_t before = arrivals.fetch_or(kFailed, std::memory_order_seq_cst);
    if ((before & kFailed) == 0) {
      failed_by.store(rank, std::memory_order_relaxed);
      failed_at.store(before, std::memory_order_seq_cst);
    }
    wake_sleepers();
  }

  /// As `fail` with a cause, unless generation `target` is complete by now.
  bool fail_unless_complete(uint64_t target, const std::string& cause) {
    uint64_t word = arrivals.load(std::memory_order_seq_cst);
    while ((word & kFailed) == 0 && word < target) {
      if (!arrivals.compare_exchange_weak(word, word | kFailed, std::memory_order_seq_cst)) continue;
      // Before the lock: sleepers that have it wait for this number.
      failed_at.store(word, std::memory_order_seq_cst);
      set_cause(std::make_exception_ptr(std::runtime_error(cause)));
      wake_sleepers();
      return true;
    }
    return false;
  }

  void set_cause(std::exception_ptr cause) {
    const std::lock_guard lock(mutex);
    if (abort_cause) return;
    abort_cause = std::move(cause);
    aborted.store(true, std::memory_order_release);
  }

  /// Waits until `ready`, spinning first; false at the deadline. `remind` is called once a minute.
  template <typename Ready, typename Remind>
  bool wait(Patience& patience, Ready ready, Clock::duration limit, Remind remind) {
    const trace::Span waiting(trace::Phase::Waiting, "wait for replicas");
    Clock::duration left = limit;
    return spin_then_sleep(patience, ready, [&] {
      if (left <= Clock::duration::zero()) return false;
      const auto slice = std::min<Clock::duration>(left, kReminder);
      bool done = false;
      {
        std::unique_lock lock(mutex);
        sleepers.fetch_add(1, std::memory_order_seq_cst);
        done = wake.wait_until(lock, Clock::now() + slice, ready);
        sleepers.fetch_sub(1, std::memory_order_relaxed);
      }
      if (limit != Clock::duration::max()) left -= slice;
      if (!done && slice == kReminder) remind();
      return true;
    });
  }

  /// Describes where a rank is: `rank 0 in all_reduce(SUM, float32[3]) (call 7, group local)`.
  std::string place(int rank, const CollectiveCall& call) const {
    const auto& slot = slots[static_cast<size_t>(rank)];
    return c10::str("rank ", rank, " of ", size, " waits in ", call.describe(), " (call ",
                    slot.sequence.load(std::memory_order_relaxed), ", group ", name, ")");
  }

  std::string missing(uint64_t generation) const {
    std::ostringstream out;
    const char* separator = "";
    for (size_t rank = 0; rank < slots.size(); ++rank) {
      if (slots[rank].arrived.load(std::memory_order_acquire) > generation) continue;
      const auto last = recorder.entries(static_cast<int>(rank));
      out << separator << "rank " << rank << " (last call: " << (last.empty() ? "none" : last.back().describe()) << ")";
      separator = ", ";
    }
    return out.str();
  }

  /// Whoever ends the round sets the cause, perhaps a moment after the others know of the end.
  std::string abort_reason() {
    while (!aborted.load(std::memory_order_acquire)) relax_core();
    const std::lock_guard lock(mutex);
    return c10::str("the group was aborted (", message_of(abort_cause), ")");
  }

  /// What ended the round, as a rank that waits in `arrive` reports it.
  std::string reason() {
    while (failed_at.load(std::memory_order_acquire) == kUnknown) relax_core();
    const int rank = failed_by.load(std::memory_order_relaxed);
    if (rank < 0) return abort_reason();
    const Slot& gone = slots[static_cast<size_t>(rank)];
    if (gone.presence.load(std::memory_order_acquire) == kReturned) return c10::str("replica ", rank, " returned");
    return c10::str("replica ", rank, " failed (", message_of(gone.cause), ")");
  }

  [[noreturn]] void throw_failed(int rank, const CollectiveCall& call) {
    recorder.end(rank, Record::State::Failed);
    throw_collective(c10::str("[", call.operation, "] every rank must take part: ", reason(), " while ",
                              place(rank, call), "; make the same collectives in the same order on every replica"));
  }

  [[noreturn]] void throw_late(int rank, const CollectiveCall& call, const std::string& who, Clock::duration limit) {
    recorder.end(rank, Record::State::Failed);
    const double seconds = std::chrono::duration<double>(limit).count();
    throw_collective(c10::str("[", call.operation, "] every rank must arrive in time: timeout=", seconds,
                              " s, missing ", who, " while ", place(rank, call),
                              "; raise timeout_seconds or find out why they do not arrive"));
  }

  /// Compares all calls with the first; a difference is the same error on every rank.
  void compare(int rank, std::span<const CollectiveCall* const> calls);
  void depart_from(Slot& slot);
};

void Rendezvous::State::compare(int rank, std::span<const CollectiveCall* const> calls) {
  const uint64_t expected = slots[0].fingerprint.load(std::memory_order_relaxed);
  size_t other = 1;
  while (other < slots.size() && slots[other].fingerprint.load(std::memory_order_relaxed) == expected) ++other;
  if (C10_LIKELY(other >= slots.size())) return;

  auto& slot = slots[static_cast<size_t>(rank)];
  const std::string text =
      c10::str("[", calls[static_cast<size_t>(rank)]->operation, "] all ranks must make the same call: rank 0 calls ",
               calls[0]->describe(), ", rank ", other, " calls ", calls[other]->describe(), " (call ",
               slot.sequence.load(std::memory_order_relaxed), ", group ", name,
               "); make the same collectives in the same order with the same shapes on every replica");
  set_cause(std::make_exception_ptr(std::runtime_error(text)));
  fail();
  depart_from(slot);
  recorder.end(rank, Record::State::Failed);
  throw_collective(text);
}

void Rendezvous::State::depart_from(Slot& slot) {
  const uint64_t target = (slot.generation.load(std::memory_order_relaxed) + 1) * size;
  slot.inside.store(false, std::memory_order_relaxed);
  if (departures.fetch_add(1, std::memory_order_seq_cst) + 1 == target) {
    wake_sleepers();
  } else {
    const auto remind = [&] {
      LOCKSTEP_LOG(Warn) << "rank " << &slot - slots.data() << " of group " << name << " has done its part of call "
                         << slot.sequence.load(std::memory_order_relaxed) << " and waits for the other ranks";
    };
    const auto ready = [&] { return departures.load(std::memory_order_seq_cst) >= target; };
    wait(slot.patience, ready, Clock::duration::max(), remind);
  }
  slot.generation.fetch_add(1, std::memory_order_relaxed);
}

Rendezvous::Rendezvous(int size, std::string name) {
  LOCKSTEP_CHECK_VALUE(size >= 1, "[Rendezvous] a group needs at least one rank: size=", size);
  state_ = std::make_unique<State>(size, std::move(name));
}

Rendezvous::~Rendezvous() = default;

int Rendezvous::size() const { return static_cast<int>(state_->size); }
const std::string& Rendezvous::name() const { return state_->name; }
const Recorder& Rendezvous::recorder() const { return state_->recorder; }

void Rendezvous::set_default_timeout(std::chrono::milliseconds timeout) {
  LOCKSTEP_CHECK_VALUE(timeout.count() > 0, "[Rendezvous] the timeout must be positive: timeout=", timeout.count(),
                       " ms");
  state_->timeout.store(timeout.count(), std::memory_order_relaxed);
}

std::span<const CollectiveCall* const> Rendezvous::arrive(int rank, const CollectiveCall& call,
                                                          std::chrono::milliseconds timeout) {
  State& state = *state_;
  LOCKSTEP_ASSERT(rank >= 0 && rank < size(), "rank=", rank);
  Slot& slot = state.slots[static_cast<size_t>(rank)];
  LOCKSTEP_CHECK_CONTEXT(!slot.inside.load(std::memory_order_relaxed), "[", call.operation,
                         "] a collective may not be called inside another one: rank=", rank);
  const uint64_t generation = slot.generation.load(std::memory_order_relaxed);
  const uint64_t sequence = slot.sequence.load(std::memory_order_relaxed) + 1;
  const uint64_t target = (generation + 1) * state.size;
  slot.sequence.store(sequence, std::memory_order_relaxed);
  slot.call.store(&call, std::memory_order_relaxed);
  slot.fingerprint.store(call.fingerprint(), std::memory_order_relaxed);
  slot.arrived.store(generation + 1, std::memory_order_release);
  state.recorder.begin(rank, sequence, call);

  const uint64_t before = state.arrivals.fetch_add(1, std::memory_order_seq_cst);
  if ((before & kFailed) != 0) state.throw_failed(rank, call);
  if (before + 1 == target) {
    state.wake_sleepers();
  } else {
    auto outcome = State::Outcome::Wait;
    const auto ready = [&] { return (outcome = state.outcome(target)) != State::Outcome::Wait; };
    const auto limit =
        timeout.count() > 0 ? timeout : std::chrono::milliseconds(state.timeout.load(std::memory_order_relaxed));
    const auto remind = [&] { LOCKSTEP_LOG(Warn) << state.place(rank, call) << " for " << state.missing(generation); };
    if (!state.wait(slot.patience, ready, limit, remind)) {
      const std::string who = state.missing(generation);
      if (state.fail_unless_complete(target, c10::str("rank ", rank, " timed out waiting for ", who))) {
        state.throw_late(rank, call, who, limit);
      }
      outcome = state.outcome(target);
    }
    if (outcome == State::Outcome::Fail) state.throw_failed(rank, call);
  }

  slot.inside.store(true, std::memory_order_relaxed);
  for (size_t r = 0; r < slot.calls.size(); ++r) {
    slot.calls[r] = state.slots[r].call.load(std::memory_order_relaxed);
  }
  state.compare(rank, slot.calls);
  return slot.calls;
}

void Rendezvous::depart(int rank) {
  State& state = *state_;
  Slot& slot = state.slots[static_cast<size_t>(rank)];
  LOCKSTEP_ASSERT(slot.inside.load(std::memory_order_relaxed), "depart without arrive, rank=", rank);
  state.depart_from(slot);
  const bool failed = state.aborted.load(std::memory_order_acquire);
  state.recorder.end(rank, failed ? Record::State::Failed : Record::State::Done);
  LOCKSTEP_CHECK_COLLECTIVE(!failed, "[", name(), "] every rank must finish the collective: ", state.abort_reason(),
                            " while rank ", rank, " of ", size(), " was in call ",
                            slot.sequence.load(std::memory_order_relaxed));
}

void Rendezvous::leave(int rank, std::exception_ptr cause) {
  State& state = *state_;
  Slot& slot = state.slots[static_cast<size_t>(rank)];
  if (slot.presence.load(std::memory_order_relaxed) != kHere) return;
  const bool threw = cause != nullptr;
  slot.cause = std::move(cause);
  slot.presence.store(threw ? kThrew : kReturned, std::memory_order_release);
  if (slot.inside.load(std::memory_order_relaxed)) {
    state.set_cause(threw ? slot.cause
                          : std::make_exception_ptr(std::runtime_error(
                                c10::str("replica ", rank, " returned in the middle of a collective"))));
    state.fail();
    state.depart_from(slot);
    return;
  }
  state.fail(rank);
}

void Rendezvous::abort(std::exception_ptr cause) {
  if (!cause) cause = std::make_exception_ptr(std::runtime_error("abort was called"));
  state_->set_cause(std::move(cause));
  state_->fail();
}

std::exception_ptr Rendezvous::abort_cause() const {
  const std::lock_guard lock(state_->mutex);
  return state_->abort_cause;
}

void Rendezvous::reset() {
  State& state = *state_;
  uint64_t sequence = 0;
  for (const auto& slot : state.slots) sequence = std::max(sequence, slot.sequence.load(std::memory_order_relaxed));
  for (auto& slot : state.slots) {
    slot.arrived.store(0, std::memory_order_relaxed);
    slot.generation.store(0, std::memory_order_relaxed);
    slot.sequence.store(sequence, std::memory_order_relaxed);
    slot.inside.store(false, std::memory_order_relaxed);
    slot.presence.store(kHere, std::memory_order_relaxed);
    slot.cause = nullptr;
  }
  const std::lock_guard lock(state.mutex);
  state.abort_cause = nullptr;
  state.aborted.store(false, std::memory_order_relaxed);
  state.failed_by.store(-1, std::memory_order_relaxed);
  state.failed_at.store(kUnknown, std::memory_order_relaxed);
  state.departures.store(0, std::memory_order_relaxed);
  state.arrivals.store(0, std::memory_order_seq_cst);
}

}  // namespace lockstep::comm
