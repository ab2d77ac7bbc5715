#pragma once

#include <vector>

#include <mpi.h>

#include "lockstep/base/backoff.h"
#include "lockstep/comm/engine_module.h"
#include "lockstep/comm/transport_base.h"

namespace lockstep::comm {

/// Messages between the ranks of a communicator of its own; the lane is their tag.
class MpiTransport : public TransportBase {
 public:
  MpiTransport(Job& job, const TransportOptions& options);
  ~MpiTransport() override;

  MPI_Comm communicator() const { return communicator_; }

 private:
  /// What the messages of an exchange become, kept from one to the next.
  struct Lane {
    std::vector<MPI_Request> requests;
    std::vector<MPI_Status> statuses;
    /// The other end of each request.
    std::vector<int> peers;
    size_t bytes = 0;
    detail::Patience patience;
  };

  void do_exchange(const Call& call) override;
  void do_abort() override {}
  void post(const Call& call, Lane& lane);
  /// Returns whether all is done; throws what MPI says.
  bool test(const Call& call, Lane& lane);
  /// Takes back what was posted, as far as MPI can.
  /// Names the peers whose messages have not gone or come.
  std::string late_peers(Lane& lane) const;
  void cancel(Lane& lane);
  [[noreturn]] void fail(const Call& call, Lane& lane, int code, int peer);

  MPI_Comm communicator_ = MPI_COMM_NULL;
  std::vector<Lane> lanes_;
};

}  // namespace lockstep::comm
