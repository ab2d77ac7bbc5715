#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/data/element.h"

/// Inside: where a cache keeps its elements.
namespace lockstep::data::detail {

/// A complete cache. Any number of threads may read it.
class CacheContents {
 public:
  virtual ~CacheContents() = default;
  virtual int64_t size() const = 0;
  virtual void read(int64_t index, Element& element) const = 0;
};

/// Takes the elements of one iterator. What was not completed leaves nothing behind.
class CacheWriter {
 public:
  virtual ~CacheWriter() = default;
  virtual void add(const Element& element) = 0;
  virtual void complete() = 0;
};

/// What the iterators of one cache share. Any number of threads may use it.
class CacheStore {
 public:
  virtual ~CacheStore() = default;
  /// Returns the complete cache, or null as long as there is none.
  virtual std::shared_ptr<const CacheContents> contents() = 0;
  virtual std::unique_ptr<CacheWriter> writer() = 0;
};

/// Keeps elements in a file that says which pipeline made it: `description`.
std::shared_ptr<CacheStore> make_file_cache(std::string path, std::string description);

}  // namespace lockstep::data::detail
