#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "lockstep/api.h"

namespace lockstep::comm {
class Job;
}

/// Internal: how workers agree whether a save has succeeded, without a collective of the training.
namespace lockstep::detail {

/// How a save, or a worker's part of it, has ended: text, so that it can be sent and thrown on any thread.
struct LOCKSTEP_API SaveOutcome {
  enum class Kind : char { Done = 'o', Data = 'd', Value = 'v', Lost = 'l' };
  Kind kind = Kind::Done;
  std::string text = {};

  bool is_done() const { return kind == Kind::Done; }
  /// Throws DataError, ValueError or CollectiveError, unless it is done.
  void check() const;
  /// Calls `work` and returns how it has ended.
  static SaveOutcome of(const std::function<void()>& work);
};

/// The workers of a job that save together. Every worker makes the same saves in the same order.
class LOCKSTEP_API SaveAgreement {
 public:
  /// `job` is null for one worker, else it must outlive this. Keys of the job begin with `name`.
  SaveAgreement(comm::Job* job, std::string name, std::chrono::milliseconds timeout);

  int worker() const;
  int num_workers() const;
  /// Reports the outcome of this worker's part of save number `save`. The first worker waits for those of all and, if
  /// all are done, calls `complete`. Returns the same outcome on every worker; `Lost` where the job fails. The job
  /// keeps no values of a save that all know the outcome of.
  SaveOutcome agree(int64_t save, const SaveOutcome& mine, const std::function<SaveOutcome()>& complete);

 private:
  SaveOutcome agree_as_first(const std::string& key, const SaveOutcome& mine,
                             const std::function<SaveOutcome()>& complete);
  void drop_values(const std::string& key);

  comm::Job* job_;
  std::string name_;
  std::chrono::milliseconds timeout_;
};

}  // namespace lockstep::detail
