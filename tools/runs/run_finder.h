#pragma once

#include <string>
#include <vector>

/// The folders of runs below a path, for all commands that read runs.
namespace lockstep::tools {

/// Whether a folder has run.json, metrics.jsonl or steps.jsonl.
bool is_run_folder(const std::string& folder);

/// The run folders at a path, by name: the path itself, or all below it at any depth. What is inside a run folder, such
/// as an earlier run in `before`, is none of them. Empty where there are none.
std::vector<std::string> find_run_folders(const std::string& path);

/// Adds those that are not in `folders` yet, by whatever name, and returns how many there are at the path.
size_t add_run_folders(const std::string& path, std::vector<std::string>& folders);

}  // namespace lockstep::tools
