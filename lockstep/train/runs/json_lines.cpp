#include "lockstep/train/runs/json_lines.h"

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep::detail {
namespace {

/// Calls `use` with each line that is an object, and with the object.
void read_lines(const std::string& path, const std::function<void(const std::string&, const RunJson&)>& use) {
  std::error_code error;
  if (!std::filesystem::exists(path, error) && !error) return;
  std::ifstream file(path);
  const auto check = [&](bool is_good) {
    LOCKSTEP_CHECK_DATA(is_good, "[run_folder] the file cannot be read: path=", path, "; choose another folder");
  };
  check(!error && file.is_open());
  for (std::string line; std::getline(file, line);) {
    const RunJson json = RunJson::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_object()) use(line, json);
  }
  check(!file.bad());
}

bool sync_file(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool is_synced = file >= 0 && ::fsync(file) == 0;
  if (file >= 0) ::close(file);
  return is_synced;
}

}  // namespace

RunJson json_number(double value) {
  if (std::isfinite(value)) return value;
  if (std::isnan(value)) return "NaN";
  return value > 0 ? "Infinity" : "-Infinity";
}

double rounded(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", value);
  return std::strtod(text, nullptr);
}

std::string json_text(const RunJson& json, int indent) {
  return json.dump(indent, ' ', /*ensure_ascii=*/false, RunJson::error_handler_t::replace);
}

std::string iso_time(double unix_seconds) {
  const auto seconds = static_cast<std::time_t>(unix_seconds);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

double unix_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void JsonLines::each(const std::function<void(const RunJson&)>& use) const {
  read_lines(path_, [&](const std::string&, const RunJson& json) { use(json); });
}

void JsonLines::keep(const std::function<bool(const RunJson&)>& is_kept) {
  num_missing_ = 0;
  torn_at_.reset();
  const std::string partial = path_ + ".writing";
  std::error_code error;
  const bool exists = std::filesystem::exists(path_, error);
  int64_t bytes = 0;
  std::ofstream kept(partial, std::ios::binary | std::ios::trunc);
  read_lines(path_, [&](const std::string& line, const RunJson& json) {
    if (!is_kept(json)) return;
    bytes += static_cast<int64_t>(line.size() + 1);
    kept << line << '\n';
  });
  kept.close();
  const bool is_whole = kept.good() && sync_file(partial);
  const bool is_same = exists && static_cast<int64_t>(std::filesystem::file_size(path_, error)) == bytes;
  if (is_whole && !is_same) std::filesystem::rename(partial, path_, error);
  std::error_code ignored;
  if (!is_whole || is_same || error) std::filesystem::remove(partial, ignored);
  LOCKSTEP_CHECK_DATA(is_whole && !error, "[run_folder] the file cannot be written: path=", path_,
                      "; make space, or choose another folder");
}

void JsonLines::append(const RunJson& line) {
  const std::string text = json_text(line) + "\n";
  const int file = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  ssize_t written = -1;
  int error = errno;
  if (file >= 0) {
    if (torn_at_ && ::ftruncate(file, *torn_at_) == 0) torn_at_.reset();
    const off_t begin = ::lseek(file, 0, SEEK_END);
    errno = ENOSPC;
    if (!torn_at_) {
      do {
        written = ::write(file, text.data(), text.size());
      } while (written < 0 && errno == EINTR);
    }
    error = written < 0 ? errno : ENOSPC;
    const bool is_torn = written > 0 && written < static_cast<ssize_t>(text.size());
    if (is_torn && ::ftruncate(file, begin) != 0) torn_at_ = begin;
    ::close(file);
  }
  if (written == static_cast<ssize_t>(text.size())) return;
  if (num_missing_++ > 0) return;
  LOCKSTEP_LOG(Warn) << "[run_folder] a line could not be written, the training goes on without it: path=" << path_
                     << ", reason=" << std::strerror(error) << "; later lines are tried again";
}

}  // namespace lockstep::detail
