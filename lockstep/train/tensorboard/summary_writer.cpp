#include "lockstep/train/tensorboard/summary_writer.h"

#include <array>
#include <atomic>
#include <filesystem>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/host_name.h"
#include "lockstep/data/formats/records/record_writer.h"
#include "lockstep/train/tensorboard/event_files.h"
#include "lockstep/train/tensorboard/event_message.h"
#include "lockstep/train/tensorboard/histogram.h"
#include "lockstep/train/tensorboard/summary_images.h"

namespace lockstep::tensorboard {
namespace {

using WriterClock = std::chrono::steady_clock;

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// A name that no other file of the folder has; TensorBoard reads files in the order of their names.
std::string event_file_name() {
  static std::atomic<int> number{0};
  std::array<char, 32> seconds{};
  std::snprintf(seconds.data(), seconds.size(), "%010lld", static_cast<long long>(wall_time()));
  std::array<char, 16> count{};
  std::snprintf(count.data(), count.size(), "%06d", number++);
  return c10::str("events.out.tfevents.", seconds.data(), ".", host_name(), ".", getpid(), ".", count.data());
}

std::string path_in(const std::string& folder, const std::string& suffix) {
  LOCKSTEP_CHECK_VALUE(!folder.empty(), "[SummaryWriter] the folder must have a name");
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  LOCKSTEP_CHECK_DATA(!error, "[SummaryWriter] the folder cannot be made: folder=", folder,
                      ", reason=", error.message());
  return (std::filesystem::path(folder) / (event_file_name() + suffix)).string();
}

void check_tag(std::string_view tag) { LOCKSTEP_CHECK_VALUE(!tag.empty(), "[SummaryWriter] a tag must not be empty"); }

}  // namespace

struct SummaryWriter::Impl {
  Impl(const std::string& folder, const SummaryWriterOptions& options)
      : first_record(encode_file_version(wall_time())),
        path(path_in(folder, options.filename_suffix)),
        file(path),
        open(path),
        flush_every(options.flush_every) {
    file.write(first_record);
    if (options.purge_step) file.write(encode_session_start(wall_time(), *options.purge_step));
    file.flush();
  }

  void write(int64_t step, const SummaryValue& value) {
    check_tag(value.tag);
    file.write(encode_event(wall_time(), step, value));
    if (WriterClock::now() - flushed_at >= flush_every) flush();
  }

  void flush() {
    file.flush();
    flushed_at = WriterClock::now();
  }

  /// Encoded before the file is made: a build that cannot encode makes none.
  std::string first_record;
  std::string path;
  data::RecordWriter file;
  OpenEventFile open;
  std::chrono::milliseconds flush_every;
  WriterClock::time_point flushed_at = WriterClock::now();
};

SummaryWriter::SummaryWriter(const std::string& folder, const SummaryWriterOptions& options)
    : impl_(std::make_unique<Impl>(folder, options)) {}

SummaryWriter::~SummaryWriter() = default;
SummaryWriter::SummaryWriter(SummaryWriter&&) noexcept = default;
SummaryWriter& SummaryWriter::operator=(SummaryWriter&&) noexcept = default;

void SummaryWriter::scalar(std::string_view tag, double value, int64_t step, std::string_view description) {
  impl_->write(step, {.tag = tag,
                      .plugin = "scalars",
                      .description = description,
                      .tensor = encode_scalar(static_cast<float>(value))});
}

void SummaryWriter::histogram(std::string_view tag, const at::Tensor& values, int64_t step, int64_t buckets) {
  LOCKSTEP_CHECK_VALUE(buckets >= 1, "[SummaryWriter::histogram] there must be at least 1 bucket: buckets=", buckets);
  LOCKSTEP_CHECK_VALUE(values.defined() && !values.is_complex(),
                       "[SummaryWriter::histogram] the values must be real numbers");
  impl_->write(step,
               {.tag = tag, .plugin = "histograms", .tensor = encode_doubles(histogram_buckets(values, buckets))});
}

void SummaryWriter::image(std::string_view tag, const at::Tensor& images, int64_t step, ImageLayout layout) {
  impl_->write(
      step,
      {.tag = tag, .plugin = "images", .tensor = encode_strings(encode_images(images, layout), /*is_scalar=*/false)});
}

void SummaryWriter::text(std::string_view tag, const std::string& markdown, int64_t step) {
  impl_->write(step, {.tag = tag, .plugin = "text", .tensor = encode_strings({markdown}, /*is_scalar=*/true)});
}

void SummaryWriter::hyper_parameters(const HyperParameters& parameters, const std::vector<ShownMetric>& metrics) {
  const double time = wall_time();
  if (!metrics.empty()) {
    impl_->write(0, {.tag = "_hparams_/experiment",
                     .plugin = "hparams",
                     .plugin_content = encode_experiment(time, parameters, metrics),
                     .tensor = encode_no_tensor()});
  }
  impl_->write(0, {.tag = "_hparams_/session_start_info",
                   .plugin = "hparams",
                   .plugin_content = encode_session_start_info(time, parameters),
                   .tensor = encode_no_tensor()});
  impl_->flush();
}

void SummaryWriter::session_end(SessionStatus status) {
  impl_->write(0, {.tag = "_hparams_/session_end_info",
                   .plugin = "hparams",
                   .plugin_content = encode_session_end_info(wall_time(), status),
                   .tensor = encode_no_tensor()});
}

void SummaryWriter::flush() { impl_->flush(); }

void SummaryWriter::close() { impl_->file.close(); }

const std::string& SummaryWriter::path() const { return impl_->path; }

}  // namespace lockstep::tensorboard
