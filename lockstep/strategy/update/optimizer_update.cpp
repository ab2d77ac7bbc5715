#include <map>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/reduce/reduce_kernel.h"
#include "lockstep/strategy/update/gradient_fetch.h"
#include "lockstep/strategy/update/optimizer_state.h"

/// Inside: the half of an optimizer's state that writes (see optimizer_state.h).
namespace lockstep::detail {
void OptimizerCore::State::choose_ways(OptimizerReplica& own, const std::vector<char>& present) const {
  for (size_t p = 0; p < groups.size(); ++p) {
    if (present[p] != kSparse || own.ways[p] != UpdateWay::kShared) continue;
    const bool by_rows = RowUpdate::knows(*front) && own.kept[p].dim() > 0;
    own.ways[p] = by_rows ? UpdateWay::kRows : UpdateWay::kReplicated;
    if (!by_rows) own.own_is_stale = true;
  }
}

/// Replicas that see each other's gradients share the rows of a table; others update all of their own copy.
RowUpdate& OptimizerCore::State::rows_of(int replica, OptimizerReplica& own, size_t parameter) {
  std::unique_ptr<RowUpdate>& rows = own.rows[parameter];
  if (!rows) {
    const auto make = [&](at::Tensor stand_in) { return make_for_one(std::move(stand_in), groups[parameter]); };
    rows = has_workers() ? std::make_unique<RowUpdate>(own.kept[parameter], 0, 1, make)
                         : std::make_unique<RowUpdate>(own.kept[parameter], replica, num_replicas(), make);
  }
  return *rows;
}

void OptimizerCore::State::update_rows(int replica, OptimizerReplica& own, size_t parameter, const Offers& offers) {
  std::vector<at::Tensor> gradients;
  std::vector<char*> copies;
  for (const UpdateOffer* offer : offers) {
    const at::Tensor& gradient = offer->gradients[parameter];
    if (gradient.defined() && (!offer->reduced || gradients.empty())) gradients.push_back(as_rows(gradient));
    copies.push_back(offer->parameters[parameter].data);
  }
  rows_of(replica, own, parameter).apply(gradients, copies, front->param_groups()[groups[parameter]].options());
}

void OptimizerCore::State::update(int replica, OptimizerReplica& own, const Offers& offers,
                                  const std::vector<char>& present, ParameterRange stretch) {
  choose_ways(own, present);
  std::vector<char> skip(groups.size(), 1);
  for (size_t p = stretch.begin; p < stretch.end; ++p) skip[p] = own.ways[p] == UpdateWay::kShared ? 0 : 1;
  own.shared->apply(owner_of(replica), offers, skip, front->param_groups());
  for (size_t p = stretch.begin; p < stretch.end && !has_workers(); ++p) {
    if (own.ways[p] == UpdateWay::kRows && present[p] != kAbsent) update_rows(replica, own, p, offers);
  }
  const bool last = stretch.end == groups.size();
  if (last && offers.size() > 1 && !by_messages()) average_buffers(replica, own, offers);
}

void OptimizerCore::State::update_others(int replica, OptimizerReplica& own, const std::vector<char>& present) {
  bool any_replicated = false;
  bool any_rows = false;
  std::vector<char> done(groups.size(), 0);
  for (size_t p = 0; p < groups.size(); ++p) {
    const bool rows = own.ways[p] == UpdateWay::kRows && has_workers();
    const bool replicated = own.ways[p] == UpdateWay::kReplicated;
    done[p] = rows || replicated ? 0 : 1;
    any_rows = any_rows || (rows && present[p] != kAbsent);
    any_replicated = any_replicated || replicated;
  }
  if (!any_rows && !any_replicated) return;
  if (!own.reduced && several()) reduce(replica, own, done, present);
  for (size_t p = 0; p < groups.size() && any_rows; ++p) {
    const at::Tensor& gradient = own.parameters[p].grad();
    if (own.ways[p] != UpdateWay::kRows || !gradient.defined()) continue;
    rows_of(replica, own, p)
        .apply({as_rows(gradient)}, {static_cast<char*>(own.kept[p].data_ptr())},
               front->param_groups()[groups[p]].options());
  }
  if (!any_replicated) return;
  if (is_central()) return update_once_for_all(replica, own);
  step_own(own, nullptr);
}

/// What is kept once is updated once: by the first replica, while the others wait.
void OptimizerCore::State::update_once_for_all(int replica, OptimizerReplica& own) {
  wait_for_stream(own.parameters[0].device());
  UpdateOffer nothing;
  meet(replica, "optimizer step", nothing, [&](const Offers&) {
    if (replica != 0) return;
    take_gradients(own);
    step_own(own, nullptr);
    for (const at::Tensor& kept : own.kept) kept.mutable_grad().reset();
    wait_for_stream(own.kept[0].device());
  });
  refresh(replica, {0, groups.size()});
}

/// Gives what is kept the gradients of what the replica computed with.
void OptimizerCore::State::take_gradients(OptimizerReplica& own) const {
  for (size_t p = 0; p < groups.size(); ++p) {
    const at::Tensor& gradient = own.parameters[p].grad();
    if (own.ways[p] != UpdateWay::kReplicated) continue;
    own.kept[p].mutable_grad() = gradient.defined() ? gradient.to(own.kept[p].device()) : gradient;
  }
}

/// The first replica's optimizer leads: whenever it wants the loss, all replicas evaluate it.
at::Tensor OptimizerCore::State::step_once_for_all(int replica, OptimizerReplica& own,
                                                   const std::function<at::Tensor()>& evaluate) {
  const auto all_go_on = [&](bool mine) {
    if (!several()) return mine;
    wait_for_stream(own.kept[0].device());
    return setup.strategy->group(replica).broadcast(at::scalar_tensor(mine, at::kByte), 0).item<bool>();
  };
  at::Tensor first_loss;
  const auto evaluate_here = [&] {
    refresh(replica, {0, groups.size()});
    at::Tensor loss = evaluate();
    if (!first_loss.defined()) first_loss = loss;
    return loss;
  };
  if (replica == 0) {
    step_own(own, [&] {
      all_go_on(true);
      at::Tensor loss = evaluate_here();
      take_gradients(own);
      return loss;
    });
    for (const at::Tensor& kept : own.kept) kept.mutable_grad().reset();
    all_go_on(false);
  } else {
    while (all_go_on(true)) evaluate_here();
  }
  refresh(replica, {0, groups.size()});
  return first_loss;
}

void OptimizerCore::State::refresh(int replica, ParameterRange stretch) const {
  for (size_t p = stretch.begin; p < stretch.end && is_central(); ++p) {
    setup.central[p].refresh(replica, /*in_background=*/true);
  }
}

/// Each buffer by one replica, for all.
void OptimizerCore::State::average_buffers(int replica, const OptimizerReplica& own, const Offers& offers) {
  size_t b = 0;
  for (const at::Tensor& buffer : own.buffers) {
    if (!has_plain_memory(buffer)) continue;
    if (b % offers.size() == static_cast<size_t>(owner_of(replica)) && buffer.numel() > 0) {
      std::vector<const void*> sources;
      std::vector<void*> targets;
      for (const UpdateOffer* offer : offers) {
        sources.push_back(offer->buffers[b]);
        targets.push_back(offer->buffers[b]);
      }
      comm::reduce_kernel(buffer.scalar_type(), ReduceOp::Mean, sources.size())(sources, targets, buffer.numel());
    }
    ++b;
  }
}

void OptimizerCore::State::reduce(int replica, OptimizerReplica& own, const std::vector<char>& skip,
                                  const std::vector<char>& present) {
  const comm::Group& group = setup.strategy->group(replica);
  std::vector<at::Tensor> dense;
  for (size_t p = 0; p < groups.size(); ++p) {
    if (present[p] == kAbsent || skip[p] != 0) continue;
    at::Tensor& gradient = own.parameters[p].mutable_grad();
    if (present[p] == kSparse) {
      gradient =
          group.all_reduce(gradient.defined() ? as_rows(gradient) : no_rows_of(own.parameters[p]), ReduceOp::Sum);
    } else {
      if (!gradient.defined()) gradient = at::zeros_like(own.parameters[p]);
      if (!gradient.is_contiguous()) gradient = gradient.contiguous();
      dense.push_back(gradient);
    }
  }
  if (!dense.empty()) group.all_reduce_(dense, ReduceOp::Sum);
}

/// Buffers that replicas show each other are averaged where gradients are, by one replica each; others by all of them.
void OptimizerCore::State::average_other_buffers(int replica, OptimizerReplica& own) {
  std::map<c10::DeviceType, std::vector<at::Tensor>> others;
  for (const at::Tensor& buffer : own.buffers) {
    if (by_messages() || !has_plain_memory(buffer)) others[buffer.device().type()].push_back(buffer);
  }
  for (const auto& [kind, buffers] : others) setup.strategy->group(replica).all_reduce_(buffers, ReduceOp::Mean);
}

at::Tensor OptimizerCore::State::step_own(OptimizerReplica& own, const std::function<at::Tensor()>& closure) {
  if (own.on_device && !closure) {
    own.on_device->step(front->param_groups());
    return {};
  }
  if (own.own_is_stale) {
    Groups mine;
    for (size_t g = 0; g < front->param_groups().size(); ++g) {
      mine.emplace_back(std::vector<at::Tensor>{}, front->param_groups()[g].options().clone());
    }
    for (size_t p = 0; p < groups.size(); ++p) {
      if (own.ways[p] == UpdateWay::kReplicated) mine[groups[p]].params().push_back(own.kept[p]);
    }
    own.own = setup.factory(std::move(mine));
    own.own_is_stale = false;
  }
  for (size_t g = 0; g < front->param_groups().size(); ++g) {
    own.own->param_groups()[g].set_options(front->param_groups()[g].options().clone());
  }
  return closure ? own.own->step(closure) : own.own->step();
}

}  // namespace lockstep::detail
