#include "lockstep/data/formats/archive/tar.h"

#include <algorithm>
#include <archive.h>
#include <archive_entry.h>
#include <cerrno>
#include <exception>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/element/bus_errors.h"
#include "lockstep/data/formats/stream/file_blocks.h"
#include "lockstep/data/formats/stream/files.h"

namespace lockstep::data {
namespace {

// Memory is reserved for entries up to this size only: a damaged header may contain any number.
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
  Archive(Bytes contents, std::string where) : Archive(std::move(where)) {
    contents_ = std::move(contents);
    if (archive_read_open_memory(archive_.get(), contents_.data(), contents_.size()) != ARCHIVE_OK) fail("");
  }

  Archive(std::unique_ptr<detail::FileBlocks> blocks, std::string where) : Archive(std::move(where)) {
    blocks_ = std::move(blocks);
    archive_read_set_skip_callback(archive_.get(), on_skip);
    if (archive_read_open(archive_.get(), this, nullptr, on_read, nullptr) != ARCHIVE_OK) fail("");
  }

  explicit Archive(std::string where) : where_(std::move(where)), archive_(archive_read_new(), archive_read_free) {
    LOCKSTEP_CHECK_DATA(archive_ != nullptr, "[tar] libarchive could not be started: ", where_);
    archive_read_support_format_tar(archive_.get());
    for (const auto support :
         {archive_read_support_filter_gzip, archive_read_support_filter_zstd, archive_read_support_filter_xz,
          archive_read_support_filter_bzip2, archive_read_support_filter_lz4}) {
      support(archive_.get());
    }
  }

  bool next(TarEntry& entry) {
    while (!ended_) {
      archive_entry* header = nullptr;
      const int code = archive_read_next_header(archive_.get(), &header);
      check_pages();
      ended_ = code == ARCHIVE_EOF;
      if (ended_) break;
      // A warning: the name is not valid in this process's locale. It is returned as in the archive.
      if (code != ARCHIVE_OK && code != ARCHIVE_WARN) fail("");
      const char* name = archive_entry_pathname(header);
      if (archive_entry_filetype(header) != AE_IFREG || archive_entry_hardlink(header) != nullptr) continue;
      if (name == nullptr) fail("");
      entry.name = name;
      entry.offset = static_cast<uint64_t>(archive_read_header_position(archive_.get()));
      entry.contents = read_contents(entry.name, static_cast<uint64_t>(archive_entry_size(header)));
      check_pages();
      return true;
    }
    return false;
  }

 private:
  // libarchive has used the last block when it asks for the next one.
  static la_ssize_t on_read(archive* reader, void* self, const void** block) {
    auto* archive = static_cast<Archive*>(self);
    archive->blocks_->consume(std::exchange(archive->handed_out_, 0));
    const std::string_view next = archive->blocks_->peek();
    if (!archive->blocks_->problem().empty() && next.empty()) {
      archive_set_error(reader, EIO, "%s", archive->blocks_->problem().c_str());
      return ARCHIVE_FATAL;
    }
    archive->handed_out_ = next.size();
    *block = next.data();
    return static_cast<la_ssize_t>(next.size());
  }

  static la_int64_t on_skip(archive*, void* self, la_int64_t count) {
    auto* archive = static_cast<Archive*>(self);
    archive->blocks_->consume(std::exchange(archive->handed_out_, 0));
    return static_cast<la_int64_t>(archive->blocks_->discard(static_cast<uint64_t>(count)));
  }

  // Pages of a mapped file that could not be read are full of zeros.
  void check_pages() {
    if (!detail::any_bus_error() || contents_.buffer() == nullptr) return;
    const bool ended = std::exchange(ended_, true);
    contents_.buffer()->check();
    ended_ = ended;
  }

  // Blocks of an uncompressed archive in memory point into that memory.
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
      if (static_cast<uint64_t>(offset) != gathered.size()) {
        LOCKSTEP_THROW(DataError, damage(name, "files with holes are not read"));
      }
      if (gathered.empty()) gathered.reserve(std::min<uint64_t>(size, kMaxReserved));
      gathered.append(data, count);
    }
    if (gathered.size() != size) {
      fail(name, c10::str("the file is truncated, needed bytes=", size, ", found bytes=", gathered.size()));
    }
    return owning(std::move(gathered));
  }

  [[noreturn]] void fail(const std::string& name, std::string reason = "") {
    if (reason.empty()) {
      const char* text = archive_error_string(archive_.get());
      reason = c10::str("libarchive says \"", text == nullptr ? "" : text, "\"");
    }
    ended_ = true;
    LOCKSTEP_THROW(DataError, damage(name, reason));
  }

  std::string damage(const std::string& name, const std::string& reason) const {
    const la_int64_t offset = std::max<la_int64_t>(archive_read_header_position(archive_.get()), 0);
    const std::string entry = name.empty() ? "" : c10::str(", entry=\"", name, "\"");
    return c10::str("[tar] the archive is damaged: ", where_, ", offset=", offset, entry, " (", reason, ")");
  }

  Bytes contents_;
  std::unique_ptr<detail::FileBlocks> blocks_;  // of a file that is not mapped
  size_t handed_out_ = 0;
  std::string where_;
  std::unique_ptr<archive, decltype(&archive_read_free)> archive_;
  bool ended_ = false;
};

