#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/comm/device_collectives.h"
#include "lockstep/comm/engines/nccl/communicator.h"

namespace lockstep::comm {

class NcclCollectives final : public DeviceCollectives {
 public:
  explicit NcclCollectives(const DeviceCollectivesOptions& options);
  ~NcclCollectives() override;

  std::string_view name() const override { return "nccl"; }
  const std::vector<int>& devices() const override { return options_.devices; }
  bool reduces(c10::ScalarType dtype) const override;
  void connect() override;
  void run(std::span<const RankOperations> work, const DeviceCall& call) override;
  void abort(const std::string& reason) override;
  void give_up_soon() override;
  void check(const char* asks) override;
  void renew() override;

 private:
  using Clock = std::chrono::steady_clock;
  using Communicators = std::vector<std::shared_ptr<Communicator>>;

  int first_rank() const;
  int num_ranks() const;
  ncclUniqueId make_id();
  /// Makes all local communicators; none is left where it throws.
  Communicators make_communicators();
  void queue(std::span<const RankOperations> work, const DeviceCall& call);
  /// Waits until NCCL has accepted what was posted. Throws its error, and at the deadline.
  void settle(const Communicators& communicators, ncclResult_t code, const std::string& text,
              Clock::time_point deadline);
  void finish_work() const;

  /// Why a call failed: NCCL and CUDA see that another worker is gone, and the job says which one and why.
  std::string cause_of(const std::string& problem) const;
  std::optional<int> worker_that_left() const;
  /// Ends work where the job has failed, and soon where a worker has left.
  void heed_job();
  /// Notes what has ended the work; the thread of `watch` then aborts. The first reason counts.
  void fail(const std::string& reason);
  bool has_failed() const { return failed_.load(std::memory_order_acquire); }
  [[noreturn]] void throw_failure(const std::string& text);
  [[noreturn]] void fail_and_throw(const std::string& reason, const std::string& text);

  void start_watching();
  void stop_watching();
  void watch();
  void abort_all(const Communicators& communicators) const;

  const DeviceCollectivesOptions options_;
  /// Held while all ranks are connected.
  std::mutex connect_mutex_;
  std::atomic<bool> connected_{false};
  int num_connects_ = 0;
  Communicators communicators_;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<bool> failed_{false};
  std::string reason_;
  bool reported_ = false;
  bool stops_ = false;
  std::thread watcher_;
};

}  // namespace lockstep::comm
