#include "lockstep/data/formats/records/example.h"

#include <algorithm>
#include <cstring>
#include <optional>

#define PROTOZERO_USE_VIEW std::string_view
#include <protozero/pbf_reader.hpp>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace detail {
namespace {

using protozero::pbf_reader;
using protozero::pbf_wire_type;

// The fields of tensorflow/core/example/{example,feature}.proto.
constexpr uint32_t kFirst = 1;  // Example.features, Features.feature, every list's value, key of an entry, context
constexpr uint32_t kEntryValue = 2;
constexpr uint32_t kFeatureLists = 2;

constexpr uint32_t message_field(uint32_t tag) { return tag_and_type(tag, pbf_wire_type::length_delimited); }
constexpr uint32_t kUnpackedFloat = tag_and_type(kFirst, pbf_wire_type::fixed32);
constexpr uint32_t kUnpackedInt64 = tag_and_type(kFirst, pbf_wire_type::varint);

}  // namespace

// One walk over a message. `at` is where the field begins that is looked at, for messages about errors.
struct FeatureWalk {
  const Bytes& message;
  const char* at = nullptr;

  bool advance(pbf_reader& reader) {
    at = reader.data().data();
    return reader.next();
  }

  // Calls `visit` with each field `wanted` that holds a message or bytes; passes over all others.
  template <class Visit>
  void each(std::string_view data, uint32_t wanted, Visit&& visit) {
    pbf_reader reader(data);
    while (advance(reader)) {
      if (reader.tag_and_type() == message_field(wanted)) {
        visit(reader.get_view());
      } else {
        reader.skip();
      }
    }
  }

  // Calls `visit` with the key and the value of each entry of a map. A value in several pieces is merged, which for
  // encoded messages means one after the other.
  template <class Visit>
  void each_entry(std::string_view map, Visit&& visit) {
    each(map, kFirst, [&](std::string_view entry) {
      std::string_view key;
      Pieces value;
      pbf_reader reader(entry);
      while (advance(reader)) {
        if (reader.tag_and_type() == message_field(kFirst)) {
          key = reader.get_view();
        } else if (reader.tag_and_type() == message_field(kEntryValue)) {
          value.add(reader.get_view());
        } else {
          reader.skip();
        }
      }
      visit(key, value.view, value.merged ? *value.merged : message);
    });
  }

  // A message in one piece or, rarely, several.
  struct Pieces {
    std::string_view view;
    std::optional<Bytes> merged;
    bool any = false;

    void add(std::string_view piece) {
      if (any) {
        merged = Bytes(std::string(view).append(piece));
        view = merged->view();
      } else {
        view = piece;
      }
      any = true;
    }
  };

  template <class Visit>
  void feature(std::string_view data, const Bytes& owner, Visit&& visit) {
    Pieces list;
    FeatureValues values;
    pbf_reader reader(data);
    while (advance(reader)) {
      const FeatureKind kind = kind_of(reader.tag_and_type());
      if (kind == FeatureKind::None) {
        reader.skip();
        continue;
      }
      if (kind != values.kind_) list = {};  // of several kinds the last one counts
      values.kind_ = kind;
      list.add(reader.get_view());
    }
    values.list_ = list.view;
    values.owner_ = list.merged ? &*list.merged : &owner;
    values.message_ = &message;
    survey(values);
    visit(values);
  }

  static FeatureKind kind_of(uint32_t field) {
    if (field == message_field(1)) return FeatureKind::Bytes;
    if (field == message_field(2)) return FeatureKind::Float;
    return field == message_field(3) ? FeatureKind::Int64 : FeatureKind::None;
  }

  // Counts the values.
  void survey(FeatureValues& values) {
    size_t fields = 0;
    pbf_reader reader(values.list_);
    while (values.kind_ != FeatureKind::None && advance(reader)) {
      const uint32_t field = reader.tag_and_type();
      if (field == message_field(kFirst)) {
        ++fields;
        survey_field(values, reader.get_view());
      } else {
        const bool counts = (values.kind_ == FeatureKind::Float && field == kUnpackedFloat) ||
                            (values.kind_ == FeatureKind::Int64 && field == kUnpackedInt64);
        values.size_ += counts ? 1 : 0;
        fields += counts ? 1 : 0;
        reader.skip();
      }
    }
    if (fields != 1) values.packed_floats_ = {};
  }

  void survey_field(FeatureValues& values, std::string_view data) {
    if (values.kind_ == FeatureKind::Bytes) {
      if (values.size_++ == 0) values.first_ = data;
    } else if (values.kind_ == FeatureKind::Float) {
      if (data.size() % sizeof(float) != 0) fail("the length of packed floats is no multiple of 4");
      values.packed_floats_ = data;
      values.size_ += data.size() / sizeof(float);
    } else {
      if (!data.empty() && (data.back() & 0x80) != 0) fail("the last of packed numbers is truncated");
      values.size_ += std::count_if(data.begin(), data.end(), [](char c) { return (c & 0x80) == 0; });
    }
  }

