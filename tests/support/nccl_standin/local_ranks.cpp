#include "tests/support/nccl_standin/local_ranks.h"

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>

#include "tests/support/nccl_standin/sums.h"

namespace nccl_standin {
namespace {

void check(cudaError_t code) {
  if (code != cudaSuccess) throw std::runtime_error(cudaGetErrorString(code));
}

}  // namespace

struct LocalRanks::Event {
  Event() { check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming)); }
  ~Event() { cudaEventDestroy(event); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  cudaEvent_t event = nullptr;
};

std::shared_ptr<LocalRanks> LocalRanks::of(const std::string& id, int num_ranks, const Faults& faults) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<LocalRanks>> known;
  const std::lock_guard lock(mutex);
  auto ranks = known[id].lock();
  if (!ranks) known[id] = ranks = std::make_shared<LocalRanks>(num_ranks, faults);
  return ranks;
}

LocalRanks::LocalRanks(int num_ranks, const Faults& faults)
    : num_ranks_(static_cast<size_t>(num_ranks)),
      faults_(faults),
      collectives_(num_ranks_),
      sent_(num_ranks_, std::vector<Queue>(num_ranks_)),
      received_(num_ranks_, std::vector<Queue>(num_ranks_)),
      left_(num_ranks_, 0),
      errors_(num_ranks_, ncclSuccess) {
  int least = 0;
  int greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest));
  void* released = nullptr;
  check(cudaHostAlloc(&released, sizeof(int), cudaHostAllocPortable | cudaHostAllocMapped));
  released_ = new (released) int(0);
  check(load_kernels(stream_));
}

LocalRanks::~LocalRanks() {
  last_.reset();
  cudaStreamDestroy(stream_);
  cudaFreeHost(released_);
}

ncclResult_t LocalRanks::post(int rank, const std::vector<Call>& calls) {
  const std::lock_guard lock(mutex_);
  const auto r = static_cast<size_t>(rank);
  try {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check(cudaStreamIsCapturing(calls[0].stream, &status));
    any_captured_ = any_captured_ || status != cudaStreamCaptureStatusNone;
    const auto ready = std::make_shared<Event>();
    check(cudaEventRecord(ready->event, calls[0].stream));
    for (const Call& call : calls) {
      const auto peer = static_cast<size_t>(call.peer);
      Queue& queue = !call.is_message()        ? collectives_[r]
                     : call.kind == Kind::Send ? sent_[r][peer]
                                               : received_[peer][r];
      queue.push_back({rank, call, ready});
      ++left_[r];
    }
    check(submit(take_matched(), status != cudaStreamCaptureStatusNone));
  } catch (const std::exception&) {
    return ncclUnhandledCudaError;
  }
  return ncclSuccess;
}

LocalRanks::Matched LocalRanks::take_front(const std::vector<Queue*>& queues) {
  if (std::any_of(queues.begin(), queues.end(), [](const Queue* queue) { return queue->empty(); })) return {};
  Matched matched;
  for (Queue* queue : queues) {
    matched.push_back(std::move(queue->front()));
    queue->pop_front();
  }
  return matched;
}

std::vector<LocalRanks::Matched> LocalRanks::take_matched() {
  std::vector<Matched> all;
  const auto take = [&](const std::vector<Queue*>& queues) {
    for (Matched matched = take_front(queues); !matched.empty(); matched = take_front(queues)) {
      if (agree(matched)) all.push_back(std::move(matched));
    }
  };
  std::vector<Queue*> of_all;
  for (Queue& queue : collectives_) of_all.push_back(&queue);
  take(of_all);
  for (size_t from = 0; from < num_ranks_; ++from) {
    for (size_t to = 0; to < num_ranks_; ++to) take({&sent_[from][to], &received_[from][to]});
  }
  return all;
}

/// Calls that belong together but differ are an error on all of their ranks.
bool LocalRanks::agree(const Matched& matched) {
  const Call& first = matched[0].call;
  const bool agree = std::all_of(matched.begin(), matched.end(), [&](const Posted& posted) {
    return first.is_message() ? posted.call.bytes() == first.bytes() : posted.call.signature() == first.signature();
  });
  for (const Posted& posted : matched) {
    if (!agree) errors_[static_cast<size_t>(posted.rank)] = ncclInvalidUsage;
  }
  return agree;
}

