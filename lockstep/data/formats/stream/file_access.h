#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>

#include "lockstep/api.h"

namespace lockstep::data {

/// How the bytes of a file get into memory.
enum class FileAccess {
  /// As LOCKSTEP_FILE_ACCESS says. By default files are mapped, except on network file systems, and after this process
  /// has opened files that are together larger than the memory of the machine or of its control group.
  Auto,
  /// Files are mapped. Elements point into the mapping until they are copied into a batch. The fastest way where files
  /// are local and stay in memory. A file that is cut while it is read is a DataError.
  Map,
  /// Files are read block by block, with the next blocks read in advance. Every record is copied once more, and is read
  /// from the file once, however long it waits in a shuffle buffer.
  Read,
};

/// Prints "auto", "map" or "read".
LOCKSTEP_API std::ostream& operator<<(std::ostream& out, FileAccess access);

namespace detail {

/// Returns Map or Read. Throws c10::ValueError for another value of LOCKSTEP_FILE_ACCESS.
LOCKSTEP_API FileAccess resolve_access(FileAccess asked, const std::string& path);

/// Returns whether `statfs` names a file system whose files are on another machine.
LOCKSTEP_API bool is_network_file_system(uint64_t type);

/// Counts the sizes of the files that a process opens, each file once.
class LOCKSTEP_API OpenedBytes {
 public:
  /// Adds the file with this device and number, and returns the sum.
  static uint64_t add(uint64_t device, uint64_t number, uint64_t size);
};

/// Returns the bytes of memory of the machine, or of the control group of this process where that has less.
LOCKSTEP_API uint64_t memory_bytes();

}  // namespace detail
}  // namespace lockstep::data
