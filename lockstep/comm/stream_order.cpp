#include "lockstep/comm/stream_order.h"

#include <algorithm>

#include <c10/core/impl/VirtualGuardImpl.h>

#include "lockstep/base/log.h"

namespace lockstep::comm {
namespace {

/// The current streams of the devices of tensors.
void add_streams(at::TensorList tensors, RankEvents::Streams& streams) {
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || tensor.is_cpu()) continue;
    const c10::Device device = tensor.device();
    const bool known = std::any_of(streams.begin(), streams.end(),
                                   [&](const c10::Stream& stream) { return stream.device() == device; });
    if (!known) streams.push_back(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  }
}

}  // namespace

void RankEvents::Moment::record(const Streams& streams) {
  for (size_t i = 0; i < streams.size(); ++i) {
    if (i == events_.size()) events_.emplace_back();
    events_[i].record(streams[i]);
  }
  recorded_ = streams.size();
}

void RankEvents::Moment::block(const Streams& streams) const {
  for (size_t i = 0; i < recorded_; ++i) {
    for (const c10::Stream& stream : streams) events_[i].block(stream);
  }
}

StreamOrder::StreamOrder(std::span<RankEvents> events, int rank, const CollectiveCall& call)
    : events_(events), rank_(rank), call_(call) {
  add_streams(call.inputs, streams_);
  add_streams(call.outputs, streams_);
  if (!streams_.empty()) events_[static_cast<size_t>(rank)].ready.record(streams_);
}

StreamOrder::~StreamOrder() {
  try {
    end();
  } catch (const std::exception& error) {
    LOCKSTEP_LOG(Error) << "a stream could not be ordered after those of other ranks: " << error.what();
  }
}

/// Who reads and writes whose tensors: all of a group, except where only the root's are read.
bool StreamOrder::uses_memory_of(int user, int owner) const {
  if (user == owner) return false;
  if (call_.groups != nullptr && &call_.groups->members(user) != &call_.groups->members(owner)) return false;
  return !call_.only_root_is_read || owner == call_.root_for(owner);
}

void StreamOrder::begin() {
  begun_ = true;
  for (int other = 0; other < static_cast<int>(events_.size()); ++other) {
    if (uses_memory_of(rank_, other)) events_[static_cast<size_t>(other)].ready.block(streams_);
  }
}

void StreamOrder::record_done() { events_[static_cast<size_t>(rank_)].done.record(streams_); }

void StreamOrder::end() {
  if (!begun_) return;
  begun_ = false;
  for (int other = 0; other < static_cast<int>(events_.size()); ++other) {
    if (uses_memory_of(other, rank_)) events_[static_cast<size_t>(other)].done.block(streams_);
  }
}

}  // namespace lockstep::comm
