#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/xla/engine/pending_work.h"
#include "lockstep/xla/engine/program.h"

/// Internal: executing what is pending.
namespace lockstep::xla {

/// Executes the work of all replicas as one program. If only sizes differ, as in a last batch, they are padded
/// (padding.h), or the work is executed in segments. Throws a CollectiveError that names the first difference if
/// operations differ.
void execute_together(std::vector<PendingWork>& works);

/// Observes executions; see replay.h.
class ExecutionListener {
 public:
  virtual ~ExecutionListener() = default;
  /// Called before results become arguments.
  virtual void on_launch(const PendingWork& work, int replica, const std::shared_ptr<const Program>& program) = 0;
  /// Something was executed that is not one program of all replicas.
  virtual void on_separate_execution(const std::string& why) = 0;
};
/// There is at most one listener; null for none.
void set_listener(ExecutionListener* listener);
ExecutionListener* listener();

}  // namespace lockstep::xla