TarReader::TarReader(std::unique_ptr<Archive> archive) : archive_(std::move(archive)) {}
TarReader::~TarReader() = default;
TarReader::TarReader(TarReader&&) noexcept = default;
TarReader& TarReader::operator=(TarReader&&) noexcept = default;

TarReader::TarReader(const std::string& path, FileAccess access) {
  const std::string where = c10::str("file=\"", path, "\"");
  if (detail::resolve_access(access, path) == FileAccess::Read) {
    archive_ = std::make_unique<Archive>(std::make_unique<detail::FileBlocks>(path, "tar"), where);
  } else {
    archive_ = std::make_unique<Archive>(detail::map_whole(path, "tar"), where);
  }
}

TarReader TarReader::from_memory(Bytes archive) {
  std::string where = c10::str("bytes=", archive.size());
  return TarReader(std::make_unique<Archive>(std::move(archive), std::move(where)));
}

bool TarReader::next(TarEntry& entry) { return archive_->next(entry); }

class TarWriter::Archive {
 public:
  Archive(const std::string& path, const TarWriterOptions& options)
      : path_(path), file_(path, "TarWriter"), archive_(archive_write_new(), archive_write_free) {
    LOCKSTEP_CHECK_DATA(archive_ != nullptr, "[TarWriter] libarchive could not be started: file=\"", path_, "\"");
    check(archive_write_set_format_pax_restricted(archive_.get()));
    if (options.compression == TarCompression::Gzip) {
      check(archive_write_add_filter_gzip(archive_.get()));
      check(archive_write_set_filter_option(archive_.get(), "gzip", "timestamp", nullptr));
    }
    if (options.compression == TarCompression::Zstd) check(archive_write_add_filter_zstd(archive_.get()));
    // No padding to the block size of a tape: zeros after compressed data are an error for some readers.
    check(archive_write_set_bytes_in_last_block(archive_.get(), 1));
    check(archive_write_open(archive_.get(), this, nullptr, on_write, nullptr));
  }

  void write(const std::string& name, std::string_view contents) {
    LOCKSTEP_CHECK_VALUE(!file_.completed(), "[TarWriter] the archive is closed: file=\"", path_, "\"");
    LOCKSTEP_CHECK_VALUE(!name.empty() && name.find('\0') == std::string::npos,
                         "[TarWriter] a file in an archive must have a name: name=\"", name, "\"");
    const std::unique_ptr<archive_entry, decltype(&archive_entry_free)> entry(archive_entry_new(), archive_entry_free);
    archive_entry_copy_pathname(entry.get(), name.c_str());
    archive_entry_set_size(entry.get(), static_cast<la_int64_t>(contents.size()));
    archive_entry_set_filetype(entry.get(), AE_IFREG);
    archive_entry_set_perm(entry.get(), 0644);
    check(archive_write_header(archive_.get(), entry.get()));
    while (!contents.empty()) {
      const la_ssize_t written = archive_write_data(archive_.get(), contents.data(), contents.size());
      if (written <= 0) fail();
      contents.remove_prefix(static_cast<size_t>(written));
    }
  }

  void close() {
    if (file_.completed()) return;
    check(archive_write_close(archive_.get()));
    file_.complete();
  }

 private:
  // libarchive's C functions call this: an exception waits until they have returned.
  static la_ssize_t on_write(archive*, void* self, const void* bytes, size_t size) {
    auto* writer = static_cast<Archive*>(self);
    if (writer->failure_) return -1;
    try {
      writer->file_.write({static_cast<const char*>(bytes), size});
    } catch (...) {
      writer->failure_ = std::current_exception();
      return -1;
    }
    return static_cast<la_ssize_t>(size);
  }

  // A warning says that a name is not of this process's locale. It is written as it is.
  void check(int code) {
    if (code != ARCHIVE_OK && code != ARCHIVE_WARN) fail();
  }

  [[noreturn]] void fail() {
    if (failure_) std::rethrow_exception(failure_);
    const char* text = archive_error_string(archive_.get());
    LOCKSTEP_THROW(DataError, "[TarWriter] the archive could not be written: file=\"", path_, "\" (libarchive says \"",
                   text == nullptr ? "" : text, "\")");
  }

  std::string path_;
  detail::AtomicFile file_;
  std::exception_ptr failure_;
  // Last, as closing it may still write.
  std::unique_ptr<archive, decltype(&archive_write_free)> archive_;
};

TarWriter::TarWriter(const std::string& path, const TarWriterOptions& options)
    : archive_(std::make_unique<Archive>(path, options)) {}
TarWriter::~TarWriter() = default;
TarWriter::TarWriter(TarWriter&&) noexcept = default;
TarWriter& TarWriter::operator=(TarWriter&&) noexcept = default;

void TarWriter::write(const std::string& name, std::string_view contents) { archive_->write(name, contents); }
void TarWriter::close() { archive_->close(); }

}  // namespace lockstep::data
