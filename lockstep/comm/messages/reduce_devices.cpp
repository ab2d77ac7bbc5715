#include "lockstep/comm/messages/reduce_devices.h"

#include <algorithm>
#include <bit>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "lockstep/comm/reduce/device_reduce.h"

namespace lockstep::comm {
namespace {

/// Part number `part` of `parts` of a flat tensor.
at::Tensor part_of(const at::Tensor& flat, int part, int parts) {
  const int64_t begin = flat.numel() * part / parts;
  return flat.narrow(0, begin, flat.numel() * (part + 1) / parts - begin);
}

std::vector<at::ScalarType> dtypes_of(at::TensorList tensors) {
  std::vector<at::ScalarType> dtypes;
  for (const at::Tensor& tensor : tensors) {
    if (std::find(dtypes.begin(), dtypes.end(), tensor.scalar_type()) == dtypes.end()) {
      dtypes.push_back(tensor.scalar_type());
    }
  }
  return dtypes;
}

/// One flat tensor, as one rank reduces its parts of it.
class FlatReduction {
 public:
  FlatReduction(PeerExchange& peers, const CollectiveCall& call, std::vector<at::Tensor> local)
      : peers_(peers), team_(peers.team()), call_(call), local_(std::move(local)), own_(local_[peers.local()]) {
    const bool is_narrow = own_.scalar_type() == at::kHalf || own_.scalar_type() == at::kBFloat16;
    // Sums of narrow numbers are sent as floats, before they are rounded; two narrow numbers take as much.
    sends_sums_ = std::has_single_bit(local_.size()) && (!is_narrow || local_.size() > 2);
    widens_ = sends_sums_ && is_narrow;
  }

  at::Tensor run() {
    at::Tensor result = at::empty_like(own_);
    part_of(result, own_part(), team_.num_ranks()).copy_(reduced_part());
    exchange_sums(result);
    return result;
  }

 private:
  int own_part() const { return team_.rank_of(team_.worker(), peers_.local()); }

  /// What this worker gives to a part: the sum of its ranks' values, or those values.
  std::vector<at::Tensor> contribution(int worker) const {
    std::vector<at::Tensor> values;
    for (const at::Tensor& flat : local_) {
      values.push_back(part_of(flat, team_.rank_of(worker, peers_.local()), team_.num_ranks()).to(own_.device()));
      if (widens_) values.back() = values.back().to(at::kFloat);
    }
    if (!sends_sums_) return values;
    const ReduceOp op = call_.reduce_op == ReduceOp::Mean ? ReduceOp::Sum : call_.reduce_op;
    return {reduce_tree(std::move(values), op, 1).contiguous()};
  }

  at::Tensor reduced_part() {
    const auto workers = static_cast<size_t>(team_.num_workers());
    std::vector<std::vector<at::Tensor>> values(workers);
    std::vector<Outgoing> outgoing;
    std::vector<Incoming> incoming;
    std::vector<at::Tensor> kept;
    const auto own = contribution(team_.worker());
    for (int worker = 0; worker < team_.num_workers(); ++worker) {
      auto& theirs = values[static_cast<size_t>(worker)];
      if (worker == team_.worker()) {
        theirs = own;
        continue;
      }
      for (at::Tensor& value : contribution(worker)) {
        outgoing.push_back({worker, value.data_ptr(), value.nbytes()});
        kept.push_back(std::move(value));
      }
      for (const at::Tensor& like : own) {
        theirs.push_back(at::empty_like(like));
        incoming.push_back({worker, theirs.back().data_ptr(), theirs.back().nbytes()});
      }
    }
    synchronize(at::TensorList(&own_, 1));
    peers_.exchange_on_devices(outgoing, incoming);
    std::vector<at::Tensor> all;
    for (const auto& theirs : values) all.insert(all.end(), theirs.begin(), theirs.end());
    return reduce_tree(std::move(all), call_.reduce_op, static_cast<size_t>(team_.num_ranks()));
  }

  void exchange_sums(const at::Tensor& result) {
    std::vector<Outgoing> outgoing;
    std::vector<Incoming> incoming;
    const at::Tensor mine = part_of(result, own_part(), team_.num_ranks());
    for (int worker = 0; worker < team_.num_workers(); ++worker) {
      if (worker == team_.worker()) continue;
      const at::Tensor theirs = part_of(result, team_.rank_of(worker, peers_.local()), team_.num_ranks());
      outgoing.push_back({worker, mine.data_ptr(), mine.nbytes()});
      incoming.push_back({worker, theirs.data_ptr(), theirs.nbytes()});
    }
    synchronize(at::TensorList(&own_, 1));
    peers_.exchange_on_devices(outgoing, incoming);
  }

  PeerExchange& peers_;
  const MessageTeam& team_;
  const CollectiveCall& call_;
  std::vector<at::Tensor> local_;
  at::Tensor own_;
  bool sends_sums_ = false;
  bool widens_ = false;
};

}  // namespace

std::vector<at::Tensor> flatten_by_dtype(at::TensorList tensors) {
  std::vector<at::Tensor> flat;
  for (const at::ScalarType dtype : dtypes_of(tensors)) {
    std::vector<at::Tensor> alike;
    for (const at::Tensor& tensor : tensors) {
      if (tensor.scalar_type() == dtype) alike.push_back(tensor.detach().resolve_conj().resolve_neg().flatten());
    }
    flat.push_back(at::cat(alike));
  }
  return flat;
}

void unflatten_by_dtype(const std::vector<at::Tensor>& flat, at::TensorList tensors) {
  const auto dtypes = dtypes_of(tensors);
  std::vector<int64_t> next(dtypes.size(), 0);
  for (const at::Tensor& tensor : tensors) {
    const auto at = static_cast<size_t>(std::find(dtypes.begin(), dtypes.end(), tensor.scalar_type()) - dtypes.begin());
    at::Tensor(tensor).copy_(flat[at].narrow(0, next[at], tensor.numel()).view(tensor.sizes()));
    next[at] += tensor.numel();
  }
}

std::vector<at::Tensor> reduce_parts_on_devices(PeerExchange& peers, const CollectiveCall& call,
                                                const std::vector<const std::vector<at::Tensor>*>& local) {
  std::vector<at::Tensor> results;
  for (size_t i = 0; i < local[0]->size(); ++i) {
    std::vector<at::Tensor> flats;
    for (const auto* rank : local) flats.push_back((*rank)[i]);
    results.push_back(FlatReduction(peers, call, std::move(flats)).run());
    synchronize(at::TensorList(&results.back(), 1));
  }
  return results;
}

void take_parts(const MessageTeam& team, int from, const std::vector<at::Tensor>& theirs,
                const std::vector<at::Tensor>& result) {
  for (size_t i = 0; i < result.size(); ++i) {
    for (int worker = 0; worker < team.num_workers(); ++worker) {
      const int part = team.rank_of(worker, from);
      part_of(result[i], part, team.num_ranks()).copy_(part_of(theirs[i], part, team.num_ranks()));
    }
  }
}

}  // namespace lockstep::comm
