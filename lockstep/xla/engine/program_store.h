#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/api.h"

namespace lockstep::xla {

/// Serialized programs in a folder, one file for each key. Several processes may use a folder at once: a file is
/// written under a temporary name and renamed, and a reader that finds a damaged file, or none, has no program.
///
/// When files exceed the limit together, those that were used least recently are removed. The time of the last use is
/// that of the file's last change.
///
/// Programs are executed, so the folder must belong to this user and must not be writable by others.
class LOCKSTEP_API ProgramStore {
 public:
  /// Makes the folder if it does not exist. Throws ValueError if it cannot be used.
  ProgramStore(std::filesystem::path folder, int64_t limit_bytes);

  /// The program that was stored for this key, if there is one.
  std::optional<std::string> find(std::string_view key) const;
  /// Stores a program. A failure, such as a full disk, is logged, and nothing is stored.
  void put(std::string_view key, std::string_view program) const;
  /// Removes a program that cannot be loaded.
  void remove(std::string_view key) const;

 private:
  std::filesystem::path file_of(std::string_view key) const;
  void remove_least_recently_used() const;

  std::filesystem::path folder_;
  int64_t limit_bytes_;
};

}  // namespace lockstep::xla
