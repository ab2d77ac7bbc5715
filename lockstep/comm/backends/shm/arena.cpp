#include "lockstep/comm/backends/shm/arena.h"

#include <bit>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <random>
#include <sstream>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

constexpr size_t kLine = 64;
constexpr size_t kPage = 4096;
/// Blocks from this size on give their pages back when more is kept than is used.
constexpr size_t kLarge = 1 << 20;
constexpr size_t kKeepAtLeast = size_t{1} << 30;
constexpr uint64_t kMagic = 0x6c6f636b73746570;  // "lockstep"

/// Begins the file, so that whoever maps it can see that it is the right one.
struct FileHead {
  uint64_t magic = 0;
  uint64_t nonce = 0;
};

/// Stands before each block.
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

/// As much as the machine has: what is not touched costs nothing.
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

}  // namespace

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
      return arena;
    }
    delete arena;
  }
  why_not = reason;
  return nullptr;
}

SharedArena* SharedArena::existing() { return the_arena.load(std::memory_order_acquire); }

/// Returns why it is not possible, or nothing.
std::string SharedArena::open() {
  const auto failed = [&](const char* what) { return c10::str(what, ": ", std::strerror(errno)); };
  file_ = memfd_create("lockstep", MFD_CLOEXEC);
  if (file_ < 0) return failed("memfd_create");
  void* mapped = MAP_FAILED;
  for (size_ = address_range(); mapped == MAP_FAILED; size_ = mapped == MAP_FAILED ? size_ / 2 : size_) {
    if (size_ < kSmallest) return failed("mmap of shared memory");
    mapped = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_, 0);
  }
  if (ftruncate(file_, static_cast<off_t>(size_)) != 0) return failed("ftruncate of shared memory");
  base_ = static_cast<char*>(mapped);
  madvise(mapped, size_, MADV_DONTDUMP);
  nonce_ = random_number();
  *reinterpret_cast<FileHead*>(base_) = {kMagic, nonce_};
  top_ = kPage;
  return "";
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
    const std::lock_guard lock(kept.mutex);
    if (!kept.blocks.empty()) {
      data = kept.blocks.back();
      kept.blocks.pop_back();
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
  const std::lock_guard lock(list.mutex);
  list.blocks.push_back(data);
}

void SharedArena::give_back_pages(char* data, size_t bytes) {
  const auto begin = round_up(offset_of(data), kPage);
  const auto end = (offset_of(data) + bytes) / kPage * kPage;
  // Where the system cannot, the pages stay: no harm but their memory.
  if (begin < end) {
    [[maybe_unused]] const int state = fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                                 static_cast<off_t>(begin), static_cast<off_t>(end - begin));
  }
}

std::string SharedArena::offer() const {
  return c10::str(getpid(), " ", file_, " ", static_cast<uint64_t>(size_), " ", nonce_);
}

PeerArena::PeerArena(const std::string& offer) {
  std::istringstream in(offer);
  int64_t process = 0;
  int64_t file = 0;
  uint64_t nonce = 0;
  in >> process >> file >> size_ >> nonce;
  LOCKSTEP_CHECK_VALUE(!in.fail() && size_ >= kPage, "[PeerArena] an offer is four numbers: offer=\"", offer, "\"");
  const std::string path = c10::str("/proc/", process, "/fd/", file);
  const int opened = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  LOCKSTEP_CHECK_COLLECTIVE(opened >= 0, "[PeerArena] the memory of process ", process,
                            " cannot be opened: ", std::strerror(errno), " (", path, ")");
  void* mapped = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, opened, 0);
  const int error = errno;
  close(opened);
  LOCKSTEP_CHECK_COLLECTIVE(mapped != MAP_FAILED, "[PeerArena] the memory of process ", process,
                            " cannot be mapped: ", std::strerror(error), ", bytes=", size_);
  base_ = static_cast<char*>(mapped);
  madvise(mapped, size_, MADV_DONTDUMP);
  const auto head = *reinterpret_cast<const FileHead*>(base_);
  if (head.magic != kMagic || head.nonce != nonce) {
    munmap(base_, size_);
    LOCKSTEP_CHECK_COLLECTIVE(false, "[PeerArena] process ", process,
                              " is another one here: the workers see different processes (containers?)");
  }
}

PeerArena::~PeerArena() { munmap(base_, size_); }

}  // namespace lockstep::comm
