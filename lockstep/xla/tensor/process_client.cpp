#include "lockstep/xla/tensor/process_client.h"

#include <atomic>

#include "lockstep/base/error.h"

namespace lockstep::xla {
namespace {

std::atomic<Client*> started_client{nullptr};

}  // namespace

Client& client() {
  Client* started = started_client.load(std::memory_order_acquire);
  LOCKSTEP_CHECK_CONTEXT(started != nullptr, "[xla] no device has been started: make a TPUStrategy, or call ",
                         "initialize_tpu_system, first");
  return *started;
}

bool is_started() { return started_client.load(std::memory_order_acquire) != nullptr; }

void set_client(Client& client) { started_client.store(&client, std::memory_order_release); }

}  // namespace lockstep::xla
