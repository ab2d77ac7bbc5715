#include "lockstep/base/trace/trace_text.h"

#include <charconv>
#include <cstdlib>
#include <unistd.h>

#include "lockstep/base/dtype_name.h"
#include "lockstep/base/host_name.h"
#include "lockstep/base/json_text.h"

namespace lockstep::trace::detail {
namespace {

void append_number(std::string& text, int64_t number) {
  std::array<char, 24> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number);
  text.append(digits.data(), end.ptr);
}

void append_microseconds(std::string& text, int64_t nanoseconds) {
  if (nanoseconds < 0) text += '-';
  const auto whole = static_cast<uint64_t>(std::abs(nanoseconds));
  append_number(text, static_cast<int64_t>(whole / 1000));
  text += {'.', static_cast<char>('0' + whole % 1000 / 100), static_cast<char>('0' + whole % 100 / 10),
           static_cast<char>('0' + whole % 10)};
}

}  // namespace

/// Names are string literals of lockstep, which need no escapes.
void set_event_text(const TraceEvent& event, const TraceWorker& worker, int lane, std::string& text) {
  text = "{\"name\":\"";
  text += event.name;
  text += "\",\"cat\":\"";
  text += phase_name(event.phase);
  text += "\",\"ph\":\"X\",\"ts\":";
  append_microseconds(text, event.begin + worker.clock_offset);
  text += ",\"dur\":";
  append_microseconds(text, event.end - event.begin);
  text += ",\"pid\":";
  append_number(text, worker.index);
  text += ",\"tid\":";
  append_number(text, lane);
  text += ",\"args\":{\"step\":";
  append_number(text, event.step);
  if (event.bytes != 0) {
    text += ",\"bytes\":";
    append_number(text, static_cast<int64_t>(event.bytes));
  }
  if (!event.reduce_op.empty()) {
    text += ",\"reduce_op\":\"";
    text += event.reduce_op;
    text += '"';
  }
  if (event.dtype >= 0) {
    text += ",\"dtype\":\"";
    text += dtype_name(static_cast<c10::ScalarType>(event.dtype));
    text += '"';
  }
  text += "}}";
}

void set_kernel_text(const KernelEvent& kernel, const TraceWorker& worker, std::string& text) {
  text = "{\"name\":" + json_quoted(kernel.name) + ",\"cat\":\"kernel\",\"ph\":\"X\",\"ts\":";
  append_microseconds(text, kernel.begin + worker.clock_offset);
  text += ",\"dur\":";
  append_microseconds(text, kernel.end - kernel.begin);
  text += c10::str(",\"pid\":", worker.index, ",\"tid\":", row_of(kernel), "}");
}

/// Rows of GPUs are below those of threads.
int row_of(const KernelEvent& kernel) {
  return 1'000'000 + kernel.device * 10'000 + static_cast<int>(kernel.stream % 10'000);
}

std::string metadata_text(std::string_view what, const TraceWorker& worker, int lane, const std::string& arguments) {
  return c10::str("{\"name\":\"", what, "\",\"ph\":\"M\",\"pid\":", worker.index, ",\"tid\":", lane, ",\"args\":{",
                  arguments, "}}");
}

std::string process_text(const TraceWorker& worker) {
  const std::string name = c10::str("worker ", worker.index, " (", host_name(), ", process ", ::getpid(), ")");
  return metadata_text("process_name", worker, 0,
                       c10::str("\"name\":", json_quoted(name), ",\"job\":", json_quoted(worker.job),
                                ",\"workers\":", worker.num_workers));
}

}  // namespace lockstep::trace::detail
