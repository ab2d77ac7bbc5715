#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <gloo/transport/unbound_buffer.h>

#include "lockstep/comm/engines/gloo/mesh.h"
#include "lockstep/comm/transport/engine_module.h"
#include "lockstep/comm/transport/transport_base.h"

namespace lockstep::comm {

/// Messages over Gloo's pairs. The lane and the length of a message make its slot, so messages of different lengths
/// never match: Gloo would end the process.
class GlooTransport : public TransportBase {
 public:
  GlooTransport(Job& job, const TransportOptions& options);
  ~GlooTransport() override;

  /// What Gloo's own collectives take. Valid as long as the transport.
  std::shared_ptr<gloo::Context> context() const { return {std::shared_ptr<void>(), mesh_.get()}; }

 private:
  /// One unbound buffer over the whole address space carries all messages of a lane, each at its offset: an exchange
  /// allocates nothing, and a failure of any peer wakes up the lane.
  struct Lane {
    std::mutex mutex;
    /// Reset after a failure: from then on Gloo accesses no memory of the caller.
    std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
  };

  void do_exchange(const Exchange& exchange) override;
  void do_abort() override;
  /// Posts and awaits all messages; false when it was aborted. Throws what Gloo throws. `awaited` counts the messages
  /// of each peer that have not arrived.
  bool carry(const Exchange& exchange, gloo::transport::UnboundBuffer& buffer, std::vector<int>& awaited);
  /// Names the peers whose connections are broken.
  std::string broken_peers(gloo::transport::UnboundBuffer& buffer);

  std::unique_ptr<GlooMesh> mesh_;
  std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace lockstep::comm
