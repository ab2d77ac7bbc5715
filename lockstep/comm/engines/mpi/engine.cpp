#include <array>
#include <limits>

#include <mpi.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/engines/mpi/communicators.h"
#include "lockstep/comm/engines/mpi/mpi_transport.h"
#include "lockstep/comm/transport/engine_module.h"

namespace lockstep::comm {
namespace {

std::string library_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  const std::string words(text.data(), static_cast<size_t>(length));
  return words.substr(0, words.find(','));
}

void all_reduce(Transport& transport, float* data, size_t count) {
  LOCKSTEP_CHECK_VALUE(count <= std::numeric_limits<int>::max(),
                       "[mpi] MPI_Allreduce counts elements in an int: count=", count);
  const MPI_Comm communicator = static_cast<MpiTransport&>(transport).communicator();
  const int code = MPI_Allreduce(MPI_IN_PLACE, data, static_cast<int>(count), MPI_FLOAT, MPI_SUM, communicator);
  LOCKSTEP_CHECK_COLLECTIVE(code == MPI_SUCCESS, "[mpi] MPI_Allreduce failed: count=", count,
                            "; MPI says: ", mpi_words(code));
}

constexpr EngineModule kMpi{
    .make_transport = [](Job& job, const TransportOptions& options) -> std::shared_ptr<Transport> {
      return std::make_shared<MpiTransport>(job, options);
    },
    .why_not = [] { return std::string(); },
    .remark = &library_version,
    .all_reduce = &all_reduce,
};

}  // namespace

extern "C" LOCKSTEP_API const EngineModule* lockstep_engine() { return &kMpi; }

}  // namespace lockstep::comm
