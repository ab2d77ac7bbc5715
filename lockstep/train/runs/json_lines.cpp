#include "lockstep/train/runs/json_lines.h"

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/state/file_writer.h"

namespace lockstep::detail {

RunJson json_number(double value) {
  if (std::isfinite(value)) return value;
  if (std::isnan(value)) return "NaN";
  return value > 0 ? "Infinity" : "-Infinity";
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

void JsonLines::keep(const std::function<bool(const RunJson&)>& is_kept) const {
  std::error_code error;
  const bool exists = std::filesystem::exists(path_, error);
  std::string kept;
  std::ifstream file(path_);
  LOCKSTEP_CHECK_DATA(!error && (!exists || file.is_open()), "[run_folder] the file cannot be read: path=", path_,
                      "; choose another folder");
  for (std::string line; std::getline(file, line);) {
    const RunJson json = RunJson::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_object() && is_kept(json)) kept += line + "\n";
  }
  LOCKSTEP_CHECK_DATA(!file.bad(), "[run_folder] the file cannot be read: path=", path_, "; choose another folder");
  if (exists && kept.size() == std::filesystem::file_size(path_, error)) return;
  replace_file(path_, kept, /*sync=*/true);
}

void JsonLines::append(const RunJson& line) const {
  const std::string text = json_text(line) + "\n";
  const int file = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  ssize_t written = -1;
  if (file >= 0) {
    do {
      written = ::write(file, text.data(), text.size());
    } while (written < 0 && errno == EINTR);
  }
  const int error = errno;
  if (file >= 0) ::close(file);
  LOCKSTEP_CHECK_DATA(written == static_cast<ssize_t>(text.size()),
                      "[run_folder] the line could not be written: path=", path_,
                      ", reason=", written < 0 ? std::strerror(error) : "no space is left");
}

}  // namespace lockstep::detail
