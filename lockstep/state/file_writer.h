#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/api.h"

namespace lockstep::progress {
class Task;
}

/// Internal: writes files of known content fast.
namespace lockstep::detail {

/// Makes a file of consecutive bytes and returns the CRC-32C of each block of kBlockBytes. Several threads write.
/// DataError with path and reason where the system refuses; the file is then removed. A file that is there already is
/// an error.
///   - sync: whether the bytes are on the disk at the return;
///   - direct: whether the page cache is avoided, where the file system can;
///   - task: counts the bytes that are written; may be null.
LOCKSTEP_API std::vector<uint32_t> write_file(const std::string& path, const std::vector<std::string_view>& bytes,
                                              bool sync, bool direct, progress::Task* task = nullptr);

/// Writes a small file under another name, syncs it where asked and renames it, which replaces an older one.
LOCKSTEP_API void replace_file(const std::string& path, std::string_view text, bool sync);

}  // namespace lockstep::detail
