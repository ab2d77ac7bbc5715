#include <array>

#include <mpi.h>

#include "lockstep/comm/backends/mpi/mpi_transport.h"
#include "lockstep/comm/engine_module.h"

namespace lockstep::comm {
namespace {

std::string library_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  const std::string words(text.data(), static_cast<size_t>(length));
  return words.substr(0, words.find(','));
}

constexpr Engine kMpi{
    .make_transport = [](Job& job, const TransportOptions& options) -> std::shared_ptr<Transport> {
      return std::make_shared<MpiTransport>(job, options);
    },
    .why_not = [] { return std::string(); },
    .remark = &library_version,
};

}  // namespace

extern "C" LOCKSTEP_API const Engine* lockstep_engine() { return &kMpi; }

}  // namespace lockstep::comm
