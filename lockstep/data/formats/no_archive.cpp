#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/formats/tar.h"

namespace lockstep::data {
namespace {

[[noreturn]] void refuse() {
  throw c10::NotImplementedError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
                                 "[tar] lockstep was built without libarchive; install libarchive-dev and build again");
}

}  // namespace

class TarReader::Archive {};
TarReader::TarReader(std::unique_ptr<Archive> archive) : archive_(std::move(archive)) {}
TarReader::~TarReader() = default;
TarReader::TarReader(TarReader&&) noexcept = default;
TarReader& TarReader::operator=(TarReader&&) noexcept = default;
TarReader::TarReader(const std::string&) { refuse(); }
TarReader TarReader::from_memory(Bytes) { refuse(); }
bool TarReader::next(TarEntry&) { refuse(); }

class TarWriter::Archive {};
TarWriter::TarWriter(const std::string&, const TarWriterOptions&) { refuse(); }
TarWriter::~TarWriter() = default;
TarWriter::TarWriter(TarWriter&&) noexcept = default;
TarWriter& TarWriter::operator=(TarWriter&&) noexcept = default;
void TarWriter::write(const std::string&, std::string_view) { refuse(); }
void TarWriter::close() { refuse(); }

}  // namespace lockstep::data
