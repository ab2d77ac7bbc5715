#include "lockstep/train/own_values.h"

#include <algorithm>
#include <map>

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/comm/collective_call.h"
#include "lockstep/train/snapshot_index.h"

namespace lockstep::detail {
namespace {

constexpr int64_t kBroadcastBytes = int64_t{32} << 20;
constexpr uint64_t kFirstHash = 0x6c6f636b73746570ULL;

/// Replaces the bytes by those of the first worker.
void broadcast_bytes(const comm::Group& workers, char* bytes, int64_t count) {
  for (int64_t begin = 0; begin < count; begin += kBroadcastBytes) {
    at::Tensor part = at::from_blob(bytes + begin, {std::min(kBroadcastBytes, count - begin)}, at::dtype(at::kByte));
    part.copy_(workers.broadcast(part.clone(), 0));
  }
}

std::string first_workers_text(const comm::Group& workers, std::string text) {
  const at::Tensor size = at::scalar_tensor(static_cast<int64_t>(text.size()), at::kLong);
  text.resize(static_cast<size_t>(workers.broadcast(size, 0).item<int64_t>()));
  broadcast_bytes(workers, text.data(), static_cast<int64_t>(text.size()));
  return text;
}

/// Numbers and texts, and for each tensor its hash in place of an offset.
SnapshotIndex describe_own(const OpenedState& opened, const std::vector<uint64_t>& hashes) {
  SnapshotIndex index;
  for (const std::string& name : opened.own) {
    const State::Value* const value = opened.state.find(name);
    LOCKSTEP_ASSERT(value != nullptr);
    const auto* const tensor = std::get_if<StateTensor>(value);
    if (tensor == nullptr) {
      index.values.set(name, *value);
      continue;
    }
    const auto hash = static_cast<int64_t>(hashes[index.pieces.size()]);
    index.pieces.push_back({name, tensor->dtype, tensor->sizes, 0, tensor->numel(), hash});
  }
  return index;
}

bool is_equal(const PartIndex::Piece& a, const PartIndex::Piece& b) {
  return a.name == b.name && a.dtype == b.dtype && a.sizes == b.sizes && a.offset == b.offset;
}

/// Tells which of the first worker's tensors some worker has not.
at::Tensor find_different(const comm::Group& workers, const SnapshotIndex& mine, const SnapshotIndex& first) {
  const auto on_host = at::device(at::kCPU).dtype(at::kByte);
  at::Tensor different = at::zeros({static_cast<int64_t>(first.pieces.size())}, on_host);
  for (size_t i = 0; i < first.pieces.size(); ++i) {
    const bool is_mine = std::any_of(mine.pieces.begin(), mine.pieces.end(),
                                     [&](const PartIndex::Piece& piece) { return is_equal(piece, first.pieces[i]); });
    different.data_ptr<uint8_t>()[i] = is_mine ? 0 : 1;
  }
  if (different.numel() == 0) return different;
  return workers.all_reduce(different, ReduceOp::Max).contiguous();
}

}  // namespace

std::vector<uint64_t> hashes_of_own(const OpenedState& opened) {
  std::vector<uint64_t> hashes;
  for (const std::string& name : opened.own) {
    const State::Value* const value = opened.state.find(name);
    const auto* const tensor = value == nullptr ? nullptr : std::get_if<StateTensor>(value);
    if (tensor == nullptr) continue;
    const at::Tensor values = tensor->read();
    hashes.push_back(mix_hash(kFirstHash, static_cast<const char*>(values.data_ptr()), values.nbytes()));
  }
  return hashes;
}

void take_first_workers(const comm::Group& workers, OpenedState& opened, const std::vector<uint64_t>& hashes) {
  const comm::CollectiveOwnerScope owner({"checkpoint", 0, "restore"});
  const SnapshotIndex mine = describe_own(opened, hashes);
  const SnapshotIndex first = parse_snapshot_index(first_workers_text(workers, snapshot_index_text(mine)));
  const at::Tensor different = find_different(workers, mine, first);

  State state;
  for (const auto& [name, value] : opened.state) {
    if (!opened.own.contains(name)) state.set(name, value);
  }
  for (const auto& [name, value] : first.values) state.set(name, value);
  for (size_t i = 0; i < first.pieces.size(); ++i) {
    const PartIndex::Piece& piece = first.pieces[i];
    if (different.data_ptr<uint8_t>()[i] == 0) {
      state.set(piece.name, opened.state.tensor(piece.name));
      continue;
    }
    const bool is_first = workers.rank() == 0;
    const at::Tensor values =
        is_first ? opened.state.tensor(piece.name).read() : at::empty(piece.sizes, at::dtype(piece.dtype));
    broadcast_bytes(workers, static_cast<char*>(values.data_ptr()), static_cast<int64_t>(values.nbytes()));
    state.set(piece.name, values);
  }
  opened.state = std::move(state);
}

}  // namespace lockstep::detail
