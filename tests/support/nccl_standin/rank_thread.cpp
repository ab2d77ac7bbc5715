#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "tests/support/nccl_standin/rank.h"
#include "tests/support/nccl_standin/sums.h"

namespace nccl_standin {
namespace {

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

void Rank::work() {
  for (int round = 0; !stops_.load(); ++round) {
    const auto number = std::atomic_ref(flags_->staged).load(std::memory_order_acquire);
    if (number == 0) {
      pause(round);
      continue;
    }
    round = 0;
    const Step* step = nullptr;
    {
      const std::lock_guard lock(steps_mutex_);
      step = &steps_[number - 1];
    }
    const bool is_done = !aborted_.load() && do_step(*step);
    // An error, or a peer that does not come: the GPU waits until the communicator is aborted.
    while (!is_done && !aborted_.load() && !stops_.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::atomic_ref(flags_->staged).store(0, std::memory_order_release);
    std::atomic_ref(flags_->done).store(1, std::memory_order_release);
    if (!step->captured) done_.fetch_add(1);
  }
}

/// Whether the step goes on.
bool Rank::injects(const Step& step) {
  if (!step.begins_call) return true;
  ++calls_;
  if (faults_.rank >= 0 && faults_.rank != rank_) return true;
  if (calls_ == faults_.error_at) {
    fail(ncclSystemError);
    return false;
  }
  if (calls_ == faults_.hang_at) return false;
  if (calls_ == faults_.delay_at) std::this_thread::sleep_for(faults_.delay);
  return true;
}

bool Rank::do_step(const Step& step) {
  const auto begin = Clock::now();
  if (!injects(step)) return false;
  if (!(step.is_message() ? do_messages(step) : do_collective(step))) return false;
  if (faults_.wire > 0) {
    size_t bytes = step.count * size_of(step.dtype);
    for (const size_t part : step.to) bytes += part;
    const auto least = std::chrono::duration<double>(static_cast<double>(bytes) / faults_.wire);
    while (Clock::now() - begin < least) pause(0);
  }
  return true;
}

/// Waits until `ready`; false after an abort, and where a rank's process has ended.
template <typename Ready>
bool Rank::wait(Ready ready) {
  auto look = Clock::now() + kLookAtPeers;
  for (int round = 0; !ready(); ++round) {
    if (aborted_.load() || stops_.load()) return false;
    pause(round);
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

bool Rank::do_collective(const Step& step) {
  const uint64_t number = ++sequence_;
  Slot& own = segment_.slot(rank_);
  own.signature.store(step.signature());
  own.staged.store(number, std::memory_order_release);
  const auto all = [&](auto reached) {
    return wait([&] {
      for (int other = 0; other < num_ranks_; ++other) {
        if ((segment_.slot(other).*reached).load(std::memory_order_acquire) < number) return false;
      }
      return true;
    });
  };
  if (!all(&Slot::staged)) return false;
  for (int other = 0; other < num_ranks_; ++other) {
    if (segment_.slot(other).signature.load() == step.signature()) continue;
    fail(ncclInvalidUsage);
    return false;
  }
  combine_slice(step);
  own.computed.store(number, std::memory_order_release);
  return all(&Slot::computed);
}

void Rank::combine_slice(const Step& step) {
  const size_t width = size_of(step.dtype);
  const size_t bytes = step.count * width;
  const auto n = static_cast<size_t>(num_ranks_);
  const auto r = static_cast<size_t>(rank_);
  const size_t begin = step.count * r / n;
  const size_t end = step.count * (r + 1) / n;
  std::vector<const char*> inputs;
  switch (step.kind) {
    case Kind::Broadcast:
      std::memcpy(segment_.result() + begin * width, segment_.staged(step.root) + begin * width, (end - begin) * width);
      return;
    case Kind::AllGather:
      std::memcpy(segment_.result() + r * bytes, segment_.staged(rank_), bytes);
      return;
    case Kind::ReduceScatter:
      for (int other = 0; other < num_ranks_; ++other) inputs.push_back(segment_.staged(other) + r * bytes);
      return combine(inputs, segment_.result() + r * bytes, 0, step.count, step.dtype, step.op);
    default:
      for (int other = 0; other < num_ranks_; ++other) inputs.push_back(segment_.staged(other));
      return combine(inputs, segment_.result(), begin, end, step.dtype, step.op);
  }
}

bool Rank::do_messages(const Step& step) {
  const size_t piece = std::min(kArea / static_cast<size_t>(num_ranks_), kChannel);
  for (int peer = 0; peer < num_ranks_; ++peer) {
    const auto p = static_cast<size_t>(peer);
    if (step.to[p] == 0) continue;
    Channel& channel = segment_.channel(rank_, peer);
    if (!wait([&] { return channel.full.load(std::memory_order_acquire) == 0; })) return false;
    std::memcpy(channel.data, segment_.staged(rank_) + p * piece, step.to[p]);
    channel.bytes.store(static_cast<uint32_t>(step.to[p]));
    channel.full.store(1, std::memory_order_release);
  }
  for (int peer = 0; peer < num_ranks_; ++peer) {
    const auto p = static_cast<size_t>(peer);
    if (step.from[p] == 0) continue;
    Channel& channel = segment_.channel(peer, rank_);
    if (!wait([&] { return channel.full.load(std::memory_order_acquire) == 1; })) return false;
    if (channel.bytes.load() != step.from[p]) {
      fail(ncclInvalidUsage);
      return false;
    }
    std::memcpy(segment_.received(rank_) + p * piece, channel.data, step.from[p]);
    channel.full.store(0, std::memory_order_release);
  }
  return true;
}

}  // namespace nccl_standin
