#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <sys/types.h>

namespace lockstep::progress {

/// Standard error of this process without waiting: what nobody takes is kept and written later, in order. Not
/// thread-safe.
class ErrorOutput {
 public:
  ErrorOutput() = default;
  ErrorOutput(const ErrorOutput&) = delete;
  ErrorOutput& operator=(const ErrorOutput&) = delete;

  /// Writes to what standard error is now, until `close`.
  void open();
  /// Nothing is kept where `is_empty`.
  void close();

  bool is_empty() const { return waiting_.empty(); }
  /// Whether everything is written and more would be taken now.
  bool is_ready();
  /// Writes what is taken now and keeps the rest.
  void write(std::string_view text);
  /// Does so with a line; above 1 MiB that is kept, only the number of further lines is.
  void write_line(std::string_view line);
  /// Writes what was kept. Returns whether that is all.
  bool flush();
  /// Waits as long for what was kept.
  void flush_for(std::chrono::milliseconds time);

 private:
  bool takes_more(int milliseconds) const;
  /// As write(2) of a descriptor that does not block.
  ssize_t write_some();

  /// A description of its own, which does not block: that of standard error is shared with other processes.
  int own_ = -1;
  bool is_socket_ = false;
  std::string waiting_;
  int64_t num_left_out_ = 0;
};

}  // namespace lockstep::progress
