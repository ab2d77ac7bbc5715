#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include <c10/util/intrusive_ptr.h>

#include "lockstep/data/element/element.h"

/// Internal: the format of a cache file.
///
///   - header: magic, version, length of the description, description, checksum of all that;
///   - records, one for each element: its layout and its leaves; tensors lie aligned, so that they are used in place;
///   - index: for each record its offset, length and checksum; then the seeds that the elements depend on;
///   - trailer: offset of the index, number of records, checksum of the index, number of seeds, magic.
///
/// Numbers have the byte order of the processor: a cache belongs to one machine.
namespace lockstep::data::detail {

constexpr std::array<char, 8> kCacheMagic{'L', 'S', 'C', 'A', 'C', 'H', 'E', '\n'};
constexpr uint32_t kCacheVersion = 2;

struct CacheIndexEntry {
  uint64_t offset;
  uint64_t size;
  uint32_t checksum;
  uint32_t unused;
};

struct CacheTrailer {
  uint64_t index_offset;
  uint64_t num_records;
  uint32_t checksum;
  uint32_t num_seeds;
  std::array<char, 8> magic;
};

/// Returns the header of a cache of the pipeline.
std::string cache_header(const std::string& description);

/// Returns the record of an element, to be written at `offset` of the file. Throws TypeError for values of users'
/// types, and ValueError for tensors that are not dense and on the CPU.
std::string cache_record(const Element& element, uint64_t offset);

/// Reads the record at `offset` of the file. Tensors and bytes point into the file. Throws DataError.
void read_cache_record(const c10::intrusive_ptr<Buffer>& file, const CacheIndexEntry& entry, const std::string& path,
                       Element& element);

[[noreturn]] void fail_cache_file(const std::string& path, uint64_t offset, const std::string& what);

}  // namespace lockstep::data::detail
