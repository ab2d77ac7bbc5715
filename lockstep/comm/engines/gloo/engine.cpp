#include <gloo/allreduce.h>
#include <gloo/config.h>
#include <gloo/math.h>

#include "lockstep/comm/engines/gloo/device.h"
#include "lockstep/comm/engines/gloo/gloo_transport.h"
#include "lockstep/comm/transport/engine_module.h"

namespace lockstep::comm {
namespace {

void all_reduce(Transport& transport, float* data, size_t count) {
  gloo::AllreduceOptions options(static_cast<GlooTransport&>(transport).context());
  options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
  options.setOutput(data, count);
  options.setReduceFunction([](void* sum, const void* a, const void* b, size_t n) { gloo::sum<float>(sum, a, b, n); });
  gloo::allreduce(options);
}

constexpr EngineModule kGloo{
    .make_transport = [](Job& job, const TransportOptions& options) -> std::shared_ptr<Transport> {
      return std::make_shared<GlooTransport>(job, options);
    },
    .why_not = [] { return std::string(); },
    .remark =
        [] {
          return "Gloo " + std::to_string(GLOO_VERSION_MAJOR) + "." + std::to_string(GLOO_VERSION_MINOR) + "." +
                 std::to_string(GLOO_VERSION_PATCH) + " " + gloo_encryption();
        },
    .all_reduce = &all_reduce,
};

}  // namespace

extern "C" LOCKSTEP_API const EngineModule* lockstep_engine() { return &kGloo; }

}  // namespace lockstep::comm
