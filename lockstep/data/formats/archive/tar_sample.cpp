#include <algorithm>
#include <exception>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/formats/archive/tar.h"
#include "lockstep/data/formats/skip_one_by_one.h"

namespace lockstep::data {
namespace {

// Splits "a/b.seg.png" into "a/b" and "seg.png"; returns whether the name has both.
bool split_name(const std::string& name, std::string& key, std::string& extension) {
  const size_t slash = name.rfind('/');
  const size_t last_part = slash == std::string::npos ? 0 : slash + 1;
  const size_t dot = name.find('.', last_part);
  if (dot == std::string::npos || dot == last_part) return false;
  key = name.substr(0, dot);
  extension = name.substr(dot + 1);
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return true;
}

}  // namespace

TarSampleReader::TarSampleReader(const std::string& path, FileAccess access)
    : TarSampleReader(TarReader(path, access)) {}
TarSampleReader::TarSampleReader(TarReader reader) : reader_(std::move(reader)) {}

// Reads the next file that belongs to a sample.
bool TarSampleReader::read_entry() {
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  pending_ = false;
  while (!pending_ && reader_.next(entry_)) pending_ = split_name(entry_.name, key_, extension_);
  return pending_;
}

bool TarSampleReader::has_kinds_of_last(const TarSample& sample) const {
  return std::equal(sample.files.begin(), sample.files.end(), last_kinds_.begin(), last_kinds_.end(),
                    [](const auto& file, const std::string& kind) { return file.first == kind; });
}

// Whether the next file belongs to the sample. An error behind a complete sample is kept for the next call.
bool TarSampleReader::goes_on(const TarSample& sample) {
  entry_.name.clear();
  try {
    return read_entry() && key_ == sample.key;
  } catch (const std::exception&) {
    // The name is known where the contents are damaged, and unknown where the header is.
    const bool is_known = split_name(entry_.name, key_, extension_);
    if (is_known ? key_ == sample.key : !has_kinds_of_last(sample)) throw;
    error_ = std::current_exception();
    return false;
  }
}

bool TarSampleReader::next(TarSample& sample) {
  if (!pending_ && !read_entry()) return false;
  sample.key = key_;
  sample.files.clear();
  std::string damage;
  do {
    const bool added = sample.files.emplace(extension_, std::move(entry_.contents)).second;
    if (!added && damage.empty()) {
      damage = c10::str("[tar] a sample must have one file of a kind: key=\"", key_, "\", kind=\"", extension_,
                        "\", offset=", entry_.offset);
    }
  } while (goes_on(sample));
  if (!has_kinds_of_last(sample)) {
    last_kinds_.clear();
    for (const auto& file : sample.files) last_kinds_.push_back(file.first);
  }
  LOCKSTEP_CHECK_DATA(damage.empty(), damage);
  return true;
}

int64_t TarSampleReader::skip(int64_t count) {
  LOCKSTEP_CHECK_VALUE(count >= 0, "[tar] a count must not be negative: count=", count);
  TarSample passed;
  return detail::skip_one_by_one(count, [&] { return next(passed); });
}

}  // namespace lockstep::data
