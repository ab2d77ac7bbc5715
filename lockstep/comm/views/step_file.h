#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/api.h"

namespace lockstep::comm::views {

/// A file in which a worker keeps its last finished step, for the launcher that made the file. Both map it: a step
/// costs one store, and what a killed worker has written stays.
class LOCKSTEP_API StepFile {
 public:
  struct Steps {
    /// The step after which the worker began; -1: it has not begun.
    int64_t resumed = -1;
    /// Its last finished step; -1: none.
    int64_t finished = -1;
  };

  /// Makes the file, with no steps. ValueError where it cannot.
  static StepFile create(const std::string& path);
  /// Opens a file that `create` has made. ValueError where it cannot.
  static StepFile open(const std::string& path);

  void set_resumed(int64_t step);
  void set_finished(int64_t step);
  Steps read() const;

 private:
  struct Mapping;
  explicit StepFile(std::shared_ptr<Mapping> mapping) : mapping_(std::move(mapping)) {}
  static StepFile map(const std::string& path, bool create);

  std::shared_ptr<Mapping> mapping_;
};

}  // namespace lockstep::comm::views
