#include "lockstep/train/tensorboard/event_files.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <set>
#include <string_view>
#include <unistd.h>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/host_name.h"
#include "lockstep/base/log.h"
#include "lockstep/data/formats/records/record_reader.h"
#include "lockstep/data/formats/records/record_writer.h"
#include "lockstep/train/tensorboard/event_message.h"

namespace lockstep::tensorboard {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEventFile = "events.out.tfevents.";

struct OpenFiles {
  std::mutex mutex;
  std::multiset<std::string> paths;
};

OpenFiles& open_files() {
  static auto* const files = new OpenFiles;  // never destroyed: writers may be static objects
  return *files;
}

std::string whole_path(const fs::path& path) {
  std::error_code ignored;
  return fs::weakly_canonical(path, ignored).string();
}

bool is_open_here(const fs::path& path) {
  OpenFiles& files = open_files();
  const std::lock_guard lock(files.mutex);
  return files.paths.contains(whole_path(path));
}

/// Whether the process in the name "events.out.tfevents.SECONDS.HOST.PROCESS.NUMBER.training" lives on this host and is
/// another one.
bool is_of_other_process(const std::string& name) {
  const std::string stem = name.substr(0, name.size() - std::string_view(kTrainingSuffix).size());
  const size_t number = stem.rfind('.');
  const size_t process = stem.rfind('.', number - 1);
  const size_t host = stem.find('.', std::string_view(kEventFile).size());
  if (process == std::string::npos || host == std::string::npos || host >= process) return false;
  if (stem.substr(host + 1, process - host - 1) != host_name()) return false;
  const auto id = static_cast<pid_t>(std::strtol(stem.c_str() + process + 1, nullptr, 10));
  return id > 0 && id != ::getpid() && (::kill(id, 0) == 0 || errno == EPERM);
}

/// What a copy leaves out: later steps, and what is behind a damaged record.
struct Cut {
  bool any = false;
  std::string damage = {};
};

/// Copies the records up to this step.
Cut copy_until(const std::string& path, int64_t last_step, const std::string& to) {
  data::RecordReader reader(path, {.compression = data::Compression::None});
  data::RecordWriter writer(to);
  Cut cut;
  const auto next = [&](data::Bytes& record) {
    try {
      return reader.next(record);
    } catch (const DataError& error) {  // the end of a process that was killed, or damage
      cut = {true, error.what_without_backtrace()};
      return false;
    }
  };
  for (data::Bytes record; next(record);) {
    const std::string_view event = record.view();
    if (decode_step(event) <= last_step) {
      writer.write(event);
    } else {
      cut.any = true;
    }
  }
  writer.close();
  return cut;
}

/// Moves a damaged file away as it is, so that nothing of it is lost.
void keep_damaged(const std::string& path, const std::string& damage, std::error_code& error) {
  const fs::path kept = folder_for_earlier(fs::path(path).parent_path().string());
  fs::create_directories(kept, error);
  if (!error) fs::rename(path, kept / fs::path(path).filename(), error);
  if (error) return;
  LOCKSTEP_LOG(Warn) << "[tensorboard] the end of an event file is damaged or not complete; the whole file is in "
                     << kept.string() << ": " << damage;
}

void cut_event_file(const std::string& path, int64_t last_step) {
  // TensorBoard reads all files whose names contain "tfevents".
  const std::string partial = (fs::path(path).parent_path() / "events.writing").string();
  std::error_code error;
  Cut cut;
  try {
    cut = copy_until(path, last_step, partial);
  } catch (...) {
    fs::remove(partial, error);
    throw;
  }
  if (cut.any) {
    if (!cut.damage.empty()) keep_damaged(path, cut.damage, error);
    if (!error) fs::rename(partial, path, error);
  } else {
    fs::remove(partial, error);
  }
  LOCKSTEP_CHECK_DATA(!error, "[tensorboard] the file cannot be replaced: path=", path, ", reason=", error.message());
}

}  // namespace

OpenEventFile::OpenEventFile(std::string path) : path_(whole_path(path)) {
  OpenFiles& files = open_files();
  const std::lock_guard lock(files.mutex);
  files.paths.insert(path_);
}

OpenEventFile::~OpenEventFile() {
  OpenFiles& files = open_files();
  const std::lock_guard lock(files.mutex);
  files.paths.erase(files.paths.find(path_));
}

std::vector<std::string> earlier_event_files(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    const std::string name = entry->path().filename().string();
    const bool is_one =
        name.starts_with(kEventFile) && name.ends_with(kTrainingSuffix) && entry->is_regular_file(ignored);
    if (!is_one || is_open_here(entry->path()) || is_of_other_process(name)) continue;
    found.push_back(entry->path().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

void cut_event_files(const std::string& folder, int64_t last_step) {
  for (const std::string& path : earlier_event_files(folder)) cut_event_file(path, last_step);
}

void move_event_files(const std::string& from, const std::string& to) {
  for (const char* const inner : {"", "validation"}) {
    for (const std::string& path : earlier_event_files((fs::path(from) / inner).string())) {
      std::error_code error;
      fs::create_directories(fs::path(to) / inner, error);
      if (!error) fs::rename(path, fs::path(to) / inner / fs::path(path).filename(), error);
      LOCKSTEP_CHECK_DATA(!error, "[tensorboard] the file of an earlier training cannot be moved: path=", path,
                          ", to=", to, ", reason=", error.message());
    }
  }
}

std::string folder_for_earlier(const std::string& folder) {
  const fs::path first = fs::path(folder) / "before";
  fs::path path = first;
  std::error_code ignored;
  for (int i = 1; fs::exists(path, ignored); ++i) path = first.string() + "-" + std::to_string(i);
  return path.string();
}

bool has_earlier_events(const std::string& folder) {
  return !earlier_event_files(folder).empty() ||
         !earlier_event_files((fs::path(folder) / "validation").string()).empty();
}

}  // namespace lockstep::tensorboard
