#include "lockstep/comm/shared/arena.h"

#include <bit>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <pthread.h>
#include <random>
#include <sstream>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>
#include <utility>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

constexpr size_t kLine = 64;
constexpr size_t kPage = 4096;
/// Free blocks from this size on give their pages back where more memory is free than used.
constexpr size_t kLarge = 1 << 20;
constexpr size_t kKeepAtLeast = size_t{1} << 30;
constexpr uint64_t kMagic = 0x6c6f636b73746570;  // "lockstep"

/// Begins the file and identifies it.
struct FileHead {
  uint64_t magic = 0;
  uint64_t nonce = 0;
};

/// Precedes each block.
struct BlockHead {
  uint32_t size_class = 0;
};

size_t bytes_of(size_t size_class) {
  const size_t doubling = size_class / 4;
  return (kLine << doubling) / 4 * (4 + size_class % 4);
}

/// The smallest class that holds `bytes`.
size_t class_of(size_t bytes) {
  if (bytes <= kLine) return 0;
  const size_t doubling = static_cast<size_t>(std::bit_width((bytes - 1) / kLine)) - 1;
  size_t size_class = 4 * doubling;
  while (bytes_of(size_class) < bytes) ++size_class;
  return size_class;
}

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

constexpr size_t kSmallest = size_t{256} << 20;

/// As much as the machine has: untouched pages take no memory.
size_t address_range() {
#if defined(__SANITIZE_THREAD__)
  return size_t{1} << 30;  // ThreadSanitizer leaves programs few addresses on Arm, and every worker maps all others
#endif
  struct sysinfo info {};
  if (sysinfo(&info) != 0) return size_t{16} << 30;
  return round_up(static_cast<size_t>(info.totalram) * info.mem_unit, kPage);
}

uint64_t random_number() {
  std::random_device device;
  return static_cast<uint64_t>(device()) << 32 | device();
}

std::atomic<SharedArena*> the_arena{nullptr};
std::atomic<uint64_t> forks{0};

void count_forks() {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); }); });
}

std::string with_error(const char* what) { return c10::str(what, ": ", std::strerror(errno)); }

std::string write_all(int file, const char* data, size_t bytes, size_t offset) {
  while (bytes > 0) {
    const ssize_t written = pwrite(file, data, bytes, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return with_error("writing shared memory");
    data += written;
    bytes -= static_cast<size_t>(written);
    offset += static_cast<size_t>(written);
  }
  return "";
}

}  // namespace

uint64_t num_forks() { return forks.load(std::memory_order_relaxed); }

SharedArena* SharedArena::of_process(std::string& why_not) {
  static std::mutex mutex;
  static std::string reason;
  const std::lock_guard lock(mutex);
  if (SharedArena* arena = the_arena.load(std::memory_order_acquire)) return arena;
  if (reason.empty()) {
    auto* arena = new SharedArena;
    reason = arena->open();
    if (reason.empty()) {
      the_arena.store(arena, std::memory_order_release);
      count_forks();
      pthread_atfork([] { existing()->lock_all(); }, [] { existing()->unlock_all(); },
                     [] { existing()->become_private(); });
      return arena;
    }
    delete arena;
  }
  why_not = reason;
  return nullptr;
}

SharedArena* SharedArena::existing() { return the_arena.load(std::memory_order_acquire); }

/// Returns why it failed; empty on success.
std::string SharedArena::open() {
  file_ = memfd_create("lockstep", MFD_CLOEXEC);
  if (file_ < 0) return with_error("memfd_create");
  void* mapped = MAP_FAILED;
  for (size_ = address_range(); mapped == MAP_FAILED; size_ = mapped == MAP_FAILED ? size_ / 2 : size_) {
    if (size_ < kSmallest) return with_error("mmap of shared memory");
    mapped = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_, 0);
  }
  if (ftruncate(file_, static_cast<off_t>(size_)) != 0) return with_error("ftruncate of shared memory");
  base_ = static_cast<char*>(mapped);
  madvise(mapped, size_, MADV_DONTDUMP);
  nonce_ = random_number();
  *reinterpret_cast<FileHead*>(base_) = {kMagic, nonce_};
  top_ = kPage;
  return "";
}

void SharedArena::lock_all() {
  for (std::mutex& mutex : mutexes_) mutex.lock();
}

void SharedArena::unlock_all() {
  for (std::mutex& mutex : mutexes_) mutex.unlock();
}

