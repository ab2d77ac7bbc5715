#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/data/element/element.h"

/// Internal: the storage of a cache.
namespace lockstep::data::detail {

/// A complete cache. Any number of threads may read it.
class CacheContents {
 public:
  virtual ~CacheContents() = default;
  virtual int64_t size() const = 0;
  virtual void read(int64_t index, Element& element) const = 0;
};

/// Stores the elements of one iterator. Without `complete` nothing remains.
class CacheWriter {
 public:
  virtual ~CacheWriter() = default;
  /// Stores the element, whose leaves may then share the memory of what is stored.
  virtual void add(Element& element) = 0;
  virtual void complete() = 0;
};

/// The state that all iterators of one cache share. Any number of threads may use it.
class CacheStore {
 public:
  virtual ~CacheStore() = default;
  /// Returns the complete cache, or null before it is complete.
  virtual std::shared_ptr<const CacheContents> contents() = 0;
  virtual std::unique_ptr<CacheWriter> writer() = 0;
};

/// Stores elements in a file; `description` is the pipeline that makes them, and the file of another one is an error.
std::shared_ptr<CacheStore> make_file_cache(std::string path, std::string description);

}  // namespace lockstep::data::detail
