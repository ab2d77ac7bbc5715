#pragma once

#include <chrono>
#include <string>

#include <gloo/context.h>

#include "lockstep/comm/job/job.h"

namespace lockstep::comm {

/// Connections between this process and all others of a job.
class GlooMesh : public gloo::Context {
 public:
  /// Returns when all are connected. CollectiveError names who could not be reached; it comes at the deadline, and at
  /// once when the job fails meanwhile.
  GlooMesh(Job& job, const std::string& name, std::chrono::milliseconds timeout);

 private:
  void connect(Job& job, const std::string& name, std::chrono::milliseconds timeout);
};

}  // namespace lockstep::comm
