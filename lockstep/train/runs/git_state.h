#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/api.h"

/// Internal: the version of the program's sources.
namespace lockstep::detail {

struct GitState {
  /// Empty before the first commit.
  std::string commit;
  /// Empty where no branch is checked out.
  std::string branch;
  /// Whether tracked files differ from the commit, and how many.
  bool dirty = false;
  int64_t changed_files = 0;
  /// A folder without tracked files is one. Nothing where it takes too long to look for them.
  std::optional<int64_t> untracked_files = std::nullopt;
};

/// What `git` says about a folder. Nothing where there is no repository or no git, or where it takes longer.
LOCKSTEP_API std::optional<GitState> git_state(const std::string& folder, std::chrono::milliseconds limit);

/// How the tracked files of a repository differ from the commit, as `git apply` reads it. Nothing where it is longer
/// than `most_bytes`, or as above.
LOCKSTEP_API std::optional<std::string> git_difference(const std::string& folder, std::chrono::milliseconds limit,
                                                       size_t most_bytes);

/// Reads the output of `git status --porcelain=v2 --branch`.
LOCKSTEP_API GitState parse_git_status(std::string_view text);

}  // namespace lockstep::detail
