#pragma once

#include <string>
#include <string_view>

#include "lockstep/api.h"
#include "lockstep/train/runs/json_lines.h"
#include "lockstep/train/runs/run_folder_options.h"
#include "lockstep/train/trainer/trainer.h"

/// Internal: what run.json says about a training when it begins.
namespace lockstep::detail {

/// The configuration as JSON. ValueError where it is no object.
RunJson parse_configuration(const callbacks::RunFolderOptions& options);

/// Whether the value of an environment variable is written: it configures lockstep, LibTorch, a vendor library or a
/// launcher, and is no secret.
LOCKSTEP_API bool is_described_variable(std::string_view name);

/// All of run.json, in the state "running". `devices` are those of all replicas.
RunJson describe_run(const Trainer& trainer, const callbacks::RunFolderOptions& options, const std::string& name,
                     const RunJson& devices);

}  // namespace lockstep::detail
