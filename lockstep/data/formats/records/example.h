#pragma once

#include <cstdint>
#include <ostream>
#include <span>
#include <string>
#include <string_view>

#include <c10/util/Exception.h>  // what FunctionRef.h fails to include
#include <c10/util/FunctionRef.h>

#include "lockstep/api.h"
#include "lockstep/data/element/bytes.h"

/// Reads tf.Example and tf.SequenceExample messages in place. example_builder.h writes them.
///
///     data::parse_features(record, [&](std::string_view key, const data::FeatureValues& values) {
///       if (key == "image") image = values.first();
///       if (key == "label") values.read(std::span(&label, 1));
///     });
///
/// All that protocol buffers allow is read: packed and unpacked lists, messages in several parts, which are merged, and
/// unknown fields, which are skipped. An invalid message throws DataError that names the offset. Built without
/// protozero, everything here throws c10::NotImplementedError.
namespace lockstep::data {

enum class FeatureKind {
  /// The key exists without values.
  None,
  Bytes,
  Float,
  Int64,
};

/// Prints "nothing", "bytes", "float" or "int64".
LOCKSTEP_API std::ostream& operator<<(std::ostream& out, FeatureKind kind);

namespace detail {
struct FeatureWalk;
}

/// The values of one key: a view that is valid during the visitor's call. Results of `first` and `share` stay valid.
class LOCKSTEP_API FeatureValues {
 public:
  FeatureKind kind() const { return kind_; }
  /// How many values there are.
  size_t size() const { return size_; }

  /// The floats in the message, little-endian and unaligned, where they are packed in one piece, as all common writers
  /// do; otherwise, and for other kinds, empty.
  std::string_view packed_floats() const { return packed_floats_; }

  /// Copies all values. `out` has `size()` elements, and `kind()` is its type.
  void read(std::span<float> out) const;
  void read(std::span<int64_t> out) const;

  /// Calls `visit` with each bytes value.
  void for_each(c10::function_ref<void(std::string_view)> visit) const;
  /// Returns the first bytes value, in the memory of the message. There must be one.
  Bytes first() const { return share(first_); }
  /// Returns a value of `for_each`, in the memory of the message.
  Bytes share(std::string_view value) const { return {owner_->buffer(), value}; }

 private:
  friend struct detail::FeatureWalk;

  FeatureKind kind_ = FeatureKind::None;
  size_t size_ = 0;
  std::string_view list_;  // a BytesList, FloatList or Int64List message
  std::string_view packed_floats_;
  std::string_view first_;
  const Bytes* owner_ = nullptr;  // the memory that list_ lies in
  const Bytes* message_ = nullptr;
};

/// The steps of one key of a tf.SequenceExample: a view, like FeatureValues.
class LOCKSTEP_API FeatureSteps {
 public:
  /// How many steps there are.
  size_t size() const { return size_; }
  void for_each(c10::function_ref<void(const FeatureValues&)> visit) const;

 private:
  friend struct detail::FeatureWalk;

  std::string_view list_;  // a FeatureList message
  size_t size_ = 0;
  const Bytes* owner_ = nullptr;
  const Bytes* message_ = nullptr;
};

using FeatureVisitor = c10::function_ref<void(std::string_view key, const FeatureValues& values)>;
using StepsVisitor = c10::function_ref<void(std::string_view key, const FeatureSteps& steps)>;

/// Calls `visit` with each key of a tf.Example in the order of the message. A repeated key is visited again, and
/// the last one is valid.
LOCKSTEP_API void parse_features(const Bytes& example, FeatureVisitor visit);

/// Calls `visit_context` with each key of a tf.SequenceExample's context, and `visit_steps` with each of its lists.
LOCKSTEP_API void parse_sequence(const Bytes& example, FeatureVisitor visit_context, StepsVisitor visit_steps);

}  // namespace lockstep::data
