#include "lockstep/device/captured_graph.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include "lockstep/base/error.h"

namespace lockstep::detail {
namespace {

/// Up to this size several inputs are copied by one kernel; larger ones by the copy engines.
constexpr size_t kMostBytesTogether = 4 << 20;

/// LibTorch's graph, which does not give back what it holds where its recording fails.
class RecordedGraph final : public at::cuda::CUDAGraph {
 public:
  RecordedGraph() : CUDAGraph(/*keep_graph=*/true) {}

  void abandon() {
    cudaGraph_t graph = nullptr;
    if (cudaStreamEndCapture(capture_stream_, &graph) == cudaSuccess && graph != nullptr) cudaGraphDestroy(graph);
    give_back();
  }

  void give_back() {
    cudaGetLastError();  // of the failed recording; LibTorch would take it for one of its own calls
    for (auto& [state, increment] : captured_generator_states_) state->capturing_ = false;
    try {
      c10::cuda::CUDACachingAllocator::endAllocateToPool(capture_dev_, mempool_id_);
    } catch (const c10::Error&) {
      // The recording had come far enough to have ended it.
    }
    if (!capture_ended_) c10::cuda::CUDACachingAllocator::releasePool(capture_dev_, mempool_id_);
  }

  bool draws() const {
    return std::any_of(captured_generator_states_.begin(), captured_generator_states_.end(),
                       [](const auto& of_state) { return of_state.second > 0; });
  }
};

bool is_on_host(const void* memory) {
  cudaPointerAttributes attributes{};
  if (memory == nullptr) return false;
  if (cudaPointerGetAttributes(&attributes, memory) != cudaSuccess) {
    cudaGetLastError();
    return true;
  }
  return attributes.type == cudaMemoryTypeHost || attributes.type == cudaMemoryTypeUnregistered;
}

/// The memory that a node copies between, or two null pointers.
std::pair<const void*, const void*> copy_of(cudaGraphNode_t node) {
  cudaGraphNodeType type{};
  C10_CUDA_CHECK(cudaGraphNodeGetType(node, &type));
  if (type != cudaGraphNodeTypeMemcpy) return {nullptr, nullptr};
  cudaMemcpy3DParms copy{};
  C10_CUDA_CHECK(cudaGraphMemcpyNodeGetParams(node, &copy));
  return {copy.srcPtr.ptr, copy.dstPtr.ptr};
}

class CudaGraph final : public CapturedGraph {
 public:
  CudaGraph(c10::Device device, const GraphPool& pool) : device_(device), pool_(pool.first, pool.second) {}

  ~CudaGraph() override {
    if (!is_recording_) return;
    graph_.abandon();
  }

  void add_generator(const at::Generator& generator) override { graph_.register_generator_state(generator); }

  void begin() override {
    const c10::cuda::CUDAGuard guard(device_);
    // Backward may run on LibTorch's own thread, and other threads go on using the device.
    graph_.capture_begin(pool_, cudaStreamCaptureModeRelaxed);
    is_recording_ = true;
  }

  void end() override {
    const c10::cuda::CUDAGuard guard(device_);
    is_recording_ = false;
    try {
      graph_.capture_end();
    } catch (...) {
      graph_.give_back();
      throw;
    }
    look_at_nodes();
    if (why_not_.empty()) graph_.instantiate();
  }

  void abandon() override {
    if (!is_recording_) return;
    is_recording_ = false;
    graph_.abandon();
  }

  const std::string& why_not() const override { return why_not_; }
  bool draws_random_numbers() const override { return graph_.draws(); }
  void replay() override { graph_.replay(); }

 private:
  void look_at_nodes() {
    size_t count = 0;
    C10_CUDA_CHECK(cudaGraphGetNodes(graph_.raw_cuda_graph(), nullptr, &count));
    std::vector<cudaGraphNode_t> nodes(count);
    if (count > 0) C10_CUDA_CHECK(cudaGraphGetNodes(graph_.raw_cuda_graph(), nodes.data(), &count));
    for (const cudaGraphNode_t node : nodes) {
      const auto [source, target] = copy_of(node);
      if (is_on_host(target)) why_not_ = "it copies a tensor to the memory of the host";
      if (is_on_host(source)) {
        why_not_ = "it copies a tensor from the memory of the host, where a replay would read other numbers; give it as an argument";
      }
    }
  }

  const c10::Device device_;
  const at::cuda::MempoolId_t pool_;
  RecordedGraph graph_;
  bool is_recording_ = false;
  std::string why_not_;
};

/// The same memory as numbers of eight bytes; undefined where that is not possible.
at::Tensor as_words(const at::Tensor& tensor) {
  const bool fits = tensor.is_contiguous() && tensor.nbytes() % 8 == 0 &&
                    reinterpret_cast<uintptr_t>(tensor.data_ptr()) % 8 == 0 && tensor.numel() > 0;
  if (!fits) return {};
  return at::from_blob(tensor.data_ptr(), {static_cast<int64_t>(tensor.nbytes() / 8)}, tensor.options().dtype(at::kLong));
}

}  // namespace

std::string why_no_captured_graph(c10::Device device) { return device.is_cuda() ? "" : "the device is no GPU"; }

GraphPool new_graph_pool() {
  const auto pool = at::cuda::graph_pool_handle();
  return {pool.first, pool.second};
}

std::unique_ptr<CapturedGraph> make_captured_graph(c10::Device device, const GraphPool& pool) {
  return std::make_unique<CudaGraph>(device, pool);
}

bool is_capturing(c10::Device device) {
  if (!device.is_cuda()) return false;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  C10_CUDA_CHECK(cudaStreamIsCapturing(c10::cuda::getCurrentCUDAStream(device.index()), &status));
  return status != cudaStreamCaptureStatusNone;
}

void copy_together(at::TensorList sources, at::TensorList targets) {
  const at::NoGradGuard no_grad;
  size_t bytes = 0;
  std::vector<at::Tensor> from;
  std::vector<at::Tensor> to;
  for (size_t i = 0; i < sources.size() && sources.size() > 1; ++i) {
    bytes += sources[i].nbytes();
    if (!sources[i].is_cuda() || bytes > kMostBytesTogether) break;
    from.push_back(as_words(sources[i]));
    to.push_back(as_words(targets[i]));
    if (!from.back().defined() || !to.back().defined()) break;
  }
  if (sources.size() > 1 && from.size() == sources.size() && from.back().defined() && to.back().defined()) {
    return at::_foreach_copy_(to, from);
  }
  for (size_t i = 0; i < sources.size(); ++i) targets[i].copy_(sources[i], /*non_blocking=*/sources[i].is_cuda());
}

}  // namespace lockstep::detail
