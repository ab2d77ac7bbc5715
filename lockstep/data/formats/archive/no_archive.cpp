#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/formats/archive/tar.h"

namespace lockstep::data {
namespace {

[[noreturn]] void fail_without_archive() {
  LOCKSTEP_THROW(c10::NotImplementedError,
                 "[tar] lockstep was built without libarchive; install libarchive-dev and build again");
}

}  // namespace

class TarReader::Archive {};
TarReader::TarReader(std::unique_ptr<Archive> archive) : archive_(std::move(archive)) {}
TarReader::~TarReader() = default;
TarReader::TarReader(TarReader&&) noexcept = default;
TarReader& TarReader::operator=(TarReader&&) noexcept = default;
TarReader::TarReader(const std::string&, FileAccess) { fail_without_archive(); }
TarReader TarReader::from_memory(Bytes) { fail_without_archive(); }
bool TarReader::next(TarEntry&) { fail_without_archive(); }

class TarWriter::Archive {};
TarWriter::TarWriter(const std::string&, const TarWriterOptions&) { fail_without_archive(); }
TarWriter::~TarWriter() = default;
TarWriter::TarWriter(TarWriter&&) noexcept = default;
TarWriter& TarWriter::operator=(TarWriter&&) noexcept = default;
void TarWriter::write(const std::string&, std::string_view) { fail_without_archive(); }
void TarWriter::close() { fail_without_archive(); }

}  // namespace lockstep::data
