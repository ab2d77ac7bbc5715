#include "tests/support/nccl_standin/rank.h"

#include <chrono>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <unistd.h>

#include "tests/support/nccl_standin/local_ranks.h"
#include "tests/support/nccl_standin/staged_rank.h"

namespace nccl_standin {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kFinishLimit{10};

/// Makes a device current as long as it lives.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) {
    cudaGetDevice(&previous_);
    cudaSetDevice(device);
  }
  ~CurrentDevice() { cudaSetDevice(previous_); }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int previous_ = 0;
};

}  // namespace

Rank::Rank(const std::string& id, int rank, int num_ranks, bool blocking)
    : id_(id), rank_(rank), num_ranks_(num_ranks), blocking_(blocking), segment_(id, num_ranks) {
  const auto check = [](cudaError_t code) {
    if (code != cudaSuccess) throw std::runtime_error(cudaGetErrorString(code));
  };
  check(cudaGetDevice(&device_));
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device_));
  Slot& slot = segment_.slot(rank);
  std::memcpy(slot.card, properties.uuid.bytes, sizeof(properties.uuid.bytes));
  slot.pid.store(getpid());
  segment_.join();
}

Rank::~Rank() { segment_.forget(); }

bool Rank::is_on_card_of(int other) const {
  return std::memcmp(segment_.slot(other).card, segment_.slot(rank_).card, 16) == 0;
}

bool Rank::shares_its_card() const {
  for (int other = 0; other < num_ranks_; ++other) {
    if (other != rank_ && is_on_card_of(other)) return true;
  }
  return false;
}

/// In this process and on one card.
bool Rank::are_all_here() const {
  for (int other = 0; other < num_ranks_; ++other) {
    if (segment_.slot(other).pid.load() != getpid() || !is_on_card_of(other)) return false;
  }
  return true;
}

void Rank::make_carrier() {
  const CurrentDevice current(device_);
  if (faults_.refuses_shared_cards && shares_its_card()) {
    failure_ = ncclInvalidUsage;
  } else if (are_all_here()) {
    carrier_ = std::make_shared<LocalCarrier>(LocalRanks::of(id_, num_ranks_, faults_), rank_);
  } else {
    carrier_ = std::make_shared<StagedRank>(segment_, rank_, num_ranks_, faults_);
  }
}

std::shared_ptr<Carrier> Rank::carrier() {
  const std::lock_guard lock(mutex_);
  if (!carrier_ && !is_aborted_ && failure_ == ncclSuccess && segment_.is_complete()) {
    try {
      make_carrier();
    } catch (const std::exception&) {
      failure_ = ncclSystemError;
    }
  }
  return carrier_;
}

ncclResult_t Rank::failure() {
  const std::lock_guard lock(mutex_);
  return failure_;
}

ncclResult_t Rank::queue(std::vector<Call> calls) {
  const CurrentDevice current(device_);
  const auto by = carrier();
  if (!by) return failure() == ncclSuccess ? ncclInvalidUsage : failure();
  faults_.mark(calls, rank_);
  return by->queue(calls);
}

ncclResult_t Rank::state() {
  const auto by = carrier();
  if (!by) return failure() == ncclSuccess ? ncclInProgress : failure();
  if (in_progress_polls_.load() > 0 && in_progress_polls_.fetch_sub(1) > 0) return ncclInProgress;
  const CurrentDevice current(device_);
  return by->state();
}

void Rank::abort() {
  segment_.forget();
  {
    const std::lock_guard lock(mutex_);
    is_aborted_ = true;
    if (!carrier_) return;
    carrier_->abort();
  }
  finish();
}

void Rank::finish() {
  const auto by = carrier();
  const auto deadline = Clock::now() + kFinishLimit;
  while (by && !by->is_done() && !by->needs_abort() && Clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

bool Rank::is_unused() {
  const auto by = carrier();
  return !by || (by->is_done() && !by->is_captured());
}

}  // namespace nccl_standin
