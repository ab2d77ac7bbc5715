#pragma once

#include <concepts>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/api.h"

/// Makes tf.Example and tf.SequenceExample messages.
///
///     data::ExampleBuilder example;
///     example.set("image", pixels).set("label", 3).set("weights", std::vector<float>{0.5F, 1.0F});
///     writer.write(example.serialize());
namespace lockstep::data {

/// Named lists of bytes, floats or integers. Setting a key again replaces its values. Keys are written in sorted order.
class LOCKSTEP_API ExampleBuilder {
 public:
  ExampleBuilder& set(std::string key, std::span<const int64_t> values);
  ExampleBuilder& set(std::string key, std::span<const float> values);
  ExampleBuilder& set(std::string key, std::span<const std::string> values);
  ExampleBuilder& set(std::string key, const std::vector<int64_t>& values) { return set(key, std::span(values)); }
  ExampleBuilder& set(std::string key, const std::vector<float>& values) { return set(key, std::span(values)); }
  ExampleBuilder& set(std::string key, const std::vector<std::string>& values) { return set(key, std::span(values)); }
  /// One value of bytes.
  ExampleBuilder& set(std::string key, std::string_view value);
  /// One number.
  template <std::integral T>
  ExampleBuilder& set(std::string key, T value) {
    const auto number = static_cast<int64_t>(value);
    return set(std::move(key), std::span<const int64_t>(&number, 1));
  }
  template <std::floating_point T>
  ExampleBuilder& set(std::string key, T value) {
    const auto number = static_cast<float>(value);
    return set(std::move(key), std::span<const float>(&number, 1));
  }

  /// Returns the tf.Example message.
  std::string serialize() const;

 private:
  friend class SequenceExampleBuilder;

  std::string features() const;

  std::map<std::string, std::string> features_;  // key to encoded Feature
};

/// A context, like an Example, and named lists of steps.
class LOCKSTEP_API SequenceExampleBuilder {
 public:
  ExampleBuilder& context() { return context_; }

  /// Appends a step to the list `key`; `values` is anything that `ExampleBuilder::set` takes.
  template <class Values>
  SequenceExampleBuilder& add_step(const std::string& key, const Values& values) {
    ExampleBuilder step;
    step.set(key, values);
    return append(key, step);
  }
  /// Adds an empty list `key` unless it exists.
  SequenceExampleBuilder& add_list(const std::string& key);

  /// Returns the tf.SequenceExample message.
  std::string serialize() const;

 private:
  SequenceExampleBuilder& append(const std::string& key, const ExampleBuilder& step);

  ExampleBuilder context_;
  std::map<std::string, std::string> lists_;  // key to encoded FeatureList
};

}  // namespace lockstep::data
