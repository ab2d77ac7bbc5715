#pragma once

#include <cstdint>
#include <ostream>
#include <span>
#include <string>
#include <string_view>

#include <c10/util/Exception.h>  // what FunctionRef.h fails to include
#include <c10/util/FunctionRef.h>

#include "lockstep/api.h"
#include "lockstep/data/bytes.h"

/// tf.Example and tf.SequenceExample as they lie in records: walked without a copy. example_builder.h makes them.
///
///     data::parse_features(record, [&](std::string_view key, const data::FeatureValues& values) {
///       if (key == "image") image = values.first();
///       if (key == "label") values.read(std::span(&label, 1));
///     });
///
/// What protocol buffers allow is read: lists packed or not, parts of a message in several pieces, which are merged,
/// fields that are not known, which are passed over. Whatever is no sound message throws DataError that names the byte.
/// Without protozero at build time everything here throws c10::NotImplementedError.
namespace lockstep::data {

enum class FeatureKind {
  /// The key is there, but nothing was set.
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

/// The values of one key: a view, good as long as the visitor's call lasts. What `first` and `share` return keeps.
class LOCKSTEP_API FeatureValues {
 public:
  FeatureKind kind() const { return kind_; }
  /// How many values there are.
  size_t size() const { return size_; }

  /// The floats as they lie in the message, little-endian and not aligned, where they are packed in one piece as all
  /// common writers have them; otherwise, and for other kinds, nothing.
  std::string_view packed_floats() const { return packed_floats_; }

  /// Copies all values; `out` has room for `size()` of them, and the kind is the one asked for.
  void read(std::span<float> out) const;
  void read(std::span<int64_t> out) const;

  /// Calls with each bytes value in turn.
  void for_each(c10::function_ref<void(std::string_view)> visit) const;
  /// Returns the first bytes value, in the memory of the message. There is one.
  Bytes first() const { return share(first_); }
  /// Returns a value that `for_each` gave, in the memory of the message.
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

/// The steps of one key of a tf.SequenceExample, each with values of its own: a view as FeatureValues is.
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

/// Calls `visit` with each key of a tf.Example in the order of the message. A key that comes twice is visited twice,
/// and the last one counts.
LOCKSTEP_API void parse_features(const Bytes& example, FeatureVisitor visit);

/// Calls `visit_context` with each key of a tf.SequenceExample's context, and `visit_steps` with each of its lists.
LOCKSTEP_API void parse_sequence(const Bytes& example, FeatureVisitor visit_context, StepsVisitor visit_steps);

}  // namespace lockstep::data
