// The functions of NCCL that lockstep's engine uses, for tests: several ranks may be on one card. See rank.h.

#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <cuda_runtime.h>
#include <nccl.h>

#include "tests/support/nccl_standin/rank.h"

struct ncclComm {
  std::unique_ptr<nccl_standin::Rank> rank;
};

namespace nccl_standin {
namespace {

constexpr std::chrono::seconds kBlockingLimit{60};

struct Group {
  int depth = 0;
  std::vector<std::pair<ncclComm_t, Call>> calls;
  std::vector<ncclComm_t> joining;
};

Group& group() {
  thread_local Group instance;
  return instance;
}

std::string& last_error() {
  thread_local std::string text;
  return text;
}

ncclResult_t failed(ncclResult_t code, const std::string& text) {
  last_error() = text;
  return code;
}

ncclResult_t wait_for(const std::vector<ncclComm_t>& joining) {
  const auto deadline = std::chrono::steady_clock::now() + kBlockingLimit;
  auto result = ncclSuccess;
  for (ncclComm_t comm : joining) {
    if (!comm->rank->is_blocking()) {
      result = ncclInProgress;
      continue;
    }
    auto state = comm->rank->state();
    while (state == ncclInProgress && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      state = comm->rank->state();
    }
    if (state != ncclSuccess) return failed(ncclSystemError, "other ranks have not joined, or have not made the call");
  }
  return result;
}

ncclResult_t end_group() {
  Group current = std::move(group());
  group() = {};
  std::map<ncclComm_t, std::vector<Call>> of_comm;
  std::vector<ncclComm_t> order;
  for (const auto& [comm, call] : current.calls) {
    if (of_comm.find(comm) == of_comm.end()) order.push_back(comm);
    of_comm[comm].push_back(call);
  }
  auto result = wait_for(current.joining);
  for (ncclComm_t comm : order) {
    const auto code = comm->rank->queue(of_comm[comm]);
    if (code != ncclSuccess) return failed(code, "the stand-in could not queue its work: " + last_error());
    if (comm->rank->is_blocking()) continue;
    comm->rank->note_in_progress();
    result = ncclInProgress;
  }
  for (ncclComm_t comm : order) {
    if (!comm->rank->is_blocking()) continue;
    if (const auto code = wait_for({comm}); code != ncclSuccess) return code;
  }
  return result;
}

ncclResult_t add(ncclComm_t comm, const Call& call) {
  if (comm == nullptr) return failed(ncclInvalidArgument, "there is no communicator");
  if (call.peer >= comm->rank->num_ranks()) return failed(ncclInvalidArgument, "there is no such rank");
  ncclGroupStart();
  group().calls.emplace_back(comm, call);
  return ncclGroupEnd();
}

ncclResult_t join(ncclComm_t* comm, int num_ranks, const ncclUniqueId& id, int rank, bool blocking) {
  if (num_ranks > kMaxRanks) return failed(ncclInvalidArgument, "the stand-in has at most 16 ranks");
  try {
    *comm = new ncclComm{std::make_unique<Rank>(id.internal, rank, num_ranks, blocking)};
  } catch (const std::exception& error) {
    return failed(ncclSystemError, error.what());
  }
  ncclGroupStart();
  group().joining.push_back(*comm);
  return ncclGroupEnd();
}

ncclResult_t release(ncclComm_t comm) {
  // Graphs and streams may still refer to it: then it stays as long as the process.
  if (comm->rank->is_unused()) {
    delete comm;
  } else {
    static_cast<void>(comm->rank.release());
  }
  return ncclSuccess;
}

const char* bytes_of(const void* data) { return static_cast<const char*>(data); }
char* bytes_of(void* data) { return static_cast<char*>(data); }

}  // namespace
}  // namespace nccl_standin

using nccl_standin::add;
using nccl_standin::bytes_of;
using nccl_standin::Kind;

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> count{0};
  std::memset(id->internal, 0, sizeof(id->internal));
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  const std::string text =
      "nccl-standin-" + std::to_string(getpid()) + "-" + std::to_string(++count) + "-" + std::to_string(now);
  std::memcpy(id->internal, text.data(), text.size());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t* config) {
  return nccl_standin::join(comm, nranks, commId, rank, config == nullptr || config->blocking != 0);
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank) {
  return nccl_standin::join(comm, nranks, commId, rank, true);
}

ncclResult_t ncclCommInitAll(ncclComm_t* comm, int ndev, const int* devlist) {
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  int previous = 0;
  cudaGetDevice(&previous);
  ncclGroupStart();
  for (int i = 0; i < ndev; ++i) {
    cudaSetDevice(devlist == nullptr ? i : devlist[i]);
    nccl_standin::join(comm + i, ndev, id, i, true);
  }
  cudaSetDevice(previous);
  return ncclGroupEnd();
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  comm->rank->finish();
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  comm->rank->finish();
  return nccl_standin::release(comm);
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->rank->abort();
  return nccl_standin::release(comm);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError) {
  *asyncError = comm->rank->state();
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (stand-in)";
    case ncclSystemError:
      return "unhandled system error (stand-in)";
    case ncclInvalidArgument:
      return "invalid argument (stand-in)";
    case ncclInvalidUsage:
      return "invalid usage (stand-in)";
    case ncclRemoteError:
      return "remote process exited (stand-in)";
    case ncclInProgress:
      return "in progress";
    default:
      return "internal error (stand-in)";
  }
}

const char* ncclGetLastError(ncclComm_t) { return nccl_standin::last_error().c_str(); }

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  *count = comm->rank->num_ranks();
  return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  *device = comm->rank->device();
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  *rank = comm->rank->rank();
  return ncclSuccess;
}

ncclResult_t ncclCommRegister(const ncclComm_t, void* buff, size_t, void** handle) {
  *handle = buff;
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t, void*) { return ncclSuccess; }

ncclResult_t ncclGroupStart() {
  ++nccl_standin::group().depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (--nccl_standin::group().depth > 0) return ncclSuccess;
  return nccl_standin::end_group();
}

ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return add(comm, {Kind::AllReduce, bytes_of(sendbuff), bytes_of(recvbuff), count, datatype, op, 0, stream});
}

ncclResult_t ncclReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t stream) {
  return add(comm, {Kind::Reduce, bytes_of(sendbuff), bytes_of(recvbuff), count, datatype, op, root, stream});
}

ncclResult_t ncclBroadcast(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return add(comm, {Kind::Broadcast, bytes_of(sendbuff), bytes_of(recvbuff), count, datatype, ncclSum, root, stream});
}

ncclResult_t ncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
                           ncclComm_t comm, cudaStream_t stream) {
  return add(comm, {Kind::AllGather, bytes_of(sendbuff), bytes_of(recvbuff), sendcount, datatype, ncclSum, 0, stream});
}

ncclResult_t ncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return add(comm, {Kind::ReduceScatter, bytes_of(sendbuff), bytes_of(recvbuff), recvcount, datatype, op, 0, stream});
}

ncclResult_t ncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add(comm, {Kind::Send, bytes_of(sendbuff), nullptr, count, datatype, ncclSum, peer, stream});
}

ncclResult_t ncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add(comm, {Kind::Receive, nullptr, bytes_of(recvbuff), count, datatype, ncclSum, peer, stream});
}

}  // extern "C"