/// In a forked child: its writes must not reach the parent.
void SharedArena::become_private() {
  constexpr int kFlags = MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED;
  if (file_ >= 0 && mmap(base_, size_, PROT_READ | PROT_WRITE, kFlags, file_, 0) == MAP_FAILED) {
    mmap(base_, size_, PROT_NONE, kFlags | MAP_ANONYMOUS, -1, 0);
  }
  if (file_ >= 0) close(std::exchange(file_, -1));
  unlock_all();
}

std::string SharedArena::renew() {
  const int fresh = memfd_create("lockstep", MFD_CLOEXEC);
  if (fresh < 0) return with_error("memfd_create");
  lock_all();
  std::string reason;
  if (ftruncate(fresh, static_cast<off_t>(size_)) != 0) reason = with_error("ftruncate of shared memory");
  if (reason.empty()) reason = copy_contents(fresh);
  constexpr int kFlags = MAP_SHARED | MAP_NORESERVE | MAP_FIXED;
  if (reason.empty() && mmap(base_, size_, PROT_READ | PROT_WRITE, kFlags, fresh, 0) == MAP_FAILED) {
    reason = with_error("mmap of shared memory");
  }
  if (reason.empty()) {
    madvise(base_, size_, MADV_DONTDUMP);
    if (file_ >= 0) close(file_);
    file_ = fresh;
    nonce_ = random_number();
    *reinterpret_cast<FileHead*>(base_) = {kMagic, nonce_};
  } else {
    close(fresh);
  }
  unlock_all();
  return reason;
}

/// Writes all pages that were touched to another file. Returns why it failed; empty on success.
std::string SharedArena::copy_contents(int file) const {
  const size_t end = top_.load(std::memory_order_relaxed);
  std::string reason;
  for (size_t begin = 0; begin < end && reason.empty();) {
    size_t until = end;
    if (file_ >= 0) {
      const off_t data = lseek(file_, static_cast<off_t>(begin), SEEK_DATA);
      if (data < 0 || static_cast<size_t>(data) >= end) return "";
      begin = static_cast<size_t>(data);
      until = std::min(end, static_cast<size_t>(lseek(file_, data, SEEK_HOLE)));
    }
    reason = write_all(file, base_ + begin, until - begin, begin);
    begin = until;
  }
  return reason;
}

char* SharedArena::carve(size_t bytes) {
  const size_t whole = kLine + round_up(bytes, kLine);
  size_t begin = top_.load(std::memory_order_relaxed);
  do {
    if (whole > size_ - begin) return nullptr;
  } while (!top_.compare_exchange_weak(begin, begin + whole, std::memory_order_relaxed));
  return base_ + begin + kLine;
}

void* SharedArena::allocate(size_t bytes) {
  const size_t size_class = class_of(bytes);
  if (size_class >= kNumSizes) return nullptr;
  const size_t whole = bytes_of(size_class);
  char* data = nullptr;
  {
    FreeBlocks& kept = free_[size_class];
    const std::lock_guard lock(mutexes_[size_class % kNumMutexes]);
    if (!kept.empty()) {
      data = kept.back();
      kept.pop_back();
    }
  }
  if (data != nullptr) {
    kept_.fetch_sub(whole, std::memory_order_relaxed);
  } else if (data = carve(whole); data == nullptr) {
    return nullptr;
  }
  used_.fetch_add(whole, std::memory_order_relaxed);
  reinterpret_cast<BlockHead*>(data - kLine)->size_class = static_cast<uint32_t>(size_class);
  return data;
}

void SharedArena::free(void* pointer) {
  auto* const data = static_cast<char*>(pointer);
  const size_t size_class = reinterpret_cast<const BlockHead*>(data - kLine)->size_class;
  LOCKSTEP_ASSERT(size_class < kNumSizes, "a block of shared memory was overwritten before its beginning");
  const size_t bytes = bytes_of(size_class);
  const size_t used = used_.fetch_sub(bytes, std::memory_order_relaxed) - bytes;
  const size_t kept = kept_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  if (bytes >= kLarge && kept > kKeepAtLeast && kept > used) give_back_pages(data, bytes);
  FreeBlocks& list = free_[size_class];
  const std::lock_guard lock(mutexes_[size_class % kNumMutexes]);
  list.push_back(data);
}

void SharedArena::give_back_pages(char* data, size_t bytes) {
  const auto begin = round_up(offset_of(data), kPage);
  const auto end = (offset_of(data) + bytes) / kPage * kPage;
  // Where the system cannot do this, the pages stay in use.
  if (begin < end && file_ >= 0) {
    [[maybe_unused]] const int state = fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                                 static_cast<off_t>(begin), static_cast<off_t>(end - begin));
  }
}

