#pragma once

#include <chrono>
#include <string>

#include <gloo/context.h>

#include "lockstep/comm/job/job.h"

namespace lockstep::comm {

/// Connections between this process and all others of a job.
class GlooMesh : public gloo::Context {
 public:
  /// Returns when all are connected. CollectiveError names the peer that could not be reached, at the deadline or as
  /// soon as the job fails.
  GlooMesh(Job& job, const std::string& name, std::chrono::milliseconds timeout);

 private:
  void connect(Job& job, const std::string& name, std::chrono::milliseconds timeout);
};

}  // namespace lockstep::comm
