#include "lockstep/data/formats/tar.h"

#include <algorithm>
#include <archive.h>
#include <archive_entry.h>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

// Memory is taken ahead for entries up to this size; a damaged header may name any.
constexpr size_t kMaxReserved = size_t{64} << 20;

class TextBuffer final : public Buffer {
 public:
  explicit TextBuffer(std::string text) : text_(std::move(text)) {}
  const char* data() const override { return text_.data(); }
  size_t size() const override { return text_.size(); }

 private:
  std::string text_;
};

Bytes owning(std::string text) {
  auto buffer = c10::make_intrusive<TextBuffer>(std::move(text));
  const std::string_view view(buffer->data(), buffer->size());
  return {std::move(buffer), view};
}

}  // namespace

class TarReader::Archive {
 public:
  Archive(Bytes contents, std::string where)
      : contents_(std::move(contents)), where_(std::move(where)), archive_(archive_read_new(), archive_read_free) {
    LOCKSTEP_CHECK_DATA(archive_ != nullptr, "[tar] libarchive could not be started: ", where_);
    archive_read_support_format_tar(archive_.get());
    for (const auto support :
         {archive_read_support_filter_gzip, archive_read_support_filter_zstd, archive_read_support_filter_xz,
          archive_read_support_filter_bzip2, archive_read_support_filter_lz4}) {
      support(archive_.get());
    }
    if (archive_read_open_memory(archive_.get(), contents_.data(), contents_.size()) != ARCHIVE_OK) fail("");
  }

  bool next(TarEntry& entry) {
    if (!failure_.empty()) throw_failure();
    while (!ended_) {
      archive_entry* header = nullptr;
      const int code = archive_read_next_header(archive_.get(), &header);
      ended_ = code == ARCHIVE_EOF;
      if (ended_) break;
      // Only a warning: names that this process's locale has not. They come as they are in the archive.
      if (code != ARCHIVE_OK && code != ARCHIVE_WARN) fail("");
      const char* name = archive_entry_pathname(header);
      if (archive_entry_filetype(header) != AE_IFREG || archive_entry_hardlink(header) != nullptr) continue;
      if (name == nullptr) fail("");
      entry.name = name;
      entry.offset = static_cast<uint64_t>(archive_read_header_position(archive_.get()));
      entry.contents = read_contents(entry.name, static_cast<uint64_t>(archive_entry_size(header)));
      return true;
    }
    return false;
  }

 private:
  // Blocks of an archive in memory that is not compressed lie in that memory.
  bool is_ours(const char* data, size_t size) const {
    return data >= contents_.data() && data + size <= contents_.data() + contents_.size();
  }

  Bytes read_contents(const std::string& name, uint64_t size) {
    std::string gathered;
    for (;;) {
      const void* memory = nullptr;
      size_t count = 0;
      la_int64_t offset = 0;
      const int code = archive_read_data_block(archive_.get(), &memory, &count, &offset);
      if (code == ARCHIVE_EOF) break;
      if (code != ARCHIVE_OK) fail(name);
      const auto* data = static_cast<const char*>(memory);
      if (count == size && offset == 0 && size > 0 && is_ours(data, count)) {
        return contents_.slice(static_cast<size_t>(data - contents_.data()), count);
      }
      if (static_cast<uint64_t>(offset) != gathered.size()) fail(name, "files with holes are not read");
      if (gathered.empty()) gathered.reserve(std::min<uint64_t>(size, kMaxReserved));
      gathered.append(data, count);
    }
    if (gathered.size() != size) {
      fail(name, c10::str("the file is cut off, needed bytes=", size, ", found bytes=", gathered.size()));
    }
    return owning(std::move(gathered));
  }

  [[noreturn]] void fail(const std::string& name, std::string reason = "") {
    if (reason.empty()) {
      const char* text = archive_error_string(archive_.get());
      reason = c10::str("libarchive says \"", text == nullptr ? "" : text, "\"");
    }
    const la_int64_t offset = std::max<la_int64_t>(archive_read_header_position(archive_.get()), 0);
    failure_ = c10::str("[tar] the archive is damaged: ", where_, ", offset=", offset);
    if (!name.empty()) failure_ += c10::str(", entry=\"", name, "\"");
    failure_ += c10::str(" (", reason, ")");
    throw_failure();
  }

  [[noreturn]] void throw_failure() const {
    throw DataError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, failure_);
  }

  Bytes contents_;
  std::string where_;
  std::unique_ptr<archive, decltype(&archive_read_free)> archive_;
  std::string failure_;
  bool ended_ = false;
};

TarReader::TarReader(std::unique_ptr<Archive> archive) : archive_(std::move(archive)) {}
TarReader::~TarReader() = default;
TarReader::TarReader(TarReader&&) noexcept = default;
TarReader& TarReader::operator=(TarReader&&) noexcept = default;

TarReader::TarReader(const std::string& path) {
  const auto buffer = Buffer::map_file(path, "tar");
  archive_ =
      std::make_unique<Archive>(Bytes(buffer, {buffer->data(), buffer->size()}), c10::str("file=\"", path, "\""));
}

TarReader TarReader::from_memory(Bytes archive) {
  std::string where = c10::str("bytes=", archive.size());
  return TarReader(std::make_unique<Archive>(std::move(archive), std::move(where)));
}

bool TarReader::next(TarEntry& entry) { return archive_->next(entry); }

}  // namespace lockstep::data
