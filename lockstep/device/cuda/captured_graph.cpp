#include "lockstep/device/captured_graph.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/CachingHostAllocator.h>
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

/// Newer releases of LibTorch have a pool of page-locked memory for each recording, too.
template <class Allocator>
void give_back_host_pool(Allocator* host, const at::cuda::MempoolId_t& pool) {
  if constexpr (requires {
                  host->end_allocate_to_pool(pool);
                  host->release_pool(pool);
                }) {
    try {
      host->end_allocate_to_pool(pool);
      host->release_pool(pool);
    } catch (const std::exception&) {  // it has none
    }
  }
}

/// LibTorch's graph, which does not give back what it holds where its recording fails.
class RecordedGraph final : public at::cuda::CUDAGraph {
 public:
  RecordedGraph() : CUDAGraph(/*keep_graph=*/true) {}

  cudaGraphExec_t executable() const { return graph_exec_; }

  void abandon() {
    cudaGraph_t graph = nullptr;
    if (cudaStreamEndCapture(capture_stream_, &graph) == cudaSuccess && graph != nullptr) cudaGraphDestroy(graph);
    give_back(/*has_begun=*/true);
  }

  void give_back(bool has_begun) {
    cudaGetLastError();  // of the failed recording; LibTorch would take it for one of its own calls
    for (auto& [state, increment] : captured_generator_states_) state->capturing_ = false;
    bool has_pool = has_begun;
    try {
      c10::cuda::CUDACachingAllocator::endAllocateToPool(capture_dev_, mempool_id_);
      has_pool = true;
    } catch (const c10::Error&) {
      // The recording had ended it, or had not come so far.
    }
    if (!has_pool || capture_ended_) return;
    c10::cuda::CUDACachingAllocator::releasePool(capture_dev_, mempool_id_);
    give_back_host_pool(at::getHostAllocator(at::kCUDA), mempool_id_);
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

/// Since CUDA 13 these functions have an argument for data of edges.
template <class Function>
cudaError_t count_dependents(Function function, cudaGraphNode_t node, size_t* count) {
  if constexpr (requires { function(node, nullptr, nullptr, count); }) {
    return function(node, nullptr, nullptr, count);
  } else {
    return function(node, nullptr, count);
  }
}

template <class Function>
cudaError_t add_dependency(Function function, cudaGraph_t graph, cudaGraphNode_t before, cudaGraphNode_t after) {
  if constexpr (requires { function(graph, &before, &after, nullptr, size_t{1}); }) {
    return function(graph, &before, &after, nullptr, 1);
  } else {
    return function(graph, &before, &after, 1);
  }
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
    // Replicas are recorded on several threads, and others go on using the device.
    try {
      graph_.capture_begin(pool_, cudaStreamCaptureModeRelaxed);
    } catch (...) {
      graph_.give_back(/*has_begun=*/false);
      throw;
    }
    is_recording_ = true;
  }

  void end() override {
    const c10::cuda::CUDAGuard guard(device_);
    is_recording_ = false;
    try {
      graph_.capture_end();
    } catch (...) {
      graph_.give_back(/*has_begun=*/true);
      throw;
    }
    look_at_nodes();
  }

  void finish(std::vector<at::Tensor> inputs, std::vector<at::Tensor> outputs) override {
    const c10::cuda::CUDAGuard guard(device_);
    add_inputs(std::move(inputs));
    add_outputs(std::move(outputs));
    graph_.instantiate();
  }

  void abandon() override {
    if (!is_recording_) return;
    is_recording_ = false;
    graph_.abandon();
  }

  const std::string& why_not() const override { return why_not_; }
  bool draws_random_numbers() const override { return graph_.draws(); }

  void replay(at::TensorList sources, at::TensorList targets) override {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (std::exchange(inputs_[i].other, sources[i].data_ptr()) == sources[i].data_ptr()) continue;
      move_copy(inputs_[i], inputs_[i].own.data_ptr(), sources[i].data_ptr());
    }
    for (size_t i = 0; i < outputs_.size(); ++i) {
      if (std::exchange(outputs_[i].other, targets[i].data_ptr()) == targets[i].data_ptr()) continue;
      move_copy(outputs_[i], targets[i].data_ptr(), outputs_[i].own.data_ptr());
    }
    graph_.replay();
  }

 private:
  /// A copy between a tensor of the graph and another one, which replays choose.
  struct Port {
    at::Tensor own;
    cudaGraphNode_t node = nullptr;
    void* other = nullptr;
  };

