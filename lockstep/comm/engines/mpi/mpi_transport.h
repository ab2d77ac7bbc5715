#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <vector>

#include <mpi.h>

#include "lockstep/base/backoff.h"
#include "lockstep/comm/transport/engine_module.h"
#include "lockstep/comm/transport/transport_base.h"

namespace lockstep::comm {

/// Messages between the ranks of a communicator of its own; the lane is their tag.
class MpiTransport : public TransportBase {
 public:
  MpiTransport(Job& job, const TransportOptions& options);
  ~MpiTransport() override;

  MPI_Comm communicator() const { return communicator_; }
  void peer_left(int worker) override { left_[static_cast<size_t>(worker)] = true; }

 private:
  /// The requests of one exchange. The memory is reused by the next.
  struct Lane {
    std::vector<MPI_Request> requests;
    std::vector<MPI_Status> statuses;
    /// The other end of each request.
    std::vector<int> peers;
    size_t bytes = 0;
    detail::Patience patience;
  };

  void do_exchange(const Exchange& exchange) override;
  void do_abort() override {}
  void post(const Exchange& exchange, Lane& lane);
  /// Returns whether all messages are done. CollectiveError with MPI's message where one failed.
  bool test(const Exchange& exchange, Lane& lane);
  /// The peers whose messages are not done.
  std::vector<bool> late_peers(Lane& lane) const;
  /// Names the peers that have left and whose messages are not done.
  std::string left_peers(Lane& lane) const;
  /// Cancels what was posted, as far as MPI can.
  void cancel(Lane& lane);
  [[noreturn]] void fail(const Exchange& exchange, Lane& lane, int code, int peer);

  MPI_Comm communicator_ = MPI_COMM_NULL;
  std::chrono::milliseconds left_time_;
  std::vector<Lane> lanes_;
  std::vector<std::atomic<bool>> left_;
};

}  // namespace lockstep::comm
