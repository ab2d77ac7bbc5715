#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <gloo/transport/unbound_buffer.h>

#include "lockstep/comm/backends/gloo/mesh.h"
#include "lockstep/comm/engine_module.h"

namespace lockstep::comm {

/// Messages over Gloo's pairs. The lane and the length of a message make its slot: messages of different lengths never
/// meet, which Gloo would answer by ending the process.
class GlooTransport : public Transport {
 public:
  GlooTransport(Job& job, const TransportOptions& options);
  ~GlooTransport() override;

  std::string_view name() const override { return "gloo"; }
  int worker() const override { return worker_; }
  int num_workers() const override { return static_cast<int>(names_.size()); }
  int num_lanes() const override { return static_cast<int>(lanes_.size()); }

  void exchange(int lane, std::span<const Outgoing> outgoing, std::span<const Incoming> incoming,
                std::chrono::milliseconds timeout) override;
  void abort(const std::string& reason) override;

 private:
  using Clock = std::chrono::steady_clock;

  /// One buffer carries all messages of a lane: it stands for the whole memory, and each message is an offset in it, so
  /// that nothing is allocated for an exchange, and a failure of any peer wakes the lane up.
  struct Lane {
    std::mutex mutex;
    /// Gone after a failure: from then on Gloo touches no memory of the caller's.
    std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
  };

  /// Posts and awaits all messages; false when it was aborted.
  bool carry(gloo::transport::UnboundBuffer& buffer, int lane, std::span<const Outgoing> outgoing,
             std::span<const Incoming> incoming, Clock::time_point deadline);
  /// Ends everything, and throws.
  [[noreturn]] void fail(int lane, const std::string& message);
  [[noreturn]] void throw_aborted(int lane);
  /// The peers whose connections are broken, in words.
  std::string broken_peers(gloo::transport::UnboundBuffer& buffer);
  std::string names_of(std::span<const Incoming> incoming, std::span<const Outgoing> outgoing) const;

  int worker_;
  std::vector<std::string> names_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::unique_ptr<GlooMesh> mesh_;
  std::atomic<bool> aborted_{false};
  std::mutex reason_mutex_;
  std::string reason_;
};

}  // namespace lockstep::comm
