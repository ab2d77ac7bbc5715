#include "lockstep/comm/views/step_file.h"

#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include "lockstep/base/error.h"

namespace lockstep::comm::views {

struct StepFile::Mapping {
  explicit Mapping(Steps* mapped) : steps(mapped) {}
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { munmap(steps, sizeof(Steps)); }

  Steps* steps;
};

StepFile StepFile::create(const std::string& path) { return map(path, true); }

StepFile StepFile::open(const std::string& path) { return map(path, false); }

StepFile StepFile::map(const std::string& path, bool create) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC | (create ? O_CREAT | O_TRUNC : 0), 0600);
  const auto check = [&](bool holds) {
    LOCKSTEP_CHECK_VALUE(holds, "[StepFile] the launcher and its workers must share a file for steps: path=", path,
                         ", error=", std::generic_category().message(errno));
  };
  check(descriptor >= 0);
  struct stat info {};
  // Reserves the memory, too: in a full file system a write to the mapping would end the process (SIGBUS).
  const int refusal = create ? posix_fallocate(descriptor, 0, sizeof(Steps)) : 0;
  const bool has_size =
      refusal == 0 && fstat(descriptor, &info) == 0 && info.st_size >= static_cast<off_t>(sizeof(Steps));
  void* const memory =
      has_size ? mmap(nullptr, sizeof(Steps), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0) : MAP_FAILED;
  const int error = refusal != 0 ? refusal : errno;
  ::close(descriptor);
  errno = error;
  check(memory != MAP_FAILED);
  auto* const steps = static_cast<Steps*>(memory);
  if (create) *steps = Steps{};
  return StepFile(std::make_shared<Mapping>(steps));
}

void StepFile::set_resumed(int64_t step) { std::atomic_ref<int64_t>(mapping_->steps->resumed).store(step); }

void StepFile::set_finished(int64_t step) {
  std::atomic_ref<int64_t>(mapping_->steps->finished).store(step, std::memory_order_release);
}

StepFile::Steps StepFile::read() const {
  return {std::atomic_ref<int64_t>(mapping_->steps->resumed).load(),
          std::atomic_ref<int64_t>(mapping_->steps->finished).load(std::memory_order_acquire)};
}

}  // namespace lockstep::comm::views
