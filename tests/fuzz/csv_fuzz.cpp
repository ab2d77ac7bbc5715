#include "lockstep/data/formats/text/csv.h"
#include "tests/fuzz/fuzz_input.h"

// The first byte chooses the options.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep::data;
  if (size == 0) return 0;
  CsvOptions options;
  if ((data[0] & 1) != 0) options.delimiter = ';';
  options.header = (data[0] & 2) != 0;
  if ((data[0] & 4) != 0) options.select_columns = {1, 0};
  if ((data[0] & 8) != 0) options.na_value = "NA";
  fuzz::refuse_or_read([&] {
    CsvReader reader(fuzz::to_bytes(data + 1, size - 1), "fuzz", options);
    for (std::vector<std::string> fields; reader.next(fields);) {
      for (size_t i = 0; i < fields.size() && (data[0] & 16) != 0; ++i) {
        fuzz::refuse_or_read([&] { reader.number<int32_t>(fields, i, 0); });
        fuzz::refuse_or_read([&] { reader.number<float>(fields, i); });
      }
    }
  });
  return 0;
}
