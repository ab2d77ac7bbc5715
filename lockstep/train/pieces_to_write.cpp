#include "lockstep/train/pieces_to_write.h"

#include <algorithm>
#include <map>

#include <ATen/ATen.h>

namespace lockstep::detail {
namespace {

/// Tensors below this size are written by one worker.
constexpr int64_t kDividedBytes = int64_t{1} << 20;
/// Borders inside of a tensor are multiples of this number of elements.
constexpr int64_t kBorderElements = 1024;

struct NamedTensor {
  std::string name;
  const StateTensor* tensor = nullptr;
  bool of_strategy = false;
  std::vector<std::string> aliases = {};
};

/// All tensors, each once.
std::vector<NamedTensor> different_tensors(const std::vector<ObjectState>& objects) {
  std::vector<NamedTensor> all;
  std::map<const void*, size_t> known;
  for (const ObjectState& object : objects) {
    for (const auto& [name, value] : object.state) {
      const auto* const tensor = std::get_if<StateTensor>(&value);
      if (tensor == nullptr) continue;
      const std::string whole = object.name + "." + name;
      if (tensor->identity != nullptr) {
        const auto [found, is_new] = known.emplace(tensor->identity.get(), all.size());
        if (!is_new) {
          all[found->second].aliases.push_back(whole);
          continue;
        }
      }
      all.push_back({whole, tensor, object.of_strategy});
    }
  }
  return all;
}

/// The elements of a tensor that a worker writes, where the bytes of all divided tensors stand in a line.
class Division {
 public:
  Division(const std::vector<NamedTensor>& divided, WriterPlace place) : place_(place) {
    for (const NamedTensor& each : divided) total_ += each.tensor->num_bytes();
  }

  /// Returns [begin, end) of the next tensor; `owned` tells whether this worker writes it, also where it is empty.
  std::pair<int64_t, int64_t> next(const StateTensor& tensor, bool& owned) {
    const int64_t at = position_;
    position_ += tensor.num_bytes();
    if (tensor.num_bytes() < kDividedBytes) {
      owned = owner_of(at) == place_.worker;
      return {0, owned ? tensor.numel() : 0};
    }
    const int64_t begin = border(tensor, at, place_.worker);
    const int64_t end = border(tensor, at, place_.worker + 1);
    owned = begin < end;
    return {begin, end};
  }

 private:
  int64_t share(int worker) const {
    return static_cast<int64_t>(static_cast<double>(total_) * worker / place_.num_workers);
  }
  int owner_of(int64_t at) const {
    int worker = 0;
    while (worker + 1 < place_.num_workers && share(worker + 1) <= at) ++worker;
    return worker;
  }
  int64_t border(const StateTensor& tensor, int64_t at, int worker) const {
    if (worker == 0) return 0;
    if (worker == place_.num_workers) return tensor.numel();
    const int64_t element = (share(worker) - at) / static_cast<int64_t>(c10::elementSize(tensor.dtype));
    if (element >= tensor.numel()) return tensor.numel();
    return std::max<int64_t>(0, element / kBorderElements * kBorderElements);
  }

  WriterPlace place_;
  int64_t total_ = 0;
  int64_t position_ = 0;
};

/// Adds what of [begin, end) this process holds, or has as its own.
void add_held(std::vector<HeldPiece>& all, const NamedTensor& named, int64_t begin, int64_t end, bool own = false) {
  const StateTensor& tensor = *named.tensor;
  const auto add = [&](int64_t first, int64_t last, const at::Tensor& values, uint64_t flipped) {
    all.push_back({named.name, tensor.dtype, tensor.sizes, first, last, values, flipped, named.aliases});
  };
  if (tensor.numel() == 0) return add(0, 0, at::empty({0}, at::dtype(tensor.dtype)), 0);
  std::vector<StatePiece> held = own ? tensor.own : tensor.pieces;
  if (held.empty() && !tensor.stored.empty()) held.push_back({0, tensor.read().view(-1)});
  for (const StatePiece& piece : held) {
    const int64_t first = std::max(begin, piece.begin);
    const int64_t last = std::min(end, piece.end());
    if (first >= last) continue;
    const at::Tensor flat = piece.values.detach().view(-1);
    add(first, last, flat.slice(0, first - piece.begin, last - piece.begin), piece.flipped);
  }
}

}  // namespace

int64_t HeldPiece::num_bytes() const { return (end - begin) * static_cast<int64_t>(c10::elementSize(dtype)); }

std::vector<HeldPiece> pieces_to_write(const std::vector<ObjectState>& objects, WriterPlace place) {
  std::vector<HeldPiece> all;
  std::vector<NamedTensor> divided;
  for (const NamedTensor& named : different_tensors(objects)) {
    const StateTensor& tensor = *named.tensor;
    if (place.num_workers == 1) {
      add_held(all, named, 0, tensor.numel(), !tensor.own.empty());
    } else if (!tensor.gather && named.of_strategy) {
      divided.push_back(named);
    } else if (tensor.gather || place.worker == 0) {
      add_held(all, named, 0, tensor.numel());
    }
  }
  Division division(divided, place);
  for (const NamedTensor& named : divided) {
    bool owned = false;
    const auto [begin, end] = division.next(*named.tensor, owned);
    if (owned) add_held(all, named, begin, end);
  }
  return all;
}

}  // namespace lockstep::detail
