#include "lockstep/comm/messages/exchange_tensors.h"

#include <algorithm>

#include <ATen/ops/empty.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/reduce/tensor_parts.h"

namespace lockstep::comm {
namespace {

/// The sizes of one tensor, as they are sent.
struct Sizes {
  int64_t of[kMaxDims] = {};
};

/// Returns the parts of a list of tensors: dense, contiguous, on the CPU. Sparse ones are indices and values.
std::vector<at::Tensor> parts_of(at::TensorList tensors) {
  std::vector<at::Tensor> parts;
  const auto add = [&](const at::Tensor& part) {
    LOCKSTEP_CHECK_VALUE(part.dim() <= kMaxDims, "[exchange] tensors of up to ", kMaxDims,
                         " dimensions can be sent: dim=", part.dim());
    parts.push_back(part.detach().to(at::kCPU).resolve_conj().resolve_neg().contiguous());
  };
  for (const at::Tensor& tensor : tensors) for_each_part(tensor, add);
  return parts;
}

/// Assembles a list like `like` from its parts.
std::vector<at::Tensor> assemble(const std::vector<at::Tensor>& parts, at::TensorList like) {
  std::vector<at::Tensor> tensors;
  auto next = parts.begin();
  for (const at::Tensor& tensor : like) {
    tensors.push_back(from_parts(tensor, [&](const at::Tensor&) { return *next++; }));
  }
  return tensors;
}

class TensorExchange {
 public:
  TensorExchange(PeerExchange& peers, const CollectiveCall& call)
      : peers_(peers), team_(peers.team()), call_(call), mine_(parts_of(call.inputs)) {}

  ReceivedTensors run() {
    const auto num_workers = static_cast<size_t>(team_.num_workers());
    for (int worker = 0; worker < team_.num_workers(); ++worker) {
      const bool is_own = worker == team_.worker();
      to_.push_back(is_own ? Indices() : sent(peers_.rank(), worker, mine_.size()));
      from_.push_back(is_own ? Indices() : sent(peer(worker), team_.worker(), num_parts(worker)));
    }
    exchange_sizes();
    ReceivedTensors received{std::vector<std::vector<at::Tensor>>(num_workers)};
    exchange_values(received);
    for (size_t worker = 0; worker < num_workers; ++worker) {
      auto& theirs = received.of_worker[worker];
      if (static_cast<int>(worker) == team_.worker()) {
        theirs = call_.inputs.vec();
      } else if (call_.readers == 0 && !theirs.empty()) {
        theirs = assemble(theirs, call_.inputs);
      }
    }
    return received;
  }

 private:
  using Indices = std::vector<size_t>;

  int peer(int worker) const { return team_.rank_of(worker, peers_.local()); }
  size_t num_parts(int worker) const { return call_.num_inputs(peer(worker), team_.num_ranks(), mine_.size()); }

  /// The parts of the rank `from` that some rank of a worker reads.
  Indices sent(int from, int worker, size_t num_parts) const {
    Indices indices;
    if (!call_.is_read(from)) return indices;
    for (size_t i = 0; i < num_parts; ++i) {
      for (int local = 0; local < team_.ranks_per_worker; ++local) {
        if (!call_.reads(team_.rank_of(worker, local), from, i)) continue;
        indices.push_back(i);
        break;
      }
    }
    return indices;
  }

  void exchange_sizes() {
    std::vector<std::vector<Sizes>> own(to_.size());
    sizes_.resize(from_.size());
    std::vector<Outgoing> outgoing;
    std::vector<Incoming> incoming;
    for (size_t worker = 0; worker < to_.size(); ++worker) {
      for (const size_t i : to_[worker]) {
        Sizes& sizes = own[worker].emplace_back();
        std::copy(mine_[i].sizes().begin(), mine_[i].sizes().end(), sizes.of);
      }
      sizes_[worker].resize(from_[worker].size());
      if (!to_[worker].empty()) {
        outgoing.push_back({static_cast<int>(worker), own[worker].data(), own[worker].size() * sizeof(Sizes)});
      }
      if (!from_[worker].empty()) {
        incoming.push_back({static_cast<int>(worker), sizes_[worker].data(), sizes_[worker].size() * sizeof(Sizes)});
      }
    }
    peers_.exchange(outgoing, incoming);
  }

  void exchange_values(ReceivedTensors& received) {
    std::vector<Outgoing> outgoing;
    std::vector<Incoming> incoming;
    for (size_t worker = 0; worker < to_.size(); ++worker) {
      for (const size_t i : to_[worker]) {
        outgoing.push_back({static_cast<int>(worker), mine_[i].data_ptr(), mine_[i].nbytes()});
      }
      if (from_[worker].empty()) continue;
      auto& theirs = received.of_worker[worker];
      const size_t parts = num_parts(static_cast<int>(worker));
      theirs.resize(parts);
      for (size_t k = 0; k < from_[worker].size(); ++k) {
        const size_t i = from_[worker][k];
        const at::Tensor& like = mine_[call_.readers == 0 ? i : i * mine_.size() / parts];
        const at::IntArrayRef shape(sizes_[worker][k].of, static_cast<size_t>(like.dim()));
        theirs[i] = at::empty(shape, like.options());
        incoming.push_back({static_cast<int>(worker), theirs[i].data_ptr(), theirs[i].nbytes()});
      }
    }
    peers_.exchange(outgoing, incoming);
  }

  PeerExchange& peers_;
  const MessageTeam& team_;
  const CollectiveCall& call_;
  const std::vector<at::Tensor> mine_;
  /// What is sent to each worker, and what each one sends, with its sizes.
  std::vector<Indices> to_;
  std::vector<Indices> from_;
  std::vector<std::vector<Sizes>> sizes_;
};

}  // namespace

ReceivedTensors exchange_tensors(PeerExchange& peers, const CollectiveCall& call) {
  return TensorExchange(peers, call).run();
}

}  // namespace lockstep::comm
