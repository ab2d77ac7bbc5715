#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fcntl.h>
#include <mutex>
#include <poll.h>
#include <string>
#include <sys/ioctl.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace lockstep::tests {

/// What a terminal of a width shows after some output: rows of characters.
class ShownRows {
 public:
  explicit ShownRows(size_t width) : width_(width) {}

  void feed(const std::string& bytes) {
    for (size_t i = 0; i < bytes.size();) i += feed_one(bytes, i);
  }
  /// Whether a character was written behind the last column.
  bool has_wrapped() const { return has_wrapped_; }
  std::vector<std::string> rows() const {
    std::vector<std::string> texts;
    for (const auto& row : rows_) {
      std::string text;
      for (const std::string& character : row) text += character;
      while (text.ends_with(' ')) text.pop_back();
      texts.push_back(text);
    }
    return texts;
  }

 private:
  size_t feed_one(const std::string& bytes, size_t i) {
    if (bytes[i] == '\r') {
      column_ = 0;
    } else if (bytes[i] == '\n') {
      next_row();
    } else if (bytes[i] == '\033') {
      const size_t end = bytes.find_first_of("mKAJ", i);
      if (end == std::string::npos) return bytes.size() - i;
      if (bytes[end] == 'A') row_ -= std::min<size_t>(row_, std::stoul(bytes.substr(i + 2)));
      if (bytes[end] == 'J') rows_.resize(row_ + 1);
      const bool clears = bytes[end] == 'K' || bytes[end] == 'J';
      if (clears && rows_[row_].size() > column_) rows_[row_].resize(column_);
      return end - i + 1;
    } else {
      size_t end = i + 1;
      while (end < bytes.size() && (static_cast<unsigned char>(bytes[end]) & 0xc0U) == 0x80U) ++end;
      put(bytes.substr(i, end - i));
      return end - i;
    }
    return 1;
  }

  void put(std::string character) {
    if (column_ >= width_) {
      has_wrapped_ = true;
      next_row();
    }
    if (rows_[row_].size() <= column_) rows_[row_].resize(column_ + 1, " ");
    rows_[row_][column_++] = std::move(character);
  }

  void next_row() {
    if (++row_ == rows_.size()) rows_.emplace_back();
    column_ = 0;
  }

  size_t width_;
  size_t column_ = 0;
  size_t row_ = 0;
  std::vector<std::vector<std::string>> rows_{1};
  bool has_wrapped_ = false;
};

/// A pseudo terminal, whose output is read all the time, except after `hold`.
class Terminal {
 public:
  explicit Terminal(int width) : leader_(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)) {
    ::grantpt(leader_);
    ::unlockpt(leader_);
    path_ = ::ptsname(leader_);
    follower_ = ::open(path_.c_str(), O_RDWR | O_NOCTTY | O_CLOEXEC);
    resize(width);
    reader_ = std::thread([this] { read(); });
  }
  ~Terminal() {
    is_over_ = true;
    reader_.join();
    ::close(follower_);
    ::close(leader_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  const std::string& path() const { return path_; }
  int descriptor() const { return follower_; }
  void resize(int width) const {
    winsize size{};
    size.ws_col = static_cast<unsigned short>(width);
    size.ws_row = 24;
    ::ioctl(leader_, TIOCSWINSZ, &size);
  }

  /// Nobody reads until `hold(false)`.
  void hold(bool is_held = true) { is_held_ = is_held; }

  /// All bytes that were written before this call.
  std::string output() const {
    const int mark = num_written_marks_++;
    if (::write(follower_, &kMark, 1) == 1) {
      while (num_marks_ <= mark) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return read_so_far();
  }
  /// Waits until there was such an output after the first `begin` bytes; false after 20 seconds.
  bool shows(const std::string& text, size_t begin = 0) const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (read_so_far().find(text, begin) == std::string::npos) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return true;
  }
  ShownRows screen(size_t width) const {
    ShownRows rows(width);
    rows.feed(output());
    return rows;
  }

 private:
  /// Tells how far the output was read; not a part of it.
  static constexpr char kMark = '\a';

  std::string read_so_far() const {
    const std::lock_guard lock(mutex_);
    return output_;
  }

  void read() {
    while (!is_over_) {
      if (is_held_) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        continue;
      }
      pollfd ready{leader_, POLLIN, 0};
      if (::poll(&ready, 1, 10) <= 0 || (ready.revents & POLLIN) == 0) continue;
      char buffer[4096];
      const ssize_t count = ::read(leader_, buffer, sizeof(buffer));
      if (count <= 0) continue;
      const std::lock_guard lock(mutex_);
      for (ssize_t i = 0; i < count; ++i) {
        if (buffer[i] == kMark) {
          ++num_marks_;
        } else {
          output_ += buffer[i];
        }
      }
    }
  }

  int leader_;
  int follower_ = -1;
  std::string path_;
  std::atomic<bool> is_over_{false};
  std::atomic<bool> is_held_{false};
  mutable std::atomic<int> num_written_marks_{0};
  std::atomic<int> num_marks_{0};
  mutable std::mutex mutex_;
  std::string output_;
  std::thread reader_;
};

/// While it lives, standard error of this process is another file.
class ErrorOutputTo {
 public:
  explicit ErrorOutputTo(int descriptor) : before_(::dup(STDERR_FILENO)) { ::dup2(descriptor, STDERR_FILENO); }
  ~ErrorOutputTo() {
    ::dup2(before_, STDERR_FILENO);
    ::close(before_);
  }
  ErrorOutputTo(const ErrorOutputTo&) = delete;
  ErrorOutputTo& operator=(const ErrorOutputTo&) = delete;

 private:
  int before_;
};

/// While it lives, an environment variable has a value, or none.
class EnvironmentValue {
 public:
  EnvironmentValue(std::string name, const char* value) : name_(std::move(name)) {
    const char* const before = std::getenv(name_.c_str());
    was_set_ = before != nullptr;
    if (was_set_) before_ = before;
    set(value);
  }
  ~EnvironmentValue() { set(was_set_ ? before_.c_str() : nullptr); }
  EnvironmentValue(const EnvironmentValue&) = delete;
  EnvironmentValue& operator=(const EnvironmentValue&) = delete;

 private:
  void set(const char* value) const {
    if (value == nullptr) {
      ::unsetenv(name_.c_str());
    } else {
      ::setenv(name_.c_str(), value, 1);
    }
  }

  std::string name_;
  std::string before_;
  bool was_set_ = false;
};

}  // namespace lockstep::tests
