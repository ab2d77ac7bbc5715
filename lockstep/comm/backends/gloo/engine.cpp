#include <gloo/config.h>

#include "lockstep/comm/backends/gloo/device.h"
#include "lockstep/comm/backends/gloo/gloo_transport.h"
#include "lockstep/comm/engine_module.h"

namespace lockstep::comm {
namespace {

constexpr Engine kGloo{
    .make_transport = [](Job& job, const TransportOptions& options) -> std::shared_ptr<Transport> {
      return std::make_shared<GlooTransport>(job, options);
    },
    .why_not = [] { return std::string(); },
    .remark =
        [] {
          return "Gloo " + std::to_string(GLOO_VERSION_MAJOR) + "." + std::to_string(GLOO_VERSION_MINOR) + "." +
                 std::to_string(GLOO_VERSION_PATCH) + " " + gloo_encryption();
        },
};

}  // namespace

extern "C" LOCKSTEP_API const Engine* lockstep_engine() { return &kGloo; }

}  // namespace lockstep::comm
