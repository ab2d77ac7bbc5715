#include "lockstep/strategy/input/step_feeder.h"

#include <algorithm>
#include <chrono>
#include <exception>

#include <ATen/ThreadLocalState.h>

#include "lockstep/base/trace/trace_thread.h"
#include "lockstep/data/element/bus_errors.h"
#include "lockstep/data/element/private_memory.h"
#include "lockstep/data/transforms/sound_skip.h"
#include "lockstep/device/placement.h"
#include "lockstep/device/thread_share.h"
#include "lockstep/xla/tensor/lazy_storage.h"

namespace lockstep::detail {
namespace {

/// A thread is not worth a core if reads take less time than this on average. One slow read has little weight: the
/// first one of an epoch fills the buffers of shuffles.
constexpr double kSlowSeconds = 300e-6;
constexpr double kLongestCounted = 4 * kSlowSeconds;
constexpr double kWeightOfOne = 0.1;

bool has_accelerator(const std::vector<c10::Device>& devices) {
  return std::any_of(devices.begin(), devices.end(), [](const c10::Device& device) { return !device.is_cpu(); });
}

/// Returns how many steps are prefetched: none of datasets that are on their devices.
int64_t buffer_size_of(const InputOptions& options) {
  return options.place_dataset_on_device ? 0 : options.per_replica_buffer_size;
}

/// Starts to copy a tensor to its replica's device. On XLA devices LibTorch's own copy would trace operations, which
/// belong to the thread of the replica.
at::Tensor uploaded(const at::Tensor& tensor, bool is_borrowed, Uploader& uploader) {
  const bool is_plain = tensor.defined() && tensor.is_cpu() && tensor.layout() == at::kStrided;
  if (uploader.device().type() != c10::DeviceType::XLA || !is_plain || tensor.requires_grad()) {
    return uploader.upload(tensor, is_borrowed);
  }
  xla::XlaDevice& device = xla::device_at(uploader.device().index());
  return xla::wrap(xla::upload(tensor, device), device);
}

void upload_element(data::Element& element, Uploader& uploader) {
  for (data::Leaf& leaf : element.leaves) {
    if (leaf.as<data::Row>() != nullptr) {
      const at::Tensor borrowed = data::detail::to_tensor(leaf);
      at::Tensor on_device = uploaded(borrowed, /*is_borrowed=*/true, uploader);
      if (data::detail::any_bus_error()) data::detail::check_read(leaf);
      // Replicas may write to their batches: on the CPU they get memory of their own.
      leaf = on_device.is_same(borrowed) ? data::detail::take_tensor(leaf) : std::move(on_device);
    } else if (auto* tensor = leaf.as<at::Tensor>()) {
      *tensor = uploaded(*tensor, /*is_borrowed=*/false, uploader);
    }
  }
}

}  // namespace

StepFeeder::StepFeeder(const DistributedInput& input, const data::Iteration& iteration)
    : buffer_size_(buffer_size_of(input.options)),
      repeats_(input.options.empty == EmptyBatch::Repeat),
      repeated_(input.num_workers > 1) {
  const std::vector<c10::Device> devices = input.devices();
  // First: page-locked memory belongs to the context of a GPU, and uploaders make those of their GPUs.
  for (const c10::Device device : devices) uploaders_.emplace_back(device, iteration.copier);
  for (const InputPipeline& pipeline : input.pipelines) readers_.emplace_back(pipeline, iteration);
  reads_here_ = buffer_size_ == 0 || !has_accelerator(devices);
}

StepFeeder::~StepFeeder() {
  if (!thread_.joinable()) return;
  queue_->close();
  thread_.join();
}

int64_t StepFeeder::skip(int64_t count) {
  const data::detail::SkipScope scope(data::detail::Skipped::Sound);
  int64_t skipped = 0;
  for (StepReader& reader : readers_) skipped = std::max(skipped, reader.skip(count));
  return skipped;
}

Step StepFeeder::next() {
  if (buffer_size_ == 0) return used(read());
  if (reads_here_) return read_here();
  if (!thread_.joinable()) start();
  UploadedStep step;
  if (take(step)) return used(std::move(step));
  // The thread has ended.
  if (repeats_) return used(read());
  step.step.elements.resize(uploaders_.size());
  return used(std::move(step));
}

Step StepFeeder::read_here() {
  const auto begin = std::chrono::steady_clock::now();
  UploadedStep step = read();
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
  average_seconds_ += kWeightOfOne * (std::min(time.count(), kLongestCounted) - average_seconds_);
  reads_here_ = average_seconds_ < kSlowSeconds;
  return used(std::move(step));
}

void StepFeeder::start() {
  queue_.emplace(static_cast<size_t>(buffer_size_));
  thread_ = std::thread([this, caller = at::ThreadLocalState()] {
    const at::ThreadLocalStateGuard state(caller);
    const ThreadShare share(1);
    trace::set_background_thread("input");
    while (push_next()) {
    }
    queue_->finish();
  });
}

bool StepFeeder::take(UploadedStep& step) {
  const trace::Span span(trace::Phase::Input, "wait for input");
  return queue_->pop(step);
}

bool StepFeeder::push_next() {
  UploadedStep step;
  try {
    step = read();
  } catch (...) {
    return queue_->push_exception(std::current_exception());
  }
  return step.step.has_data() && queue_->push(std::move(step));
}

StepFeeder::UploadedStep StepFeeder::read() {
  const trace::Span span(trace::Phase::Input, "read");
  UploadedStep result;
  {
    // Hides the placement of a replica. A dataset that is placed on a device, and a scope of the user, still count.
    const Placement on_the_host(std::nullopt);
    for (StepReader& reader : readers_) reader.prepare();  // all of them before any `read`: a reader may throw
    for (StepReader& reader : readers_) reader.read(result.step);
    if (repeats_) repeated_.fill(result.step);
  }
  const NoPlacement for_staging;
  for (size_t replica = 0; replica < uploaders_.size(); ++replica) {
    if (auto& element = result.step.elements[replica]) upload_element(*element, uploaders_[replica]);
    result.ready.push_back(uploaders_[replica].ready());
  }
  return result;
}

Step StepFeeder::used(UploadedStep uploaded) {
  for (size_t replica = 0; replica < uploaded.ready.size(); ++replica) {
    auto& element = uploaded.step.elements[replica];
    if (!element || !uploaded.ready[replica]) continue;
    for (data::Leaf& leaf : element->leaves) {
      if (const auto* tensor = leaf.as<at::Tensor>()) Uploader::use(*tensor, uploaded.ready[replica]);
    }
  }
  return std::move(uploaded.step);
}

}  // namespace lockstep::detail