  using Nodes = std::vector<cudaGraphNode_t>;

  Nodes nodes() {
    size_t count = 0;
    C10_CUDA_CHECK(cudaGraphGetNodes(graph_.raw_cuda_graph(), nullptr, &count));
    Nodes all(count);
    if (count > 0) C10_CUDA_CHECK(cudaGraphGetNodes(graph_.raw_cuda_graph(), all.data(), &count));
    return all;
  }

  Nodes roots() {
    size_t count = 0;
    C10_CUDA_CHECK(cudaGraphGetRootNodes(graph_.raw_cuda_graph(), nullptr, &count));
    Nodes first(count);
    if (count > 0) C10_CUDA_CHECK(cudaGraphGetRootNodes(graph_.raw_cuda_graph(), first.data(), &count));
    return first;
  }

  /// The nodes that no other one waits for.
  Nodes leaves() {
    Nodes last;
    for (const cudaGraphNode_t node : nodes()) {
      size_t count = 0;
      C10_CUDA_CHECK(count_dependents(&cudaGraphNodeGetDependentNodes, node, &count));
      if (count == 0) last.push_back(node);
    }
    return last;
  }

  void add_inputs(std::vector<at::Tensor> inputs) {
    const Nodes first = roots();
    for (at::Tensor& own : inputs) {
      Port port{std::move(own)};
      // A replay gives the source.
      const at::Tensor source = at::empty_like(port.own);
      C10_CUDA_CHECK(cudaGraphAddMemcpyNode1D(&port.node, graph_.raw_cuda_graph(), nullptr, 0, port.own.data_ptr(),
                                              source.data_ptr(), port.own.nbytes(), cudaMemcpyDeviceToDevice));
      for (const cudaGraphNode_t node : first) {
        C10_CUDA_CHECK(add_dependency(&cudaGraphAddDependencies, graph_.raw_cuda_graph(), port.node, node));
      }
      inputs_.push_back(std::move(port));
    }
  }

  void add_outputs(std::vector<at::Tensor> outputs) {
    const Nodes last = leaves();
    for (at::Tensor& own : outputs) {
      Port port{std::move(own)};
      const at::Tensor target = at::empty_like(port.own);
      C10_CUDA_CHECK(cudaGraphAddMemcpyNode1D(&port.node, graph_.raw_cuda_graph(), last.data(), last.size(),
                                              target.data_ptr(), port.own.data_ptr(), port.own.nbytes(),
                                              cudaMemcpyDeviceToDevice));
      outputs_.push_back(std::move(port));
    }
  }

  void move_copy(const Port& port, void* target, const void* source) {
    C10_CUDA_CHECK(cudaGraphExecMemcpyNodeSetParams1D(graph_.executable(), port.node, target, source, port.own.nbytes(),
                                                      cudaMemcpyDeviceToDevice));
  }

  void look_at_nodes() {
    for (const cudaGraphNode_t node : nodes()) {
      const auto [source, target] = copy_of(node);
      if (is_on_host(target)) why_not_ = "it copies a tensor to the memory of the host";
      if (is_on_host(source)) {
        why_not_ =
            "it copies a tensor from the memory of the host, where a replay would read other numbers; give it as an "
            "argument";
      }
    }
  }

  const c10::Device device_;
  const at::cuda::MempoolId_t pool_;
  RecordedGraph graph_;
  std::vector<Port> inputs_;
  std::vector<Port> outputs_;
  bool is_recording_ = false;
  std::string why_not_;
};

}  // namespace

std::string why_no_captured_graph(c10::Device device) { return device.is_cuda() ? "" : "the device is no GPU"; }

GraphPool new_graph_pool() {
  const auto pool = at::cuda::graph_pool_handle();
  return {pool.first, pool.second};
}

std::unique_ptr<CapturedGraph> make_captured_graph(c10::Device device, const GraphPool& pool) {
  return std::make_unique<CudaGraph>(device, pool);
}

void free_cached_memory(c10::Device /*device*/) { c10::cuda::CUDACachingAllocator::emptyCache(); }

bool is_capturing(c10::Device device) {
  if (!device.is_cuda()) return false;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  C10_CUDA_CHECK(cudaStreamIsCapturing(c10::cuda::getCurrentCUDAStream(device.index()), &status));
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace lockstep::detail
