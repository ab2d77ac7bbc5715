#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include "lockstep/api.h"
#include "lockstep/data/element/function.h"
#include "lockstep/data/element/named.h"

/// Parses tf.Example messages into named tensors, as `tf.io.parse_single_example` does.
///
/// ```
/// auto train = data::tfrecords("train.tfrecord")
///                  .map(data::parse_example({{"image", data::Raw{torch::kUInt8, {28, 28}}},
///                                            {"label", data::FixedLen{torch::kLong}}}))
///                  .batch(256);
/// for (const data::Named& batch : train) model->forward(batch["image"]);
/// ```
///
/// Values stay in the record until `batch` copies them, or a tensor is requested. Keys of the message that are not
/// requested are skipped. A damaged message throws DataError; so does one whose features do not match, and that error
/// names the key, what was expected and what was found.
namespace lockstep::data {

/// A tensor of this shape; {} is one number. `dtype` is torch::kFloat or torch::kLong: Example has no others.
struct FixedLen {
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape = {};
  /// The value of a missing feature, of `shape` or one number for all values. Undefined: a missing feature is an error.
  at::Tensor default_value = {};
};

/// One value of bytes: becomes Bytes.
struct FixedLenBytes {
  /// The value of a missing feature; without one a missing feature is an error.
  std::optional<std::string> default_value = std::nullopt;
};

/// Any number of values, also none, or a missing feature: a tensor of one dimension. See `padded_batch`.
struct VarLen {
  at::ScalarType dtype = at::kFloat;
};

/// Any number of bytes values, also none: becomes List<Bytes>.
struct VarLenBytes {};

/// One value of bytes that is the memory of a tensor: little-endian, row-major. Any dtype.
struct Raw {
  at::ScalarType dtype = at::kByte;
  std::vector<int64_t> shape = {};
};

/// Any number of rows of `shape`: a tensor with one more dimension in front. In a sequence each step is one row.
struct FixedLenSequence {
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape = {};
  /// Whether a missing feature is a sequence of no rows; otherwise it is an error.
  bool allow_missing = false;
};

using Feature = std::variant<FixedLen, FixedLenBytes, VarLen, VarLenBytes, Raw, FixedLenSequence>;
using Features = std::map<std::string, Feature>;

/// Returns the function for `map` that reads the features of a tf.Example.
LOCKSTEP_API ElementMap<Named> parse_example(Features features);

/// Returns the function for `map` that reads the features of a tf.SequenceExample: `context` like those of an Example,
/// `sequence`, which are all FixedLenSequence, from its feature lists. The names of both must differ.
LOCKSTEP_API ElementMap<Named> parse_sequence_example(Features context, Features sequence);

}  // namespace lockstep::data
