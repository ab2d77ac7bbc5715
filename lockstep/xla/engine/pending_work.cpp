#include "lockstep/xla/engine/pending_work.h"

#include <utility>

#include "lockstep/xla/tensor/lazy_storage.h"

namespace lockstep::xla {

PendingWork::PendingWork(XlaDevice& device)
    : device_(&device), pending_(device.take()), trace_(collect(pending_.results)) {}

PendingWork::PendingWork(PendingWork&& other) noexcept
    : device_(std::exchange(other.device_, nullptr)),
      pending_(std::move(other.pending_)),
      trace_(std::move(other.trace_)) {
  other.pending_.storages.clear();
}

PendingWork::~PendingWork() {
  for (PendingStorage* storage : pending_.storages) {
    if (lazy_storage(*storage).value()->op != Op::Argument) device_->add(*storage);
  }
}

void PendingWork::executed() {
  for (PendingStorage* storage : pending_.storages) lazy_storage(*storage).executed();
  pending_.storages.clear();
}

}  // namespace lockstep::xla
