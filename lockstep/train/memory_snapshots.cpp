#include "lockstep/train/memory_snapshots.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <map>
#include <sys/mman.h>
#include <unistd.h>

#include "lockstep/base/crc32c.h"
#include "lockstep/base/error.h"
#include "lockstep/state/block_file.h"
#include "lockstep/train/copy_pieces.h"
#include "lockstep/train/snapshot_index.h"

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kHeaderBytes = 4096;
constexpr uint64_t kMagic = 0x3230'4d45'4d53'4cULL;
/// Of a tensor that workers gather for each snapshot.
constexpr int64_t kGatheredBytes = int64_t{1} << 20;

/// The first bytes of a file. Machines of one job have the same byte order as the one that reads it: the file does not
/// leave the machine.
struct SnapshotHeader {
  uint64_t magic = kMagic;
  /// 1 when all other bytes are there.
  uint64_t complete = 0;
  uint64_t job = 0;
  int64_t step = 0;
  int64_t worker = 0;
  int64_t num_workers = 0;
  /// Whether this file alone has everything.
  int64_t whole = 0;
  int64_t index_offset = 0;
  int64_t index_bytes = 0;
  uint64_t index_checksum = 0;
};

void set_complete(char* memory, uint64_t complete) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  std::atomic_ref<uint64_t>(reinterpret_cast<SnapshotHeader*>(memory)->complete).store(complete);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

bool read_header(const std::string& path, SnapshotHeader& header) {
  std::ifstream in(path, std::ios::binary);
  in.read(reinterpret_cast<char*>(&header), sizeof(header));
  return in.good() && header.magic == kMagic && header.complete == 1 && header.num_workers > 0;
}

uint64_t checksum_of(const std::string& text) { return crc32c(text); }

/// Whether this worker holds all of a tensor, maybe with values of its own.
bool is_held(const StateTensor& tensor) { return !tensor.gather || !tensor.own.empty(); }

bool is_all_held(const std::vector<ObjectState>& objects) {
  return std::all_of(objects.begin(), objects.end(), [](const ObjectState& object) {
    return std::all_of(object.state.begin(), object.state.end(), [](const auto& entry) {
      const auto* const tensor = std::get_if<StateTensor>(&entry.second);
      return tensor == nullptr || is_held(*tensor);
    });
  });
}

/// Where the pieces are in the file, by all names of their tensors.
std::vector<PartIndex::Piece> places_of(const std::vector<HeldPiece>& pieces, const std::vector<int64_t>& offsets) {
  std::vector<PartIndex::Piece> places;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const HeldPiece& piece = pieces[i];
    const auto add = [&](const std::string& name) {
      places.push_back({name, piece.dtype, piece.sizes, piece.begin, piece.end, kHeaderBytes + offsets[i]});
    };
    add(piece.name);
    std::for_each(piece.aliases.begin(), piece.aliases.end(), add);
  }
  return places;
}

}  // namespace

MemorySnapshots::MemorySnapshots(std::string folder, uint64_t job, WriterPlace place, bool shares_memory)
    : folder_(std::move(folder)), job_(job), place_(place), shares_memory_(shares_memory) {
  for (size_t i = 0; i < slots_.size(); ++i) {
    slots_[i].path = c10::str(folder_, "/", job_, ".", place_.worker, ".", i);
  }
}

MemorySnapshots::~MemorySnapshots() {
  for (const Slot& slot : slots_) {
    if (slot.memory != nullptr) ::munmap(slot.memory, static_cast<size_t>(slot.num_bytes));
    if (slot.descriptor >= 0) ::close(slot.descriptor);
  }
}

