#include "tests/support/nccl_standin/rank.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <stdexcept>
#include <unistd.h>

#include <cuda.h>

#include "tests/support/nccl_standin/sums.h"

namespace nccl_standin {
namespace {

constexpr std::chrono::seconds kAbortLimit{10};

long number(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? 0 : std::atol(text);
}

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

}  // namespace

Faults::Faults()
    : error_at(number("NCCL_STANDIN_ERROR_AT")),
      hang_at(number("NCCL_STANDIN_HANG_AT")),
      delay_at(number("NCCL_STANDIN_DELAY_AT")),
      delay(number("NCCL_STANDIN_DELAY_MS")),
      refuses_shared_cards(number("NCCL_STANDIN_REFUSE_SHARED_CARDS") != 0) {
  if (std::getenv("NCCL_STANDIN_RANK") != nullptr) rank = static_cast<int>(number("NCCL_STANDIN_RANK"));
  if (const char* text = std::getenv("NCCL_STANDIN_WIRE_GBPS")) wire = std::atof(text) * 1e9;
}

uint64_t Step::signature() const {
  uint64_t hash = static_cast<uint64_t>(kind) + 1;
  for (const uint64_t part : {static_cast<uint64_t>(count), static_cast<uint64_t>(dtype), static_cast<uint64_t>(op),
                              static_cast<uint64_t>(root)}) {
    hash = hash * 1000003 + part;
  }
  return hash;
}

Rank::Rank(const std::string& id, int rank, int num_ranks, bool blocking)
    : rank_(rank), num_ranks_(num_ranks), blocking_(blocking), segment_(id, num_ranks) {
  const auto check = [](cudaError_t code) {
    if (code != cudaSuccess) throw std::runtime_error(cudaGetErrorString(code));
  };
  check(cudaGetDevice(&device_));
  check(cudaHostRegister(segment_.base(), segment_.bytes(), cudaHostRegisterPortable | cudaHostRegisterMapped));
  void* flags = nullptr;
  check(cudaHostAlloc(&flags, sizeof(Flags), cudaHostAllocPortable | cudaHostAllocMapped));
  flags_ = new (flags) Flags{};
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device_));
  Slot& slot = segment_.slot(rank);
  std::memcpy(slot.card, properties.uuid.bytes, sizeof(properties.uuid.bytes));
  slot.pid.store(getpid());
  segment_.join();
  thread_ = std::thread([this] { work(); });
}

Rank::~Rank() {
  segment_.forget();
  stops_.store(true);
  if (thread_.joinable()) thread_.join();
  cudaHostUnregister(segment_.base());
  cudaFreeHost(flags_);
}

ncclResult_t Rank::state() {
  const auto error = static_cast<ncclResult_t>(error_.load());
  if (error != ncclSuccess) return error;
  if (!segment_.is_complete()) return ncclInProgress;
  if (faults_.refuses_shared_cards && !checked_cards_.exchange(true)) {
    for (int other = 0; other < num_ranks_; ++other) {
      if (other == rank_ || std::memcmp(segment_.slot(other).card, segment_.slot(rank_).card, 16) != 0) continue;
      fail(ncclInvalidUsage);
      return ncclInvalidUsage;
    }
  }
  if (in_progress_polls_.load() > 0 && in_progress_polls_.fetch_sub(1) > 0) return ncclInProgress;
  return ncclSuccess;
}

ncclResult_t Rank::queue(const std::vector<Call>& calls) {
  int previous = 0;
  cudaGetDevice(&previous);
  cudaSetDevice(device_);
  std::vector<Call> messages;
  auto code = cudaSuccess;
  for (const Call& call : calls) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (code == cudaSuccess) code = cudaStreamIsCapturing(call.stream, &status);
    if (call.kind == Kind::Send || call.kind == Kind::Receive) {
      messages.push_back(call);
    } else if (code == cudaSuccess) {
      code = queue_collective(call, status != cudaStreamCaptureStatusNone);
    }
  }
  if (code == cudaSuccess && !messages.empty()) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaStreamIsCapturing(messages[0].stream, &status);
    code = queue_messages(messages, status != cudaStreamCaptureStatusNone);
  }
  cudaSetDevice(previous);
  return code == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

cudaError_t Rank::queue_step(const Step& step, cudaStream_t stream) {
  uint32_t number = 0;
  {
    const std::lock_guard lock(steps_mutex_);
    steps_.push_back(step);
    number = static_cast<uint32_t>(steps_.size());
    any_captured_ = any_captured_ || step.captured;
  }
  if (!step.captured) launched_.fetch_add(1);
  auto code = write_value(stream, &flags_->staged, number);
  if (code == cudaSuccess) code = wait_value(stream, &flags_->done, 1);
  if (code == cudaSuccess) code = write_value(stream, &flags_->done, 0);
  return code;
}

