#include "lockstep/data/element/bus_errors.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <mutex>
#include <string_view>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::data::detail {

std::atomic<uint64_t> bus_error_count{0};

/// What the handler reads. Slots are never freed, so it needs no lock.
struct Slot {
  static constexpr uint64_t kNoFailure = ~uint64_t{0};

  std::atomic<uintptr_t> begin{0};  // 0 in a free slot
  std::atomic<uintptr_t> end{0};
  std::atomic<uint64_t> failed_at{kNoFailure};
  OnBusError action = OnBusError::Note;
  std::array<char, 512> description{};
};

namespace {

struct SlotBlock {
  std::array<Slot, 64> slots;
  SlotBlock* next = nullptr;
};

std::mutex slots_mutex;
std::vector<Slot*>& free_slots() {
  static auto* slots = new std::vector<Slot*>();  // mappings may outlive static objects
  return *slots;
}
std::atomic<SlotBlock*> slot_blocks{nullptr};
struct sigaction earlier_action {};
/// Of this thread. The signal is handled by the thread that reads.
thread_local Slot* last_failed = nullptr;
thread_local uint64_t num_failed = 0;

Slot* slot_at(uintptr_t address) {
  for (SlotBlock* block = slot_blocks.load(std::memory_order_acquire); block != nullptr; block = block->next) {
    for (Slot& slot : block->slots) {
      const uintptr_t begin = slot.begin.load(std::memory_order_acquire);
      if (begin != 0 && address >= begin && address < slot.end.load(std::memory_order_relaxed)) return &slot;
    }
  }
  return nullptr;
}

/// Puts a page of zeros where a page cannot be read. The failure is noted first, so that a thread which reads the zeros
/// finds the note.
bool replace_page(Slot& slot, uintptr_t address) {
  const auto page_size = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const uintptr_t page = address / page_size * page_size;
  uint64_t none = Slot::kNoFailure;
  slot.failed_at.compare_exchange_strong(none, page - slot.begin.load(std::memory_order_relaxed));
  last_failed = &slot;
  ++num_failed;
  bus_error_count.fetch_add(1);
  void* memory =
      ::mmap(reinterpret_cast<void*>(page), page_size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  return memory != MAP_FAILED;
}

void print(std::string_view text) {
  [[maybe_unused]] const ssize_t ignored = ::write(STDERR_FILENO, text.data(), text.size());
}

/// As printf does, which a handler must not call.
void print_number(uint64_t number) {
  std::array<char, 20> digits{};
  size_t at = digits.size();
  do {
    digits[--at] = static_cast<char>('0' + number % 10);
    number /= 10;
  } while (number > 0);
  print({digits.data() + at, digits.size() - at});
}

void report(const Slot& slot, uintptr_t address) {
  print("lockstep error: a page of a mapped file could not be read; the file was cut, or its storage failed: ");
  print(slot.description.data());
  print(", offset=");
  print_number(address - slot.begin.load(std::memory_order_relaxed));
  print("\n");
}

void call_earlier(int signal, siginfo_t* info, void* context) {
  if ((earlier_action.sa_flags & SA_SIGINFO) != 0) {
    earlier_action.sa_sigaction(signal, info, context);
  } else if (earlier_action.sa_handler != SIG_DFL && earlier_action.sa_handler != SIG_IGN) {
    earlier_action.sa_handler(signal);
  } else {
    struct sigaction plain {};
    plain.sa_handler = SIG_DFL;
    ::sigaction(signal, &plain, nullptr);
    if (info->si_code <= 0) ::raise(signal);  // sent by a process; a failed read happens again on return
  }
}

extern "C" void on_bus_error(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  Slot* slot = info->si_code > 0 ? slot_at(address) : nullptr;
  const bool handled = slot != nullptr && slot->action == OnBusError::Note && replace_page(*slot, address);
  if (!handled) {
    if (slot != nullptr) report(*slot, address);
    call_earlier(signal, info, context);
  }
  errno = error;
}

void install_handler() {
  static std::once_flag once;
  std::call_once(once, [] {
    ::sigaction(SIGBUS, nullptr, &earlier_action);
    struct sigaction action {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    ::sigemptyset(&action.sa_mask);
    ::sigaction(SIGBUS, &action, nullptr);
  });
}

Slot* take_slot() {
  const std::lock_guard lock(slots_mutex);
  std::vector<Slot*>& free = free_slots();
  if (free.empty()) {
    auto* block = new SlotBlock();
    block->next = slot_blocks.load(std::memory_order_relaxed);
    slot_blocks.store(block, std::memory_order_release);
    for (Slot& slot : block->slots) free.push_back(&slot);
  }
  Slot* slot = free.back();
  free.pop_back();
  return slot;
}

}  // namespace

uint64_t bus_errors_of_thread() { return num_failed; }

std::string last_bus_error_of_thread() {
  const Slot* slot = last_failed;
  if (slot == nullptr) return "none";
  return std::string(slot->description.data()) + ", offset=" + std::to_string(slot->failed_at.load());
}

WatchedPages::WatchedPages(const void* memory, size_t size, OnBusError action, const std::string& description)
    : slot_(take_slot()) {
  install_handler();
  slot_->action = action;
  const size_t length = std::min(description.size(), slot_->description.size() - 1);
  std::memcpy(slot_->description.data(), description.data(), length);
  slot_->description[length] = '\0';
  slot_->failed_at = Slot::kNoFailure;
  slot_->end = reinterpret_cast<uintptr_t>(memory) + size;
  slot_->begin.store(reinterpret_cast<uintptr_t>(memory), std::memory_order_release);
}

WatchedPages::~WatchedPages() {
  slot_->begin = 0;
  const std::lock_guard lock(slots_mutex);
  free_slots().push_back(slot_);
}

std::optional<uint64_t> WatchedPages::failed_at() const {
  const uint64_t offset = slot_->failed_at.load(std::memory_order_acquire);
  return offset == Slot::kNoFailure ? std::nullopt : std::optional(offset);
}

}  // namespace lockstep::data::detail
