#include "lockstep/xla/engine/pending_work.h"

namespace lockstep::xla {

PendingWork::PendingWork(XlaDevice& device)
    : device_(&device), pending_(device.take()), trace_(collect(pending_->results)) {}

PendingWork::~PendingWork() {
  if (pending_) device_->put_back(*pending_);
}

}  // namespace lockstep::xla
