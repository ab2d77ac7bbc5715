#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <gloo/transport/unbound_buffer.h>

#include "lockstep/comm/backends/gloo/mesh.h"
#include "lockstep/comm/engine_module.h"
#include "lockstep/comm/transport_base.h"

namespace lockstep::comm {

/// Messages over Gloo's pairs. The lane and the length of a message make its slot: messages of different lengths never
/// meet, which Gloo would answer by ending the process.
class GlooTransport : public TransportBase {
 public:
  GlooTransport(Job& job, const TransportOptions& options);
  ~GlooTransport() override;

  /// What Gloo's own collectives take. Valid as long as the transport.
  std::shared_ptr<gloo::Context> context() const { return {std::shared_ptr<void>(), mesh_.get()}; }

 private:
  /// One buffer carries all messages of a lane: it stands for the whole memory, and each message is an offset in it, so
  /// that nothing is allocated for an exchange, and a failure of any peer wakes the lane up.
  struct Lane {
    std::mutex mutex;
    /// Gone after a failure: from then on Gloo touches no memory of the caller's.
    std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
  };

  void do_exchange(const Call& call) override;
  void do_abort() override;
  /// Posts and awaits all messages; false when it was aborted. Throws what Gloo throws. `awaited` counts the messages
  /// that have not come from each peer.
  bool carry(const Call& call, gloo::transport::UnboundBuffer& buffer, std::vector<int>& awaited);
  /// Names the peers whose connections are broken.
  std::string broken_peers(gloo::transport::UnboundBuffer& buffer);

  std::unique_ptr<GlooMesh> mesh_;
  std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace lockstep::comm
