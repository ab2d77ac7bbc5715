#include "tests/support/nccl_standin/staged_rank.h"

#include <algorithm>
#include <dlfcn.h>
#include <stdexcept>

#include <cuda.h>

#include "tests/support/nccl_standin/sums.h"

namespace nccl_standin {
namespace {

/// The program does not link the driver, which is absent where there is no GPU.
template <typename F>
F driver(const char* name) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  return library == nullptr ? nullptr : reinterpret_cast<F>(dlsym(library, name));
}

using StreamValue = CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned int);

cudaError_t stream_value(const char* name, cudaStream_t stream, const uint32_t* address, uint32_t value,
                         unsigned int flags) {
  const auto call = driver<StreamValue>(name);
  if (call == nullptr) return cudaErrorNotSupported;
  const auto code = call(stream, reinterpret_cast<CUdeviceptr>(address), value, flags);
  return code == CUDA_SUCCESS ? cudaSuccess : cudaErrorNotSupported;
}

cudaError_t write_value(cudaStream_t stream, const uint32_t* address, uint32_t value) {
  return stream_value("cuStreamWriteValue32_v2", stream, address, value, CU_STREAM_WRITE_VALUE_DEFAULT);
}

cudaError_t wait_value(cudaStream_t stream, const uint32_t* address, uint32_t value) {
  return stream_value("cuStreamWaitValue32_v2", stream, address, value, CU_STREAM_WAIT_VALUE_EQ);
}

void check(cudaError_t code) {
  if (code != cudaSuccess) throw std::runtime_error(cudaGetErrorString(code));
}

}  // namespace

StagedRank::StagedRank(Segment& segment, int rank, int num_ranks, const Faults& faults)
    : segment_(segment),
      rank_(rank),
      num_ranks_(num_ranks),
      faults_(faults),
      num_to_(static_cast<size_t>(num_ranks), 0),
      num_from_(static_cast<size_t>(num_ranks), 0) {
  check(cudaHostRegister(segment_.base(), segment_.bytes(), cudaHostRegisterPortable | cudaHostRegisterMapped));
  void* flags = nullptr;
  check(cudaHostAlloc(&flags, sizeof(Flags), cudaHostAllocPortable | cudaHostAllocMapped));
  flags_ = new (flags) Flags{};
  check(cudaEventCreateWithFlags(&taken_, cudaEventDisableTiming));
  thread_ = std::thread([this] { work(); });
}

StagedRank::~StagedRank() {
  stops_.store(true);
  thread_.join();
  cudaEventDestroy(taken_);
  cudaHostUnregister(segment_.base());
  cudaFreeHost(flags_);
}

ncclResult_t StagedRank::queue(const std::vector<Call>& calls) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(calls[0].stream, &status) != cudaSuccess) return ncclUnhandledCudaError;
  if (status != cudaStreamCaptureStatusNone) return ncclInvalidUsage;
  std::vector<Call> messages;
  const std::lock_guard lock(mutex_);
  if (stream_ != nullptr && stream_ != calls[0].stream) return ncclInvalidUsage;
  stream_ = calls[0].stream;
  for (const Call& call : calls) call.is_message() ? messages.push_back(call) : add_collective(call);
  if (!messages.empty()) add_messages(messages);
  return advance() == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

bool StagedRank::is_done() {
  if (done_.load() < launched_.load()) return false;
  const bool copies = cudaEventQuery(taken_) == cudaErrorNotReady;
  if (copies) cudaGetLastError();  // LibTorch would report it as its own
  return !copies;
}

ncclResult_t StagedRank::state() {
  if (const auto error = static_cast<ncclResult_t>(error_.load()); error != ncclSuccess) return error;
  const std::lock_guard lock(mutex_);
  if (advance() != cudaSuccess) return ncclUnhandledCudaError;
  return rounds_.empty() ? ncclSuccess : ncclInProgress;
}

void StagedRank::add_collective(const Call& call) {
  const bool gathers = call.kind == Kind::AllGather || call.kind == Kind::ReduceScatter;
  const size_t width = size_of(call.dtype);
  const size_t room = kArea / width / (gathers ? static_cast<size_t>(num_ranks_) : 1);
  const size_t whole = call.bytes();
  for (size_t begin = 0; begin < call.count; begin += room) {
    Round round{.call = call};
    round.call.count = std::min(room, call.count - begin);
    if (begin > 0) round.call.fault = Fault::None;
    const size_t bytes = round.call.bytes();
    const size_t offset = begin * width;
    const size_t inputs = call.kind == Kind::ReduceScatter ? static_cast<size_t>(num_ranks_) : 1;
    const bool stages = call.kind != Kind::Broadcast || call.peer == rank_;
    for (size_t part = 0; stages && part < inputs; ++part) {
      round.in.push_back({segment_.staged(rank_) + part * bytes, call.input + part * whole + offset, bytes});
    }
    const char* from = segment_.result();
    if (call.kind == Kind::ReduceScatter) from += static_cast<size_t>(rank_) * bytes;
    const size_t outputs = call.kind == Kind::AllGather ? static_cast<size_t>(num_ranks_) : 1;
    const bool receives = call.kind != Kind::Reduce || call.peer == rank_;
    for (size_t part = 0; receives && part < outputs; ++part) {
      round.out.push_back({call.output + part * whole + offset, from + part * bytes, bytes});
    }
    rounds_.push_back(std::move(round));
  }
}

