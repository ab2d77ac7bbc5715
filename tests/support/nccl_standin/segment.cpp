#include "tests/support/nccl_standin/segment.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <stdexcept>
#include <sys/mman.h>
#include <unistd.h>

namespace nccl_standin {

struct alignas(4096) Segment::Header {
  std::atomic<int> joined;
  Slot slots[kMaxRanks];
};

Segment::Segment(const std::string& name, int num_ranks) : name_("/" + name), num_ranks_(num_ranks) {
  const auto ranks = static_cast<size_t>(num_ranks);
  bytes_ = sizeof(Header) + kArea * (2 * ranks + 1) + sizeof(Channel) * ranks * ranks;
  const int file = shm_open(name_.c_str(), O_CREAT | O_RDWR, 0600);
  if (file < 0) throw std::runtime_error("shm_open failed: " + std::string(std::strerror(errno)));
  void* memory = MAP_FAILED;
  if (ftruncate(file, static_cast<off_t>(bytes_)) == 0) {
    memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  close(file);
  if (memory == MAP_FAILED) throw std::runtime_error("mmap failed: " + std::string(std::strerror(errno)));
  base_ = static_cast<char*>(memory);
}

Segment::~Segment() { munmap(base_, bytes_); }

Segment::Header& Segment::header() const { return *reinterpret_cast<Header*>(base_); }

void Segment::join() {
  if (header().joined.fetch_add(1) + 1 == num_ranks_) shm_unlink(name_.c_str());
}

bool Segment::is_complete() const { return header().joined.load() >= num_ranks_; }

void Segment::forget() const {
  if (!is_complete()) shm_unlink(name_.c_str());
}

Slot& Segment::slot(int rank) const { return header().slots[rank]; }
char* Segment::result() const { return base_ + sizeof(Header); }
char* Segment::staged(int rank) const { return result() + kArea * static_cast<size_t>(1 + rank); }
char* Segment::received(int rank) const { return staged(num_ranks_) + kArea * static_cast<size_t>(rank); }

Channel& Segment::channel(int from, int to) const {
  return reinterpret_cast<Channel*>(received(num_ranks_))[from * num_ranks_ + to];
}

}  // namespace nccl_standin
