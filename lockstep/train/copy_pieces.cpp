#include "lockstep/train/copy_pieces.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <sys/mman.h>
#include <thread>

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "lockstep/base/error.h"
#include "lockstep/device/stream.h"
#include "lockstep/state/flip_bits.h"

namespace lockstep::detail {
namespace {

constexpr int64_t kPieceAlignment = 64;
constexpr int64_t kCopyBytes = int64_t{1} << 20;
constexpr int64_t kBytesPerThread = int64_t{4} << 20;
constexpr int64_t kMostThreads = 8;

struct HostCopy {
  const char* from = nullptr;
  char* to = nullptr;
  size_t num_bytes = 0;
  uint64_t flipped = 0;
  int64_t element_bytes = 0;
};

void copy_on_host(const std::vector<HostCopy>& copies, int64_t total) {
  const int64_t cores = std::max<int64_t>(1, std::thread::hardware_concurrency());
  const int64_t num_threads = std::min({kMostThreads, cores, std::max<int64_t>(1, total / kBytesPerThread)});
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next.fetch_add(1); i < copies.size(); i = next.fetch_add(1)) {
      std::memcpy(copies[i].to, copies[i].from, copies[i].num_bytes);
      if (copies[i].flipped == 0) continue;
      flip_bits(copies[i].to, static_cast<int64_t>(copies[i].num_bytes), copies[i].element_bytes, copies[i].flipped);
    }
  };
  std::vector<std::thread> threads;
  for (int64_t i = 1; i < num_threads; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

std::vector<int64_t> piece_offsets(const std::vector<HeldPiece>& pieces) {
  std::vector<int64_t> offsets;
  int64_t at = 0;
  for (const HeldPiece& piece : pieces) {
    offsets.push_back(at);
    at += (piece.num_bytes() + kPieceAlignment - 1) / kPieceAlignment * kPieceAlignment;
  }
  offsets.push_back(at);
  return offsets;
}

void copy_pieces(const std::vector<HeldPiece>& pieces, const std::vector<int64_t>& offsets, char* base) {
  std::vector<HostCopy> copies;
  std::vector<c10::Device> devices;
  int64_t total = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const HeldPiece& piece = pieces[i];
    char* const to = base + offsets[i];
    const int64_t num_bytes = piece.num_bytes();
    if (num_bytes == 0) continue;
    if (piece.values.device().is_cpu()) {
      const auto* const from = static_cast<const char*>(piece.values.data_ptr());
      for (int64_t at = 0; at < num_bytes; at += kCopyBytes) {
        copies.push_back({from + at, to + at, static_cast<size_t>(std::min(kCopyBytes, num_bytes - at)), piece.flipped,
                          piece.values.element_size()});
      }
      total += num_bytes;
      continue;
    }
    LOCKSTEP_ASSERT(piece.flipped == 0);
    at::Tensor target = at::from_blob(to, {piece.end - piece.begin}, at::dtype(piece.dtype));
    target.copy_(piece.values, /*non_blocking=*/piece.values.is_cuda());
    if (piece.values.is_cuda()) devices.push_back(piece.values.device());
  }
  copy_on_host(copies, total);
  std::sort(devices.begin(), devices.end(), [](c10::Device a, c10::Device b) { return a.index() < b.index(); });
  devices.erase(std::unique(devices.begin(), devices.end()), devices.end());
  for (const c10::Device device : devices) {
    const StreamEvent copied(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
    while (!copied.query()) std::this_thread::yield();
  }
}

Staging::~Staging() {
  if (mapped_ != nullptr) ::munmap(mapped_, static_cast<size_t>(mapped_bytes_));
}

char* Staging::memory(int64_t num_bytes, bool page_locked) {
  if (page_locked) {
    if (!page_locked_.defined() || page_locked_.numel() < num_bytes) {
      page_locked_ = at::Tensor();
      page_locked_ = at::empty({num_bytes}, at::TensorOptions().dtype(at::kByte).pinned_memory(true));
    }
    return static_cast<char*>(page_locked_.data_ptr());
  }
  if (mapped_bytes_ < num_bytes) {
    if (mapped_ != nullptr) ::munmap(mapped_, static_cast<size_t>(mapped_bytes_));
    mapped_ = nullptr;
    mapped_bytes_ = 0;
    const auto size = static_cast<size_t>(num_bytes);
    void* const made = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    LOCKSTEP_CHECK_AS(c10::Error, made != MAP_FAILED, "[Checkpoint] no memory for a copy of the state: bytes=", size);
    ::madvise(made, size, MADV_HUGEPAGE);
    mapped_ = static_cast<char*>(made);
    mapped_bytes_ = num_bytes;
  }
  return mapped_;
}

// As they will be in the file: the widest elements first, without gaps, so that the file is written from this memory.
std::vector<SavedPiece> Staging::copy(std::vector<HeldPiece> pieces) {
  std::stable_sort(pieces.begin(), pieces.end(), [](const HeldPiece& left, const HeldPiece& right) {
    return c10::elementSize(left.dtype) > c10::elementSize(right.dtype);
  });
  std::vector<int64_t> offsets = {0};
  for (const HeldPiece& piece : pieces) offsets.push_back(offsets.back() + piece.num_bytes());
  const bool page_locked =
      std::any_of(pieces.begin(), pieces.end(), [](const HeldPiece& piece) { return piece.values.is_cuda(); });
  char* const base = memory(std::max<int64_t>(offsets.back(), 1), page_locked);
  copy_pieces(pieces, offsets, base);
  std::vector<SavedPiece> saved;
  for (size_t i = 0; i < pieces.size(); ++i) {
    saved.push_back({pieces[i].name, pieces[i].dtype, pieces[i].sizes, pieces[i].begin, pieces[i].end,
                     base + offsets[i], pieces[i].aliases});
  }
  return saved;
}

}  // namespace lockstep::detail