  // Calls `visit` with the payload of each packed piece, or `single` with the reader at each single value.
  template <class Packed, class Single>
  void each_value(std::string_view list, uint32_t unpacked, Packed&& packed, Single&& single) {
    pbf_reader reader(list);
    while (advance(reader)) {
      if (reader.tag_and_type() == message_field(kFirst)) {
        packed(reader.get_view());
      } else if (reader.tag_and_type() == unpacked) {
        single(reader);
      } else {
        reader.skip();
      }
    }
  }

  void steps(std::string_view key, std::string_view list, const Bytes& owner, StepsVisitor visit) {
    FeatureSteps steps;
    steps.list_ = list;
    steps.owner_ = &owner;
    steps.message_ = &message;
    each(list, kFirst, [&](std::string_view) { ++steps.size_; });
    visit(key, steps);
  }

  void features(std::string_view map, FeatureVisitor visit) {
    each_entry(map, [&](std::string_view key, std::string_view value, const Bytes& owner) {
      feature(value, owner, [&](const FeatureValues& values) { visit(key, values); });
    });
  }

  [[noreturn]] void fail(const char* reason) const {
    const std::string_view all = message.view();
    const bool inside = at >= all.data() && at <= all.data() + all.size();
    LOCKSTEP_THROW(DataError, "[parse_example] the message must be a sound tf.Example: byte=",
                   inside ? std::to_string(at - all.data()) : "unknown", ", bytes=", all.size(), " (", reason, ")");
  }
};

namespace {

// Turns protozero's errors into ours. What a visitor throws goes through.
template <class F>
void walk(const Bytes& message, F&& body) {
  FeatureWalk walk{message};
  try {
    body(walk);
  } catch (const protozero::exception& error) {
    walk.fail(error.what());
  }
}

}  // namespace
}  // namespace detail

void FeatureValues::read(std::span<float> out) const {
  LOCKSTEP_CHECK_VALUE(kind_ == FeatureKind::Float && out.size() >= size_,
                       "[parse_example] values are read as what they are: kind=", kind_, ", values=", size_,
                       ", room=", out.size());
  float* next = out.data();
  detail::walk(*message_, [&](detail::FeatureWalk& walk) {
    walk.each_value(
        list_, detail::kUnpackedFloat,
        [&](std::string_view packed) {
          if (!packed.empty()) std::memcpy(next, packed.data(), packed.size());
          next += packed.size() / sizeof(float);
        },
        [&](protozero::pbf_reader& reader) { *next++ = reader.get_float(); });
  });
}

void FeatureValues::read(std::span<int64_t> out) const {
  LOCKSTEP_CHECK_VALUE(kind_ == FeatureKind::Int64 && out.size() >= size_,
                       "[parse_example] values are read as what they are: kind=", kind_, ", values=", size_,
                       ", room=", out.size());
  int64_t* next = out.data();
  detail::walk(*message_, [&](detail::FeatureWalk& walk) {
    walk.each_value(
        list_, detail::kUnpackedInt64,
        [&](std::string_view packed) {
          const char* end = packed.data() + packed.size();
          for (const char* at = packed.data(); at != end;) {
            walk.at = at;
            *next++ = static_cast<int64_t>(protozero::decode_varint(&at, end));
          }
        },
        [&](protozero::pbf_reader& reader) { *next++ = reader.get_int64(); });
  });
}

void FeatureValues::for_each(c10::function_ref<void(std::string_view)> visit) const {
  if (kind_ != FeatureKind::Bytes) return;
  detail::walk(*message_, [&](detail::FeatureWalk& walk) { walk.each(list_, detail::kFirst, visit); });
}

void FeatureSteps::for_each(c10::function_ref<void(const FeatureValues&)> visit) const {
  detail::walk(*message_, [&](detail::FeatureWalk& walk) {
    walk.each(list_, detail::kFirst, [&](std::string_view feature) { walk.feature(feature, *owner_, visit); });
  });
}

void parse_features(const Bytes& example, FeatureVisitor visit) {
  detail::walk(example, [&](detail::FeatureWalk& walk) {
    walk.each(example.view(), detail::kFirst, [&](std::string_view features) { walk.features(features, visit); });
  });
}

void parse_sequence(const Bytes& example, FeatureVisitor visit_context, StepsVisitor visit_steps) {
  detail::walk(example, [&](detail::FeatureWalk& walk) {
    walk.each(example.view(), detail::kFirst, [&](std::string_view context) { walk.features(context, visit_context); });
    walk.each(example.view(), detail::kFeatureLists, [&](std::string_view lists) {
      walk.each_entry(lists, [&](std::string_view key, std::string_view list, const Bytes& owner) {
        walk.steps(key, list, owner, visit_steps);
      });
    });
  });
}

}  // namespace lockstep::data