std::string SharedArena::offer() const {
  return c10::str(getpid(), " ", file_, " ", static_cast<uint64_t>(size_), " ", nonce_);
}

namespace {

/// Opens the file of an arena. CollectiveError where it is another file: of another size, or without the numbers that
/// an arena begins with.
int open_file(const std::string& path, uint64_t size, uint64_t nonce) {
  struct stat found {};
  if (stat(path.c_str(), &found) != 0) return -1;
  if (S_ISREG(found.st_mode) && static_cast<uint64_t>(found.st_size) == size) {
    FileHead head;
    const int opened = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (opened < 0) return -1;
    const bool is_read = pread(opened, &head, sizeof(head), 0) == sizeof(head);
    if (is_read && fstat(opened, &found) == 0 && static_cast<uint64_t>(found.st_size) == size && head.magic == kMagic &&
        head.nonce == nonce) {
      return opened;
    }
    close(opened);
  }
  LOCKSTEP_CHECK_COLLECTIVE(false, "[PeerArena] ", path,
                            " is not the worker's memory: the workers are in different process namespaces ",
                            "(containers?)");
  return -1;
}

}  // namespace

PeerArena::PeerArena(const std::string& offer) {
  std::istringstream in(offer);
  int64_t process = 0;
  int64_t file = 0;
  uint64_t nonce = 0;
  in >> process >> file >> size_ >> nonce;
  LOCKSTEP_CHECK_VALUE(!in.fail() && size_ >= kPage, "[PeerArena] an offer is four numbers: offer=\"", offer, "\"");
  const std::string path = c10::str("/proc/", process, "/fd/", file);
  const int opened = open_file(path, size_, nonce);
  LOCKSTEP_CHECK_COLLECTIVE(opened >= 0, "[PeerArena] the memory of process ", process,
                            " cannot be opened: ", std::strerror(errno), " (", path, ")");
  void* mapped = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, opened, 0);
  const int error = errno;
  close(opened);
  LOCKSTEP_CHECK_COLLECTIVE(mapped != MAP_FAILED, "[PeerArena] the memory of process ", process,
                            " cannot be mapped: ", std::strerror(error), ", bytes=", size_);
  base_ = static_cast<char*>(mapped);
  madvise(mapped, size_, MADV_DONTDUMP);
  madvise(mapped, size_, MADV_DONTFORK);
  count_forks();
  num_forks_ = num_forks();
}

// A forked child has not mapped it, and may have mapped something else there.
PeerArena::~PeerArena() {
  if (num_forks_ == num_forks()) munmap(base_, size_);
}

namespace {

thread_local bool allocates_shared = false;

/// Replaces LibTorch's allocator for the CPU, and forwards to it what need not be shared.
///
/// `allocate` is const in older LibTorches and not in newer ones, which also ask for `copy_data`; so both forms are
/// defined, and none is marked `override`.
class ArenaAllocator final : public c10::Allocator {
 public:
  explicit ArenaAllocator(c10::Allocator* other) : other_(other) {}

  c10::DataPtr allocate(size_t bytes) const { return make(bytes); }
  c10::DataPtr allocate(size_t bytes) { return make(bytes); }
  c10::DeleterFnPtr raw_deleter() const override { return &free_raw; }
  void copy_data(void* to, const void* from, size_t bytes) const { __builtin_memcpy(to, from, bytes); }

  static ArenaAllocator& install() {
    static auto* const installed = [] {
      auto* made = new ArenaAllocator(c10::GetCPUAllocator());
      beneath_ = made->other_;
      c10::SetCPUAllocator(made, /*priority=*/255);
      return made;
    }();
    return *installed;
  }

 private:
  c10::DataPtr make(size_t bytes) const {
    if (allocates_shared && bytes > 0) {
      if (SharedArena* arena = SharedArena::existing()) {
        if (void* data = arena->allocate(bytes)) return {data, data, &free_raw, c10::Device(c10::kCPU)};
      }
    }
    return other_->allocate(bytes);
  }

  static void free_raw(void* data) {
    SharedArena* arena = SharedArena::existing();
    if (arena != nullptr && data != nullptr && arena->contains(data)) {
      arena->free(data);
    } else {
      beneath_->raw_deleter()(data);
    }
  }

  c10::Allocator* other_;
  static inline c10::Allocator* beneath_ = nullptr;
};

}  // namespace

SharedAllocation::SharedAllocation(bool on) : before_(std::exchange(allocates_shared, on)) {
  if (on) ArenaAllocator::install();
}

SharedAllocation::~SharedAllocation() { allocates_shared = before_; }

}  // namespace lockstep::comm
