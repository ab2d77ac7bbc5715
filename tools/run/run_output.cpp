#include "tools/run/run_output.h"

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <poll.h>
#include <string_view>
#include <unistd.h>
#include <utility>

namespace lockstep::tools {
namespace {

constexpr size_t kLongestLine = 16 * 1024 * 1024;

/// Returns false when nobody reads the target any more.
bool write_all(int target, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = write(target, bytes.data(), bytes.size());
    if (count >= 0) {
      bytes.remove_prefix(static_cast<size_t>(count));
    } else if (errno == EAGAIN) {  // a terminal that somebody else has made non-blocking
      pollfd ready{target, POLLOUT, 0};
      poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

/// Appends `lines`, which ends with a line end, with the prefix in front of each line.
void append_lines(std::string& text, std::string_view prefix, std::string_view lines) {
  if (prefix.empty()) {
    text += lines;
    return;
  }
  while (!lines.empty()) {
    const size_t length = lines.find('\n') + 1;
    text += prefix;
    text += lines.substr(0, length);
    lines.remove_prefix(length);
  }
}

/// Writes the lines that end in `bytes`, keeps the rest.
bool write_lines(OutputStream& stream, std::string_view bytes, std::string& text) {
  text.clear();
  const size_t last_end = bytes.rfind('\n');
  if (last_end != std::string_view::npos) {
    if (!stream.unfinished.empty()) {
      const size_t first_end = bytes.find('\n') + 1;
      text += stream.prefix;
      text += stream.unfinished;
      text += bytes.substr(0, first_end);
      append_lines(text, stream.prefix, bytes.substr(first_end, last_end + 1 - first_end));
      stream.unfinished.clear();
    } else {
      append_lines(text, stream.prefix, bytes.substr(0, last_end + 1));
    }
    bytes.remove_prefix(last_end + 1);
  }
  stream.unfinished += bytes;
  if (stream.unfinished.size() > kLongestLine) {
    text += stream.prefix + std::exchange(stream.unfinished, "") + '\n';
  }
  return write_all(stream.target, text);
}

/// Writes a last line that has no end.
void write_rest(OutputStream& stream) {
  if (!stream.unfinished.empty()) write_all(stream.target, stream.prefix + std::exchange(stream.unfinished, "") + '\n');
  stream.source.reset();
}

/// Copies what the pipe holds now, which `bytes` has room for.
void copy_piece(OutputStream& stream, std::string& bytes, std::string& text) {
  const ssize_t count = read(stream.source.get(), bytes.data(), bytes.size());
  if (count < 0) return;
  if (count == 0) {
    write_rest(stream);
  } else if (!write_lines(stream, std::string_view(bytes).substr(0, static_cast<size_t>(count)), text)) {
    stream.unfinished.clear();
    stream.source.reset();
  }
}

}  // namespace

OutputThread::OutputThread() : news_(open_pipe()), thread_([this] { copy(); }) {}

OutputThread::~OutputThread() { finish(); }

void OutputThread::add(std::vector<OutputStream> streams) {
  {
    const std::lock_guard lock(mutex_);
    for (OutputStream& stream : streams) new_.push_back(std::move(stream));
  }
  const char byte = 0;
  [[maybe_unused]] const ssize_t told = write(news_.write_end.get(), &byte, 1);
}

void OutputThread::take_new() {
  const std::lock_guard lock(mutex_);
  for (OutputStream& stream : new_) streams_.push_back(std::move(stream));
  new_.clear();
}

void OutputThread::finish() {
  if (!thread_.joinable()) return;
  news_.write_end.reset();
  thread_.join();
}

void OutputThread::copy() {
  std::string bytes(kPipeBytes, '\0');
  std::string text;
  for (bool finishing = false; !finishing;) {
    std::erase_if(streams_, [](const OutputStream& stream) { return !stream.source.is_open(); });
    std::vector<pollfd> waits{{news_.read_end.get(), POLLIN, 0}};
    for (const OutputStream& stream : streams_) waits.push_back({stream.source.get(), POLLIN, 0});
    poll(waits.data(), waits.size(), -1);
    for (size_t i = 0; i < streams_.size(); ++i) {
      if (waits[i + 1].revents != 0) copy_piece(streams_[i], bytes, text);
    }
    char byte = 0;
    finishing = waits[0].revents != 0 && read(news_.read_end.get(), &byte, 1) <= 0;
    take_new();
  }
  for (OutputStream& stream : streams_) {
    if (stream.source.is_open()) copy_piece(stream, bytes, text);
    if (stream.source.is_open()) write_rest(stream);
  }
}

std::string worker_prefix(int worker, int target) {
  constexpr std::array kColours{36, 33, 35, 32, 34, 31};
  const std::string name = "[worker " + std::to_string(worker) + "]";
  if (isatty(target) == 0 || std::getenv("NO_COLOR") != nullptr) return name + ' ';
  const int colour = kColours[static_cast<size_t>(worker) % kColours.size()];
  return "\033[" + std::to_string(colour) + 'm' + name + "\033[0m ";
}

}  // namespace lockstep::tools
