#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "tests/support/nccl_standin/staged_rank.h"
#include "tests/support/nccl_standin/sums.h"

namespace nccl_standin {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLookAtPeers{50};

/// Waits a moment: at first without sleeping.
void pause(int round) {
  if (round < 2000) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

}  // namespace

void StagedRank::work() {
  for (int turn = 0; !stops_.load(); ++turn) {
    if (std::atomic_ref(flags_->staged).load(std::memory_order_acquire) == 0) {
      pause(turn);
      continue;
    }
    turn = 0;
    Round round;
    {
      const std::lock_guard lock(staged_mutex_);
      round = std::move(staged_.front());
      staged_.pop_front();
    }
    const bool is_done = !aborted_.load() && do_round(round);
    // An error, or a peer that does not come: the GPU waits until the communicator is aborted.
    while (!is_done && !aborted_.load() && !stops_.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::atomic_ref(flags_->staged).store(0, std::memory_order_release);
    std::atomic_ref(flags_->done).store(1, std::memory_order_release);
    done_.fetch_add(1);
  }
}

bool StagedRank::do_round(const Round& round) {
  const auto begin = Clock::now();
  if (round.call.fault == Fault::Error) fail(ncclSystemError);
  if (round.call.fault == Fault::Error || round.call.fault == Fault::Hang) return false;
  if (round.call.fault == Fault::Delay) std::this_thread::sleep_for(faults_.delay);
  if (!(round.call.is_message() ? do_messages(round) : do_collective(round))) return false;
  size_t bytes = round.call.is_message() ? 0 : round.call.bytes();
  for (const size_t part : round.to) bytes += part;
  const auto least = faults_.time_on_wire(bytes);
  while (Clock::now() - begin < least) pause(0);
  return true;
}

/// Waits until `ready`; false after an abort, and where a rank's process has ended.
template <typename Ready>
bool StagedRank::wait(Ready ready) {
  auto look = Clock::now() + kLookAtPeers;
  for (int turn = 0; !ready(); ++turn) {
    if (aborted_.load() || stops_.load()) return false;
    pause(turn);
    if (Clock::now() < look) continue;
    look = Clock::now() + kLookAtPeers;
    for (int other = 0; other < num_ranks_; ++other) {
      const pid_t pid = segment_.slot(other).pid.load();
      if (pid == 0 || kill(pid, 0) == 0 || errno != ESRCH) continue;
      fail(ncclRemoteError);
      return false;
    }
  }
  return true;
}

bool StagedRank::do_collective(const Round& round) {
  Slot& own = segment_.slot(rank_);
  own.signature.store(round.call.signature());
  own.staged.store(round.number, std::memory_order_release);
  const auto all = [&](auto reached) {
    return wait([&] {
      for (int other = 0; other < num_ranks_; ++other) {
        if ((segment_.slot(other).*reached).load(std::memory_order_acquire) < round.number) return false;
      }
      return true;
    });
  };
  if (!all(&Slot::staged)) return false;
  for (int other = 0; other < num_ranks_; ++other) {
    if (segment_.slot(other).signature.load() == round.call.signature()) continue;
    fail(ncclInvalidUsage);
    return false;
  }
  combine_slice(round.call);
  own.computed.store(round.number, std::memory_order_release);
  return all(&Slot::computed);
}

void StagedRank::combine_slice(const Call& call) {
  const size_t width = size_of(call.dtype);
  const size_t bytes = call.bytes();
  const auto n = static_cast<size_t>(num_ranks_);
  const auto r = static_cast<size_t>(rank_);
  const size_t begin = call.count * r / n;
  const size_t end = call.count * (r + 1) / n;
  std::vector<const char*> inputs;
  switch (call.kind) {
    case Kind::Broadcast:
      std::memcpy(segment_.result() + begin * width, segment_.staged(call.peer) + begin * width, (end - begin) * width);
      return;
    case Kind::AllGather:
      std::memcpy(segment_.result() + r * bytes, segment_.staged(rank_), bytes);
      return;
    case Kind::ReduceScatter:
      for (int other = 0; other < num_ranks_; ++other) inputs.push_back(segment_.staged(other) + r * bytes);
      return combine(inputs, segment_.result() + r * bytes, 0, call.count, call.dtype, call.op);
    default:
      for (int other = 0; other < num_ranks_; ++other) inputs.push_back(segment_.staged(other));
      return combine(inputs, segment_.result(), begin, end, call.dtype, call.op);
  }
}

bool StagedRank::do_messages(const Round& round) {
  const size_t piece = std::min(kArea / static_cast<size_t>(num_ranks_), kChannel);
  for (int peer = 0; peer < num_ranks_; ++peer) {
    const auto p = static_cast<size_t>(peer);
    if (round.to[p] == 0) continue;
    Channel& channel = segment_.channel(rank_, peer);
    if (!wait([&] { return channel.full.load(std::memory_order_acquire) == 0; })) return false;
    std::memcpy(channel.data, segment_.staged(rank_) + p * piece, round.to[p]);
    channel.bytes.store(static_cast<uint32_t>(round.to[p]));
    channel.full.store(1, std::memory_order_release);
  }
  for (int peer = 0; peer < num_ranks_; ++peer) {
    const auto p = static_cast<size_t>(peer);
    if (round.from[p] == 0) continue;
    Channel& channel = segment_.channel(peer, rank_);
    if (!wait([&] { return channel.full.load(std::memory_order_acquire) == 1; })) return false;
    if (channel.bytes.load() != round.from[p]) {
      fail(ncclInvalidUsage);
      return false;
    }
    std::memcpy(segment_.received(rank_) + p * piece, channel.data, round.from[p]);
    channel.full.store(0, std::memory_order_release);
  }
  return true;
}

}  // namespace nccl_standin
