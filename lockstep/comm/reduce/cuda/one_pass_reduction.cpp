#include "lockstep/comm/reduce/cuda/one_pass_reduction.h"

#include <algorithm>
#include <array>
#include <dlfcn.h>
#include <map>
#include <memory>
#include <mutex>
#include <nvrtc.h>
#include <string>
#include <tuple>

#include <ATen/Context.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/PeerToPeerAccess.h>
#include <cuda.h>

#include "lockstep/base/dtype_name.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/reduce/cuda/kernel_source.h"

namespace lockstep::comm {
namespace {

/// Opens the library beside LibTorch's own that needs both the driver and the compiler.
void* open_stub() {
  std::string path = "libcaffe2_nvrtc.so";
  Dl_info torch{};
  if (dladdr(reinterpret_cast<void*>(&at::globalContext), &torch) != 0 && torch.dli_fname != nullptr) {
    const std::string library = torch.dli_fname;
    path = library.substr(0, library.rfind('/') + 1) + path;
  }
  void* const stub = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (stub != nullptr) return stub;
  const char* const reason = dlerror();
  LOCKSTEP_CHECK_IMPLEMENTED(false, "[reduce] kernels need LibTorch's ", path, ": ", reason == nullptr ? "" : reason);
}

/// The functions of the driver and of the compiler at run time. LibTorch loads both libraries when it first needs them;
/// the library is not linked with them, so that it runs where there is no driver.
struct Functions {
  decltype(&::nvrtcCreateProgram) create_program = nullptr;
  decltype(&::nvrtcCompileProgram) compile_program = nullptr;
  decltype(&::nvrtcDestroyProgram) destroy_program = nullptr;
  decltype(&::nvrtcGetProgramLogSize) log_size = nullptr;
  decltype(&::nvrtcGetProgramLog) log = nullptr;
  decltype(&::nvrtcGetCUBINSize) binary_size = nullptr;
  decltype(&::nvrtcGetCUBIN) binary = nullptr;
  decltype(&::nvrtcGetErrorString) compiler_error = nullptr;
  decltype(&::cuGetErrorString) driver_error = nullptr;
  decltype(&::cuDevicePrimaryCtxRetain) retain_context = nullptr;
  decltype(&::cuCtxPushCurrent) push_context = nullptr;
  decltype(&::cuCtxPopCurrent) pop_context = nullptr;
  decltype(&::cuModuleLoadData) load_module = nullptr;
  decltype(&::cuModuleGetFunction) get_function = nullptr;
  decltype(&::cuLaunchKernel) launch = nullptr;

  Functions() {
    void* const stub = open_stub();
    find(stub, "nvrtcCreateProgram", create_program);
    find(stub, "nvrtcCompileProgram", compile_program);
    find(stub, "nvrtcDestroyProgram", destroy_program);
    find(stub, "nvrtcGetProgramLogSize", log_size);
    find(stub, "nvrtcGetProgramLog", log);
    find(stub, "nvrtcGetCUBINSize", binary_size);
    find(stub, "nvrtcGetCUBIN", binary);
    find(stub, "nvrtcGetErrorString", compiler_error);
    find(stub, "cuGetErrorString", driver_error);
    find(stub, "cuDevicePrimaryCtxRetain", retain_context);
    find(stub, "cuCtxPushCurrent_v2", push_context);
    find(stub, "cuCtxPopCurrent_v2", pop_context);
    find(stub, "cuModuleLoadData", load_module);
    find(stub, "cuModuleGetFunction", get_function);
    find(stub, "cuLaunchKernel", launch);
  }

  static const Functions& get() {
    static const Functions functions;
    return functions;
  }

  void check(nvrtcResult result, const char* call) const {
    LOCKSTEP_CHECK_IMPLEMENTED(result == NVRTC_SUCCESS, "[reduce] ", call, " failed: ", compiler_error(result));
  }
  void check(CUresult result, const char* call) const {
    if (result == CUDA_SUCCESS) return;
    const char* text = nullptr;
    driver_error(result, &text);
    LOCKSTEP_THROW(c10::Error, "[reduce] ", call, " failed: ", text == nullptr ? "unknown error" : text);
  }

