#pragma once

#include <memory>
#include <string>

#include "lockstep/api.h"
#include "lockstep/base/trace/trace_file.h"

namespace lockstep::trace::detail {

/// `trace_worker<N>.json` in that folder.
std::string worker_file_name(const std::string& folder, int worker);

/// Makes that file, locked as long as it is open. An older trace is renamed to `<name>.before-<K>`. Where another
/// process writes a file of this name, or it is no regular file, it stays, and the trace gets the name
/// `trace_worker<N>-<process>.json`. Logs both. ValueError where no file can be made.
LOCKSTEP_API std::unique_ptr<TraceFile> make_worker_file(const std::string& folder, int worker);

}  // namespace lockstep::trace::detail
