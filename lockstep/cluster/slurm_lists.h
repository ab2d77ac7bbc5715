#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/api.h"

/// The list forms of Slurm's variables.
namespace lockstep {

/// Expands a list of hosts: "n[1-2],m5,o[08-10,12]" is n1 n2 m5 o08 o09 o10 o12. Order and repetitions are preserved,
/// and numbers are as wide as the first of their range. A name may have several brackets, one of them at its end:
/// "r[1-2]n[1-4]", where the last counts fastest. Throws `c10::ValueError` for anything else, and for more than a
/// million hosts.
LOCKSTEP_API std::vector<std::string> expand_hostlist(std::string_view text);

/// Expands a list of counts: "3(x2),2,1" is 3 3 2 1. Throws `c10::ValueError` for anything else.
LOCKSTEP_API std::vector<int> expand_tasks_per_node(std::string_view text);

/// Returns the sum of the counts in a list of resources: "2", "gpu:2", "a100:1,v100:1", "gpu:a100=2" are 2. Only
/// entries that begin with `resource` count: with "gres/gpu", "cpu:8,gres/gpu:a100:2" is 2. Nothing where no entry
/// counts, or the text is of another form.
LOCKSTEP_API std::optional<int> count_resources(std::string_view text, std::string_view resource = "");

}  // namespace lockstep