 private:
  template <typename Function>
  static void find(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    LOCKSTEP_CHECK_IMPLEMENTED(function != nullptr, "[reduce] the driver or the compiler has no function ", name);
  }
};

/// Makes LibTorch's context of a device current for the driver as long as it lives.
class ContextScope {
 public:
  explicit ContextScope(CUcontext context) { check(Functions::get().push_context(context)); }
  ~ContextScope() {
    CUcontext context = nullptr;
    Functions::get().pop_context(&context);
  }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  static void check(CUresult result) { Functions::get().check(result, "cuCtxPushCurrent"); }
};

std::string compiler_log(const Functions& functions, nvrtcProgram program) {
  size_t size = 0;
  functions.log_size(program, &size);
  std::string log(size, '\0');
  if (size > 0) functions.log(program, log.data());
  return log;
}

/// Returns machine code for a device.
std::vector<char> compile(const std::string& source, c10::DeviceIndex device) {
  const Functions& functions = Functions::get();
  const cudaDeviceProp* const properties = at::cuda::getDeviceProperties(device);
  nvrtcProgram program = nullptr;
  functions.check(functions.create_program(&program, source.c_str(), "lockstep_reduce.cu", 0, nullptr, nullptr),
                  "nvrtcCreateProgram");
  const auto destroy = [&](nvrtcProgram* made) { functions.destroy_program(made); };
  const std::unique_ptr<nvrtcProgram, decltype(destroy)> owner(&program, destroy);
  const std::string architecture = c10::str("--gpu-architecture=sm_", properties->major, properties->minor);
  const std::array<const char*, 3> options{architecture.c_str(), "--std=c++17", "--fmad=false"};
  const nvrtcResult result = functions.compile_program(program, static_cast<int>(options.size()), options.data());
  LOCKSTEP_CHECK_IMPLEMENTED(result == NVRTC_SUCCESS, "[reduce] a kernel could not be compiled: ", architecture, ", ",
                             functions.compiler_error(result), ": ", compiler_log(functions, program));
  size_t size = 0;
  functions.check(functions.binary_size(program, &size), "nvrtcGetCUBINSize");
  std::vector<char> code(size);
  functions.check(functions.binary(program, code.data()), "nvrtcGetCUBIN");
  return code;
}

/// What a device runs for one dtype, operation and number of ranks. Null where it could not be made.
using KernelKey = std::tuple<c10::DeviceIndex, at::ScalarType, ReduceOp::Kind, size_t>;

/// All kernels of the process. They are never unloaded: the driver may be gone before the process ends.
class Kernels {
 public:
  static Kernels& get() {
    static auto* const kernels = new Kernels;
    return *kernels;
  }

  /// Null where the kernel could not be made.
  CUfunction find(const KernelKey& key) {
    const std::lock_guard lock(mutex_);
    const auto known = kernels_.find(key);
    if (known != kernels_.end()) return known->second;
    CUfunction made = nullptr;
    try {
      made = make(key);
    } catch (const std::exception& error) {
      if (!warned_) {
        LOCKSTEP_LOG(Warn) << "reductions on GPUs use LibTorch's operators, several kernels for each tensor, because "
                           << "a kernel could not be made: " << error.what();
      }
      warned_ = true;
    }
    kernels_.emplace(key, made);
    return made;
  }

  CUcontext context(c10::DeviceIndex device) {
    const std::lock_guard lock(mutex_);
    return find_context(device);
  }

  bool has_access(c10::DeviceIndex from, c10::DeviceIndex to) {
    if (from == to) return true;
    const std::lock_guard lock(mutex_);
    return at::cuda::get_p2p_access(from, to);
  }

 private:
  CUcontext find_context(c10::DeviceIndex device) {
    CUcontext& context = contexts_[device];
    if (context == nullptr) {
      Functions::get().check(Functions::get().retain_context(&context, device), "cuDevicePrimaryCtxRetain");
    }
    return context;
  }

  CUfunction make(const KernelKey& key) {
    const auto& [device, dtype, op, num_ranks] = key;
    const std::vector<char> code = compile(kernel_source(dtype, op, num_ranks), device);
    const Functions& functions = Functions::get();
    const ContextScope current(find_context(device));
    CUmodule module = nullptr;
    functions.check(functions.load_module(&module, code.data()), "cuModuleLoadData");
    CUfunction function = nullptr;
    functions.check(functions.get_function(&function, module, kKernelName), "cuModuleGetFunction");
    return function;
  }

  std::mutex mutex_;
  std::map<KernelKey, CUfunction> kernels_;
  std::map<c10::DeviceIndex, CUcontext> contexts_;
  bool warned_ = false;
};

/// Fills the argument of the kernel with pieces of one dtype, and launches it when it is full.
class Launcher {
 public:
  Launcher(c10::Device device, ReduceOp op, const PieceToReduce& first, int64_t bytes)
      : device_(device),
        width_(static_cast<int64_t>(c10::elementSize(first.dtype))),
        num_outputs_(first.outputs.size()),
        words_per_piece_(kPieceWords + first.inputs.size() + num_outputs_),
        kernel_(Kernels::get().find({device.index(), first.dtype, op, first.inputs.size()})),
        bytes_per_block_(bytes_for_each_block(device, bytes)) {
    LOCKSTEP_ASSERT(kernel_ != nullptr && words_per_piece_ + kHeaderWords <= kArgumentWords);
  }

