#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/api.h"
#include "lockstep/train/tensorboard/hyper_parameters.h"
#include "lockstep/train/tensorboard/image_layout.h"

/// Files for TensorBoard, without TensorFlow.
///
///     tensorboard::SummaryWriter writer("logs/first");
///     writer.scalar("loss", 0.5, step);
///     writer.histogram("weights", model->weight, step);
///     writer.close();
///
/// `tensorboard --logdir logs` shows them.
namespace lockstep::tensorboard {

struct SummaryWriterOptions {
  /// A value that comes so long after the last flush flushes all.
  std::chrono::milliseconds flush_every = std::chrono::minutes(2);
  /// Values of this step and later ones in older files of the folder are not valid: a training that goes on after step
  /// N gives N + 1. Nothing: all are.
  std::optional<int64_t> purge_step = std::nullopt;
  /// What the name of the file ends with.
  std::string filename_suffix = {};
};

/// Writes one event file, `events.out.tfevents.<time>.<host>.<pid>.<number>`. Steps are numbers of updates. Tags with
/// slashes are shown in groups. One thread at a time may use it. Errors of the system are DataError with the path.
///
/// What was flushed can be read while the file grows and after a kill: `flush`, `close`, and after `flush_every`.
class LOCKSTEP_API SummaryWriter {
 public:
  /// Makes the folder, where there is none, and the file. NotImplementedError in a build without protozero.
  explicit SummaryWriter(const std::string& folder, const SummaryWriterOptions& options = {});
  /// Closes the file and ignores errors; call `close` to see them.
  ~SummaryWriter();
  SummaryWriter(SummaryWriter&&) noexcept;
  SummaryWriter& operator=(SummaryWriter&&) noexcept;

  /// A point of a curve, as float32. `description`, in Markdown, is shown with the first value of a tag.
  void scalar(std::string_view tag, double value, int64_t step, std::string_view description = {});

  /// How the values of a tensor are distributed over buckets of one width. Values that are not finite are left out.
  void histogram(std::string_view tag, const at::Tensor& values, int64_t step, int64_t buckets = 30);

  /// An image or a batch of them with 1 (gray), 2 (gray and alpha), 3 or 4 channels: uint8, or floating point from 0 to
  /// 1; what is outside is cut off. NotImplementedError in a build without libpng.
  void image(std::string_view tag, const at::Tensor& images, int64_t step, ImageLayout layout = ImageLayout::Auto);

  /// Markdown.
  void text(std::string_view tag, const std::string& markdown, int64_t step);

  /// Adds the training to the HParams page. Once, at its beginning. The page shows the parameters of all trainings and
  /// the last values of all scalars; where a training names metrics, only these and its own parameters.
  void hyper_parameters(const HyperParameters& parameters, const std::vector<ShownMetric>& metrics = {});
  /// How it ended.
  void session_end(SessionStatus status);

  /// Writes all values to the file: TensorBoard sees them.
  void flush();
  /// Completes the file. Later calls do nothing; nothing may be written afterwards.
  void close();

  const std::string& path() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::tensorboard