cudaError_t LocalRanks::submit(const std::vector<Matched>& all, bool captured) {
  std::set<std::shared_ptr<Event>> before;
  std::set<cudaStream_t> streams;
  for (const Matched& matched : all) {
    for (const Posted& posted : matched) {
      before.insert(posted.ready);
      streams.insert(posted.call.stream);
    }
  }
  if (streams.empty()) return cudaSuccess;
  auto code = cudaSuccess;
  const auto then = [&](cudaError_t next) {
    if (code == cudaSuccess) code = next;
  };
  for (const auto& ready : before) then(cudaStreamWaitEvent(stream_, ready->event, 0));
  then(hold(all));
  for (const Matched& matched : all) then(carry_out(matched));
  const auto done = std::make_shared<Event>();
  then(cudaEventRecord(done->event, stream_));
  for (cudaStream_t stream : streams) then(cudaStreamWaitEvent(stream, done->event, 0));
  if (!captured) last_ = done;
  for (const Matched& matched : all) {
    for (const Posted& posted : matched) --left_[static_cast<size_t>(posted.rank)];
  }
  return code;
}

/// What faults and the wire add to the time of calls.
cudaError_t LocalRanks::hold(const std::vector<Matched>& all) {
  size_t bytes = 0;
  std::chrono::nanoseconds longest{0};
  bool is_endless = false;
  for (const Matched& matched : all) {
    bytes += matched[0].call.bytes();
    for (const Posted& posted : matched) {
      if (posted.call.fault == Fault::Error) errors_[static_cast<size_t>(posted.rank)] = ncclSystemError;
      const auto time = faults_.time_of(posted.call.fault);
      is_endless = is_endless || time.count() < 0;
      longest = std::max(longest, time);
    }
  }
  const auto time = longest + faults_.time_on_wire(bytes);
  if (!is_endless && time.count() == 0) return cudaSuccess;
  return hold_on_gpu(is_endless ? -1 : time.count(), released_, stream_);
}

cudaError_t LocalRanks::carry_out(const Matched& calls) {
  const Call& first = calls[0].call;
  auto code = cudaSuccess;
  switch (first.kind) {
    case Kind::AllReduce:
    case Kind::Reduce:
      return reduce(calls);
    case Kind::ReduceScatter:
      return scatter(calls);
    case Kind::Broadcast: {
      const char* const from = calls[static_cast<size_t>(first.peer)].call.input;
      for (size_t r = 0; r < calls.size() && code == cudaSuccess; ++r)
        code = copy(calls[r].call.output, from, first.bytes());
      return code;
    }
    case Kind::AllGather:
      for (size_t to = 0; to < calls.size(); ++to) {
        for (size_t from = 0; from < calls.size() && code == cudaSuccess; ++from) {
          code = copy(calls[to].call.output + from * first.bytes(), calls[from].call.input, first.bytes());
        }
      }
      return code;
    default:
      return copy(calls[1].call.output, first.input, first.bytes());
  }
}

cudaError_t LocalRanks::reduce(const Matched& calls) {
  const Call& first = calls[0].call;
  GpuSum sum;
  sum.count = first.count;
  for (const Posted& posted : calls) {
    sum.inputs[sum.num_inputs++] = posted.call.input;
    if (first.kind == Kind::AllReduce || posted.rank == first.peer) sum.outputs[sum.num_outputs++] = posted.call.output;
  }
  return combine_on_gpu(sum, first.dtype, first.op, stream_);
}

cudaError_t LocalRanks::scatter(const Matched& calls) {
  const Call& first = calls[0].call;
  auto code = cudaSuccess;
  for (size_t part = 0; part < calls.size() && code == cudaSuccess; ++part) {
    GpuSum sum;
    sum.count = first.count;
    for (const Posted& posted : calls) sum.inputs[sum.num_inputs++] = posted.call.input + part * first.bytes();
    sum.outputs[sum.num_outputs++] = calls[part].call.output;
    code = combine_on_gpu(sum, first.dtype, first.op, stream_);
  }
  return code;
}

cudaError_t LocalRanks::copy(char* to, const char* from, size_t bytes) {
  if (to == from || bytes == 0) return cudaSuccess;
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_);
}

ncclResult_t LocalRanks::state(int rank) {
  const std::lock_guard lock(mutex_);
  const auto r = static_cast<size_t>(rank);
  if (errors_[r] != ncclSuccess) return errors_[r];
  return left_[r] > 0 ? ncclInProgress : ncclSuccess;
}

void LocalRanks::abort() { *static_cast<volatile int*>(released_) = 1; }

bool LocalRanks::is_done() {
  const std::lock_guard lock(mutex_);
  const bool waits = last_ && cudaEventQuery(last_->event) == cudaErrorNotReady;
  if (waits) cudaGetLastError();  // LibTorch would report it as its own
  return !waits;
}

bool LocalRanks::is_captured() const {
  const std::lock_guard lock(mutex_);
  return any_captured_;
}

}  // namespace nccl_standin