/// Messages to a peer go in rounds, one piece of each at a time.
void StagedRank::add_messages(const std::vector<Call>& calls) {
  const auto ranks = static_cast<size_t>(num_ranks_);
  const size_t piece = std::min(kArea / ranks, kChannel);
  // What is left to send to and receive from each rank, in order.
  std::vector<std::deque<std::pair<char*, size_t>>> out(ranks);
  std::vector<std::deque<std::pair<char*, size_t>>> in(ranks);
  for (const Call& call : calls) {
    const bool sends = call.kind == Kind::Send;
    char* data = sends ? const_cast<char*>(call.input) : call.output;
    auto& pieces = (sends ? out : in)[static_cast<size_t>(call.peer)];
    for (size_t at = 0; at < call.bytes(); at += piece) {
      pieces.emplace_back(data + at, std::min(piece, call.bytes() - at));
    }
  }
  const auto left = [](const auto& pieces) { return !pieces.empty(); };
  for (bool is_first = true; std::any_of(out.begin(), out.end(), left) || std::any_of(in.begin(), in.end(), left);
       is_first = false) {
    Round round{.call = calls[0]};
    if (!is_first) round.call.fault = Fault::None;
    round.to.assign(ranks, 0);
    round.from.assign(ranks, 0);
    round.number_to.assign(ranks, 0);
    round.number_from.assign(ranks, 0);
    for (size_t peer = 0; peer < ranks; ++peer) {
      if (!out[peer].empty()) {
        const auto [data, bytes] = out[peer].front();
        out[peer].pop_front();
        round.to[peer] = bytes;
        round.number_to[peer] = ++num_to_[peer];
        round.in.push_back({segment_.staged(rank_) + peer * piece, data, bytes});
      }
      if (!in[peer].empty()) {
        const auto [data, bytes] = in[peer].front();
        in[peer].pop_front();
        round.from[peer] = bytes;
        round.number_from[peer] = ++num_from_[peer];
        round.out.push_back({data, segment_.received(rank_) + peer * piece, bytes});
      }
    }
    rounds_.push_back(std::move(round));
  }
}

cudaError_t StagedRank::copy_all(const std::vector<Copy>& copies, cudaStream_t stream) {
  for (const Copy& copy : copies) {
    const auto code = cudaMemcpyAsync(copy.to, copy.from, copy.bytes, cudaMemcpyDefault, stream);
    if (code != cudaSuccess) return code;
  }
  return cudaSuccess;
}

cudaError_t StagedRank::advance() {
  while (!rounds_.empty()) {
    Round& round = rounds_.front();
    if (!round.is_staged) {
      if (const auto code = stage(round); code != cudaSuccess) return code;
    }
    if (!are_others_staged(round)) return cudaSuccess;
    if (const auto code = take(round); code != cudaSuccess) return code;
    rounds_.pop_front();
  }
  return cudaSuccess;
}

cudaError_t StagedRank::stage(Round& round) {
  round.is_staged = true;
  if (!round.call.is_message()) round.number = ++num_collectives_;
  auto code = copy_all(round.in, round.call.stream);
  if (code != cudaSuccess) return code;
  {
    const std::lock_guard lock(staged_mutex_);
    staged_.push_back(round);
  }
  launched_.fetch_add(1);
  code = write_value(round.call.stream, &flags_->staged, 1);
  if (code != cudaSuccess) return code;
  if (!round.call.is_message()) segment_.slot(rank_).queued.store(round.number);
  for (int peer = 0; round.call.is_message() && peer < num_ranks_; ++peer) {
    const auto p = static_cast<size_t>(peer);
    if (round.to[p] > 0) segment_.channel(rank_, peer).queued_from.store(round.number_to[p]);
    if (round.from[p] > 0) segment_.channel(peer, rank_).queued_to.store(round.number_from[p]);
  }
  return code;
}

/// Those that this rank's thread waits for.
bool StagedRank::are_others_staged(const Round& round) const {
  for (int peer = 0; peer < num_ranks_; ++peer) {
    const auto p = static_cast<size_t>(peer);
    if (!round.call.is_message()) {
      if (segment_.slot(peer).queued.load() < round.number) return false;
      continue;
    }
    // A piece is sent when the peer has taken the one before.
    if (round.to[p] > 0 && segment_.channel(rank_, peer).queued_to.load() + 1 < round.number_to[p]) return false;
    if (round.from[p] > 0 && segment_.channel(peer, rank_).queued_from.load() < round.number_from[p]) return false;
  }
  return true;
}

cudaError_t StagedRank::take(const Round& round) {
  auto code = wait_value(round.call.stream, &flags_->done, 1);
  if (code == cudaSuccess) code = write_value(round.call.stream, &flags_->done, 0);
  if (code == cudaSuccess) code = copy_all(round.out, round.call.stream);
  return code == cudaSuccess ? cudaEventRecord(taken_, round.call.stream) : code;
}

}  // namespace nccl_standin
