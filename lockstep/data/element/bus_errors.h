#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/api.h"

/// Internal: what happens where a page of a mapped file cannot be read, because the file was cut or its storage failed.
/// The system sends SIGBUS to the thread that reads.
///
/// A handler, which is installed with the first mapping, puts a page of zeros there and notes the failure, and the
/// thread goes on. Whoever has read mapped memory asks afterwards (`Buffer::check`), and throws; iterators ask for the
/// bytes of their last element, and nobody for bytes that a program keeps longer. Where users read the memory of a
/// writable mapping themselves nobody asks: the handler prints the file and the offset, and the process ends as it
/// would without a handler. SIGBUS anywhere else goes to the handler that was there before.
namespace lockstep::data::detail {

enum class OnBusError {
  /// A page of zeros; `WatchedPages::failed_at` tells.
  Note,
  /// A message, then the earlier handler.
  Die,
};

/// How many pages could not be read in this process. Zero nearly always: the one check of hot paths.
LOCKSTEP_API extern std::atomic<uint64_t> bus_error_count;
inline bool any_bus_error() { return bus_error_count.load(std::memory_order_relaxed) != 0; }

/// How many pages could not be read by the calling thread.
LOCKSTEP_API uint64_t bus_errors_of_thread();
/// Returns operation, file and offset of the page that the calling thread could not read last.
LOCKSTEP_API std::string last_bus_error_of_thread();

/// Watches mapped pages while it lives. They must be unmapped afterwards, not before.
class WatchedPages {
 public:
  /// `description` is what the message says where the process dies.
  WatchedPages(const void* memory, size_t size, OnBusError action, const std::string& description = "");
  ~WatchedPages();
  WatchedPages(const WatchedPages&) = delete;
  WatchedPages& operator=(const WatchedPages&) = delete;

  /// Returns the offset of the first page that could not be read.
  std::optional<uint64_t> failed_at() const;

 private:
  struct Slot* slot_;
};

}  // namespace lockstep::data::detail