void MemorySnapshots::reserve(Slot& slot, int64_t num_bytes) {
  if (slot.num_bytes >= num_bytes) return;
  const auto refuse = [&](int reason) {
    LOCKSTEP_THROW(DataError, "[CheckpointManager] no memory for a snapshot: file=", slot.path, ", bytes=", num_bytes,
                   ": ", std::strerror(reason), "; make the memory file system larger or set {.redundancy = 0}");
  };
  if (slot.descriptor < 0) {
    fs::create_directories(fs::path(slot.path).parent_path());
    slot.descriptor = ::open(slot.path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (slot.descriptor < 0) refuse(errno);
  }
  if (const int error = ::posix_fallocate(slot.descriptor, 0, num_bytes); error != 0) refuse(error);
  if (slot.memory != nullptr) ::munmap(slot.memory, static_cast<size_t>(slot.num_bytes));
  slot.memory = nullptr;
  slot.num_bytes = 0;
  void* const made = ::mmap(nullptr, static_cast<size_t>(num_bytes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                            slot.descriptor, 0);
  if (made == MAP_FAILED) refuse(errno);
  slot.memory = static_cast<char*>(made);
  slot.num_bytes = num_bytes;
}

void MemorySnapshots::gather_small(std::vector<ObjectState>& objects) const {
  if (place_.num_workers == 1 || shares_memory_) return;
  for (ObjectState& object : objects) {
    State gathered;
    for (const auto& [name, value] : object.state) {
      const auto* const tensor = std::get_if<StateTensor>(&value);
      if (tensor == nullptr || is_held(*tensor) || tensor->num_bytes() > kGatheredBytes) continue;
      gathered.set(name, tensor->gather());
    }
    for (const auto& [name, value] : gathered) object.state.set(name, value);
  }
}

void MemorySnapshots::write(int64_t step, const std::vector<ObjectState>& objects,
                            c10::function_ref<void()> check_values) {
  const bool whole = place_.num_workers == 1 || (!shares_memory_ && is_all_held(objects));
  const std::vector<HeldPiece> pieces = pieces_to_write(objects, whole ? WriterPlace{} : place_);
  const std::vector<int64_t> offsets = piece_offsets(pieces);
  const std::string index =
      snapshot_index_text({values_of(objects), places_of(pieces, offsets), own_names_of(objects)});
  Slot& slot = slots_[static_cast<size_t>(num_written_ % 2)];
  if (slot.memory != nullptr) set_complete(slot.memory, 0);
  const int64_t index_offset = kHeaderBytes + offsets.back();
  // Room for an index that grows, such as positions with more digits.
  reserve(slot, index_offset + 2 * static_cast<int64_t>(index.size()) + kHeaderBytes);
  if (num_written_ >= 1) remove_other_jobs();
  copy_pieces(pieces, offsets, slot.memory + kHeaderBytes);
  check_values();
  std::memcpy(slot.memory + index_offset, index.data(), index.size());
  const SnapshotHeader header{.job = job_,
                              .step = step,
                              .worker = place_.worker,
                              .num_workers = place_.num_workers,
                              .whole = whole ? 1 : 0,
                              .index_offset = index_offset,
                              .index_bytes = static_cast<int64_t>(index.size()),
                              .index_checksum = checksum_of(index)};
  std::memcpy(slot.memory, &header, sizeof(header));
  set_complete(slot.memory, 1);
  ++num_written_;
}

void MemorySnapshots::remove_other_jobs() const {
  const std::string own = std::to_string(job_) + ".";
  std::error_code ignored;
  for (fs::directory_iterator i(folder_, ignored), end; !ignored && i != end; i.increment(ignored)) {
    std::error_code gone;
    if (!i->path().filename().string().starts_with(own)) fs::remove(i->path(), gone);
  }
}

std::vector<MemorySnapshot> MemorySnapshots::list(const std::string& folder) {
  struct Found {
    std::map<int64_t, std::string> shares;
    std::map<int64_t, std::string> wholes;
    int64_t num_workers = 0;
  };
  std::map<std::pair<int64_t, uint64_t>, Found> found;
  std::error_code ignored;
  for (fs::directory_iterator i(folder, ignored), end; !ignored && i != end; i.increment(ignored)) {
    SnapshotHeader header;
    const std::string path = i->path().string();
    if (!read_header(path, header)) continue;
    Found& group = found[{header.step, header.job}];
    group.num_workers = header.num_workers;
    (header.whole == 1 ? group.wholes : group.shares)[header.worker] = path;
  }
  std::vector<MemorySnapshot> all;
  for (auto i = found.rbegin(); i != found.rend(); ++i) {
    const Found& group = i->second;
    MemorySnapshot snapshot{i->first.first, i->first.second, {}};
    if (!group.wholes.empty()) {
      snapshot.files = {group.wholes.begin()->second};
    } else if (static_cast<int64_t>(group.shares.size()) == group.num_workers) {
      for (const auto& [worker, path] : group.shares) snapshot.files.push_back(path);
    } else {
      continue;
    }
    all.push_back(std::move(snapshot));
  }
  return all;
}

OpenedState MemorySnapshots::open(const MemorySnapshot& snapshot) {
  OpenedState opened;
  State& state = opened.state;
  std::map<std::string, StateTensor> tensors;
  for (const std::string& path : snapshot.files) {
    SnapshotHeader header;
    LOCKSTEP_CHECK_DATA(read_header(path, header) && header.step == snapshot.step && header.job == snapshot.job,
                        "[CheckpointManager] the snapshot in memory is not there any more: file=", path);
    const auto file = std::make_shared<const BlockFile>(path, std::vector<uint32_t>{});
    LOCKSTEP_CHECK_DATA(header.index_offset >= kHeaderBytes && header.index_bytes >= 0 &&
                            header.index_offset + header.index_bytes <= file->size(),
                        "[CheckpointManager] the snapshot in memory is damaged: file=", path);
    std::string text(static_cast<size_t>(header.index_bytes), '\0');
    std::ifstream in(path, std::ios::binary);
    in.seekg(header.index_offset);
    in.read(text.data(), header.index_bytes);
    LOCKSTEP_CHECK_DATA(in.good() && checksum_of(text) == header.index_checksum,
                        "[CheckpointManager] the snapshot in memory is damaged: file=", path);
    SnapshotIndex index = parse_snapshot_index(text);
    if (path == snapshot.files.front()) state = index.values;
    if (header.whole == 1 && header.num_workers > 1) opened.own = std::move(index.own);
    for (const PartIndex::Piece& piece : index.pieces) {
      StateTensor& tensor = tensors[piece.name];
      tensor.dtype = piece.dtype;
      tensor.sizes = piece.sizes;
      tensor.stored.push_back({piece.begin, piece.end, file, piece.offset});
    }
  }
  for (auto& [name, tensor] : tensors) {
    std::sort(tensor.stored.begin(), tensor.stored.end(),
              [](const StoredPiece& left, const StoredPiece& right) { return left.begin < right.begin; });
    state.set(name, std::move(tensor));
  }
  return opened;
}

}  // namespace lockstep::detail
