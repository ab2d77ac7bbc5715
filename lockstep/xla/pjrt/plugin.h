#pragma once

#include <string>

#include "lockstep/xla/pjrt/c_api.h"

namespace lockstep::xla {

/// An opened plugin: calls functions of its table, and turns its errors into exceptions. Thread-safe.
class Plugin {
 public:
  /// Opens and initializes the file at the first call. A plugin owns threads and is never closed.
  static const Plugin& load(const std::string& path);

  const std::string& path() const { return path_; }
  std::string version() const;
  /// What dlopen returned.
  void* module() const { return module_; }

  /// Calls the function; throws c10::Error "[xla operation] ..." with the plugin's own text on failure.
  template <typename Arguments>
  void call(c_api::Slot slot, c_api::Block<Arguments>& block, const char* operation) const {
    raise(function(slot, operation)(block.get()), operation);
  }

  /// Asks an object for a text.
  std::string text(c_api::Slot slot, const void* object, const char* operation) const;
  /// Asks an object for another one.
  void* object(c_api::Slot slot, void* object, const char* operation) const;

  /// Waits for the event, which may be null, and destroys it.
  void await(void* event, const char* operation) const;

  /// Destroys the object, which may be null.
  void destroy(c_api::Slot slot, void* object) const noexcept;

 private:
  Plugin(std::string path, void* module, const c_api::Table* table);
  static Plugin open(const std::string& path);
  bool has(c_api::Slot slot) const;
  c_api::Function function(c_api::Slot slot, const char* operation) const;
  /// Throws the error, if it is one, and destroys it.
  void raise(void* error, const char* operation) const;

  std::string path_;
  void* module_;
  const c_api::Table* table_;
};

}  // namespace lockstep::xla