  void add(const PieceToReduce& piece) {
    if (kHeaderWords + (num_pieces_ + 1) * words_per_piece_ > kArgumentWords) launch();
    uint64_t* word = words_.data() + kHeaderWords + num_pieces_ * words_per_piece_;
    uint64_t addresses = 0;
    *word++ = static_cast<uint64_t>(piece.count);
    uint64_t& first_block = *word++;
    for (const void* input : piece.inputs) addresses |= * word++ = reinterpret_cast<uint64_t>(input);
    for (const void* output : piece.outputs) addresses |= * word++ = reinterpret_cast<uint64_t>(output);
    first_block = num_blocks_ << 1 | (addresses % kVectorBytes == 0 ? 1 : 0);
    num_blocks_ += static_cast<uint64_t>((piece.count * width_ + bytes_per_block_ - 1) / bytes_per_block_);
    ++num_pieces_;
  }

  void launch() {
    if (num_pieces_ == 0) return;
    words_[0] = num_pieces_;
    words_[1] = num_outputs_;
    words_[2] = static_cast<uint64_t>(bytes_per_block_ / width_);
    const Functions& functions = Functions::get();
    const ContextScope current(Kernels::get().context(device_.index()));
    std::array<void*, 1> arguments{words_.data()};
    const CUstream stream = c10::cuda::getCurrentCUDAStream(device_.index()).stream();
    functions.check(functions.launch(kernel_, static_cast<unsigned int>(num_blocks_), 1, 1, kThreadsPerBlock, 1, 1, 0,
                                     stream, arguments.data(), nullptr),
                    "cuLaunchKernel");
    num_pieces_ = 0;
    num_blocks_ = 0;
  }

 private:
  /// Enough blocks to keep all processors busy to the end, and enough bytes for each to be worth its start.
  static int64_t bytes_for_each_block(c10::Device device, int64_t bytes) {
    constexpr int64_t kSmallest = kThreadsPerBlock * kVectorBytes;
    constexpr int64_t kBlocksPerProcessor = 32;
    const int64_t blocks = at::cuda::getDeviceProperties(device.index())->multiProcessorCount * kBlocksPerProcessor;
    return std::clamp(bytes / blocks / kSmallest, int64_t(1), int64_t(8)) * kSmallest;
  }

  const c10::Device device_;
  const int64_t width_;
  const size_t num_outputs_;
  const size_t words_per_piece_;
  const CUfunction kernel_;
  const int64_t bytes_per_block_;
  std::array<uint64_t, kArgumentWords> words_{};
  size_t num_pieces_ = 0;
  uint64_t num_blocks_ = 0;
};

}  // namespace

bool has_one_pass_kernel(at::ScalarType dtype, ReduceOp op, size_t num_ranks) {
  return has_kernel_source(dtype, op, num_ranks);
}

bool can_reduce_in_one_pass(std::span<const c10::Device> devices, std::span<const at::ScalarType> dtypes, ReduceOp op,
                            size_t num_ranks) {
  Kernels& kernels = Kernels::get();
  for (const c10::Device& device : devices) {
    if (!device.is_cuda()) return false;
    for (const c10::Device& other : devices) {
      if (!kernels.has_access(device.index(), other.index())) return false;
    }
    for (const at::ScalarType dtype : dtypes) {
      if (kernels.find({device.index(), dtype, op, num_ranks}) == nullptr) return false;
    }
  }
  return true;
}

void reduce_in_one_pass(c10::Device device, ReduceOp op, const std::vector<PieceToReduce>& pieces) {
  std::map<at::ScalarType, int64_t> bytes_of;
  for (const PieceToReduce& piece : pieces) {
    bytes_of[piece.dtype] += piece.count * static_cast<int64_t>(c10::elementSize(piece.dtype));
  }
  for (const auto& [dtype, bytes] : bytes_of) {
    std::unique_ptr<Launcher> launcher;
    for (const PieceToReduce& piece : pieces) {
      if (piece.dtype != dtype || piece.count == 0) continue;
      if (!launcher) launcher = std::make_unique<Launcher>(device, op, piece, bytes);
      launcher->add(piece);
    }
    if (launcher) launcher->launch();
  }
}

}  // namespace lockstep::comm
