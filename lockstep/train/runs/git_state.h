#pragma once

#include <chrono>
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
  /// Whether tracked files differ from the commit.
  bool dirty = false;
};

/// What `git` says about a folder. Nothing where there is no repository or no git, or where it takes longer.
LOCKSTEP_API std::optional<GitState> git_state(const std::string& folder, std::chrono::milliseconds limit);

/// Reads the output of `git status --porcelain=v2 --branch`.
LOCKSTEP_API GitState parse_git_status(std::string_view text);

}  // namespace lockstep::detail
