#include <atomic>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <optional>
#include <vector>

#include "lockstep/base/crc32c.h"
#include "lockstep/base/error.h"
#include "lockstep/data/element/bus_errors.h"
#include "lockstep/data/element/mapped_file.h"
#include "lockstep/data/formats/stream/files.h"
#include "lockstep/data/transforms/buffering/cache_record.h"
#include "lockstep/data/transforms/buffering/cache_store.h"

namespace lockstep::data::detail {
namespace {

template <class T>
std::string_view as_bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

uint32_t checksum_of(const std::vector<CacheIndexEntry>& index, const std::vector<CacheSeed>& seeds) {
  return crc32c(as_bytes(seeds), crc32c(as_bytes(index)));
}

class FileWriter final : public CacheWriter {
 public:
  FileWriter(const std::string& path, const std::string& description) : file_(path, "cache") {
    file_.write(cache_header(description));
  }

  void add(Element& element) override {
    const uint64_t offset = file_.position();
    const std::string record = cache_record(element, offset);
    index_.push_back({offset, record.size(), crc32c(record), 0});
    file_.write(record);
  }

  void complete(std::vector<CacheSeed> seeds) override {
    const CacheTrailer trailer{file_.position(), index_.size(), checksum_of(index_, seeds),
                               static_cast<uint32_t>(seeds.size()), kCacheMagic};
    file_.write(as_bytes(index_));
    file_.write(as_bytes(seeds));
    file_.write({reinterpret_cast<const char*>(&trailer), sizeof(trailer)});
    file_.complete();
  }

 private:
  AtomicFile file_;
  std::vector<CacheIndexEntry> index_;
};

/// A mapped cache file. Records are checked when they are first read.
class FileContents final : public CacheContents {
 public:
  FileContents(std::string path, const std::string& description)
      : path_(std::move(path)), file_(map_pages(path_, "cache", MapMode::Random)) {
    check_header(description);
    read_index();
    checked_ = std::vector<std::atomic<bool>>(index_.size());
  }

  int64_t size() const override { return static_cast<int64_t>(index_.size()); }
  const std::vector<CacheSeed>& seeds() const override { return seeds_; }

  void read(int64_t index, Element& element) const override {
    const CacheIndexEntry& entry = index_[static_cast<size_t>(index)];
    if (!checked_[static_cast<size_t>(index)].exchange(true, std::memory_order_relaxed)) {
      const std::string_view record(file_->data() + entry.offset, entry.size);
      const bool whole = crc32c(record) == entry.checksum;
      if (any_bus_error()) file_->check();
      checked_[static_cast<size_t>(index)].store(whole, std::memory_order_relaxed);
      if (!whole) fail_cache_file(path_, entry.offset, c10::str("element ", index, " has a wrong checksum"));
    }
    read_cache_record(file_, entry, path_, element);
  }

 private:
  template <class T>
  T value_at(uint64_t offset) const {
    if (offset > file_->size() || sizeof(T) > file_->size() - offset) fail_cache_file(path_, offset, "it ends there");
    T value;
    std::memcpy(&value, file_->data() + offset, sizeof(T));
    return value;
  }

  void check_header(const std::string& description) const {
    if (value_at<std::array<char, 8>>(0) != kCacheMagic) fail_cache_file(path_, 0, "it begins with other bytes");
    const auto version = value_at<uint32_t>(kCacheMagic.size());
    LOCKSTEP_CHECK_DATA(version == kCacheVersion,
                        "[cache] the file was written by another version of lockstep: file=\"", path_,
                        "\", version=", version, ", readable=", kCacheVersion, "; delete it");
    constexpr uint64_t kTextOffset = kCacheMagic.size() + sizeof(kCacheVersion) + sizeof(uint64_t);
    const auto length = value_at<uint64_t>(kTextOffset - sizeof(uint64_t));
    if (length > file_->size() - kTextOffset) fail_cache_file(path_, kTextOffset, "it ends inside its header");
    const std::string_view header(file_->data(), kTextOffset + length);
    if (value_at<uint32_t>(header.size()) != crc32c(header))
      fail_cache_file(path_, 0, "a wrong checksum of the header");
    const std::string_view found = header.substr(kTextOffset);
    LOCKSTEP_CHECK_DATA(found == description, "[cache] the file was written by another pipeline: file=\"", path_,
                        "\", written by ", found, ", read by ", description,
                        "; delete it, or give this pipeline a file of its own");
  }

  template <class T>
  void read_values(uint64_t offset, uint64_t count, std::vector<T>& values) const {
    values.resize(count);
    if (count > 0) std::memcpy(values.data(), file_->data() + offset, count * sizeof(T));
  }

  void read_index() {
    if (file_->size() < sizeof(CacheTrailer)) fail_cache_file(path_, file_->size(), "it has no index");
    const uint64_t end = file_->size() - sizeof(CacheTrailer);
    const auto trailer = value_at<CacheTrailer>(end);
    if (trailer.magic != kCacheMagic) fail_cache_file(path_, end, "it does not end as a cache does");
    const uint64_t seed_bytes = trailer.num_seeds * sizeof(CacheSeed);
    const bool fits = trailer.index_offset <= end && trailer.num_records <= end / sizeof(CacheIndexEntry) &&
                      end - trailer.index_offset == trailer.num_records * sizeof(CacheIndexEntry) + seed_bytes;
    if (!fits) fail_cache_file(path_, end, "an index of another size");
    read_values(trailer.index_offset, trailer.num_records, index_);
    read_values(end - seed_bytes, trailer.num_seeds, seeds_);
    if (checksum_of(index_, seeds_) != trailer.checksum) {
      fail_cache_file(path_, trailer.index_offset, "a wrong checksum of the index");
    }
    for (const CacheIndexEntry& entry : index_) {
      const bool inside = entry.offset <= trailer.index_offset && entry.size <= trailer.index_offset - entry.offset;
      if (!inside) fail_cache_file(path_, trailer.index_offset, "a record beyond the index");
    }
  }

  std::string path_;
  c10::intrusive_ptr<Buffer> file_;
  std::vector<CacheIndexEntry> index_;
  std::vector<CacheSeed> seeds_;
  mutable std::vector<std::atomic<bool>> checked_;
};

class FileStore final : public CacheStore {
 public:
  FileStore(std::string path, std::string description) : path_(std::move(path)), description_(std::move(description)) {}

  std::shared_ptr<const CacheContents> contents() override {
    const std::lock_guard lock(mutex_);
    if (!contents_ && std::filesystem::exists(path_)) contents_ = std::make_shared<FileContents>(path_, description_);
    return contents_;
  }
  std::unique_ptr<CacheWriter> writer() override { return std::make_unique<FileWriter>(path_, description_); }

 private:
  std::string path_;
  std::string description_;
  std::mutex mutex_;
  std::shared_ptr<const CacheContents> contents_;
};

}  // namespace

std::shared_ptr<CacheStore> make_file_cache(std::string path, std::string description) {
  return std::make_shared<FileStore>(std::move(path), std::move(description));
}

}  // namespace lockstep::data::detail
