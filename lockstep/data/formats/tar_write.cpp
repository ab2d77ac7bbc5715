#include <archive.h>
#include <archive_entry.h>
#include <exception>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/formats/files_impl.h"
#include "lockstep/data/formats/tar.h"

namespace lockstep::data {

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
    // Not filled up to a tape's block: zeros behind compressed data are an error to some readers.
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
    throw DataError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
                    c10::str("[TarWriter] the archive could not be written: file=\"", path_, "\" (libarchive says \"",
                             text == nullptr ? "" : text, "\")"));
  }

  std::string path_;
  detail::WholeFile file_;
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