cudaError_t Rank::queue_collective(const Call& call, bool captured) {
  const bool gathers = call.kind == Kind::AllGather || call.kind == Kind::ReduceScatter;
  const size_t width = size_of(call.dtype);
  const size_t room = kArea / width / (gathers ? static_cast<size_t>(num_ranks_) : 1);
  Step step{.kind = call.kind,
            .dtype = call.dtype,
            .op = call.op,
            .root = call.peer,
            .begins_call = true,
            .captured = captured};
  for (size_t begin = 0; begin < call.count; begin += room) {
    const auto code = queue_chunk(call, step, begin, std::min(room, call.count - begin));
    if (code != cudaSuccess) return code;
    step.begins_call = false;
  }
  return cudaSuccess;
}

cudaError_t Rank::queue_chunk(const Call& call, Step& step, size_t begin, size_t piece) {
  const size_t width = size_of(call.dtype);
  const size_t bytes = piece * width;
  const size_t whole = call.count * width;
  const size_t offset = begin * width;
  const auto copy = [&](void* to, const void* from) {
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, call.stream);
  };
  step.count = piece;
  auto code = cudaSuccess;
  const int inputs = call.kind == Kind::ReduceScatter ? num_ranks_ : 1;
  const bool stages = call.kind != Kind::Broadcast || call.peer == rank_;
  for (int part = 0; stages && part < inputs && code == cudaSuccess; ++part) {
    const auto number = static_cast<size_t>(part);
    code = copy(segment_.staged(rank_) + number * bytes, call.input + number * whole + offset);
  }
  if (code == cudaSuccess) code = queue_step(step, call.stream);
  if (code != cudaSuccess) return code;
  if (call.kind == Kind::Reduce && call.peer != rank_) return code;
  const char* from = segment_.result();
  if (call.kind == Kind::ReduceScatter) from += static_cast<size_t>(rank_) * bytes;
  const int outputs = call.kind == Kind::AllGather ? num_ranks_ : 1;
  for (int part = 0; part < outputs && code == cudaSuccess; ++part) {
    const auto number = static_cast<size_t>(part);
    code = copy(call.output + number * whole + offset, from + number * bytes);
  }
  return code;
}

/// Messages to a peer go in rounds, one piece of each at a time.
cudaError_t Rank::queue_messages(const std::vector<Call>& calls, bool captured) {
  const auto ranks = static_cast<size_t>(num_ranks_);
  const size_t piece = std::min(kArea / ranks, kChannel);
  const cudaStream_t stream = calls[0].stream;
  // What is left to send to and receive from each rank, in order.
  std::vector<std::deque<std::pair<char*, size_t>>> out(ranks);
  std::vector<std::deque<std::pair<char*, size_t>>> in(ranks);
  for (const Call& call : calls) {
    const bool sends = call.kind == Kind::Send;
    char* data = sends ? const_cast<char*>(call.input) : call.output;
    const size_t bytes = call.count * size_of(call.dtype);
    auto& pieces = (sends ? out : in)[static_cast<size_t>(call.peer)];
    for (size_t at = 0; at < bytes; at += piece) pieces.emplace_back(data + at, std::min(piece, bytes - at));
  }
  Step step{.kind = Kind::Send, .begins_call = true, .captured = captured};
  auto code = cudaSuccess;
  const auto left = [](const auto& pieces) { return !pieces.empty(); };
  while (std::any_of(out.begin(), out.end(), left) || std::any_of(in.begin(), in.end(), left)) {
    step.to.assign(ranks, 0);
    step.from.assign(ranks, 0);
    std::vector<std::pair<char*, size_t>> arriving(ranks);
    for (size_t peer = 0; peer < ranks; ++peer) {
      if (!out[peer].empty()) {
        const auto [data, bytes] = out[peer].front();
        out[peer].pop_front();
        step.to[peer] = bytes;
        code = cudaMemcpyAsync(segment_.staged(rank_) + peer * piece, data, bytes, cudaMemcpyDefault, stream);
        if (code != cudaSuccess) return code;
      }
      if (in[peer].empty()) continue;
      arriving[peer] = in[peer].front();
      in[peer].pop_front();
      step.from[peer] = arriving[peer].second;
    }
    code = queue_step(step, stream);
    step.begins_call = false;
    for (size_t peer = 0; peer < ranks && code == cudaSuccess; ++peer) {
      if (step.from[peer] == 0) continue;
      code = cudaMemcpyAsync(arriving[peer].first, segment_.received(rank_) + peer * piece, step.from[peer],
                             cudaMemcpyDefault, stream);
    }
    if (code != cudaSuccess) return code;
  }
  return code;
}

void Rank::abort() {
  aborted_.store(true);
  segment_.forget();
  const auto deadline = Clock::now() + kAbortLimit;
  while (done_.load() < launched_.load() && Clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void Rank::finish() {
  const auto deadline = Clock::now() + kAbortLimit;
  while (done_.load() < launched_.load() && error_.load() == ncclSuccess && Clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace nccl_standin
