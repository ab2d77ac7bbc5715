#include "lockstep/xla/engine/start.h"

#include <mutex>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/xla/dispatch/register.h"
#include "lockstep/xla/engine/compile_program.h"
#include "lockstep/xla/engine/program.h"
#include "lockstep/xla/engine/replica_run.h"

namespace lockstep::xla {
namespace {

void check_options(const StartOptions& options, const Client& running) {
  LOCKSTEP_CHECK_VALUE(options.plugin.empty() || options.plugin == running.plugin(),
                       "[xla] a process uses one plugin: running=", running.plugin(), ", asked=", options.plugin);
  const int present = static_cast<int>(running.devices().size());
  LOCKSTEP_CHECK_VALUE(options.num_cpu_devices <= present || running.platform() != "cpu",
                       "[xla] the number of CPU devices is fixed when the plugin starts: devices=", present,
                       ", asked=", options.num_cpu_devices,
                       "; set LOCKSTEP_XLA_CPU_DEVICES, or ask for as many the first time");
}

}  // namespace

Client& start(const StartOptions& options) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  if (is_started()) {
    check_options(options, client());
    client().check_options(options.options);
    return client();
  }
  ClientOptions client_options;
  client_options.plugin = options.plugin;
  client_options.num_cpu_devices = options.num_cpu_devices > 0
                                       ? options.num_cpu_devices
                                       : static_cast<int>(env::integer("LOCKSTEP_XLA_CPU_DEVICES"));
  client_options.options = options.options;
  check_program_store();
  check_program_limit();
  Client& started = Client::open(client_options);
  register_device();
  set_pending_executor(&execute_device);
  set_client(started);
  return started;
}

}  // namespace lockstep::xla
