#include "lockstep/data/formats/numpy/npy.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "lockstep/base/error.h"
#include "tests/data/formats/fixtures.h"
#include "tests/data/formats/temporary_folder.h"

namespace lockstep::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using tests::message_of;
using tests::read_whole_file;
using tests::TemporaryFolder;
using tests::write_whole_file;

// Makes a file of version 1 from the dict and the data.
std::string npy(const std::string& literal, const std::string& data) {
  std::string file("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(literal.size() & 0xff);
  file += static_cast<char>(literal.size() >> 8);
  return file + literal + data;
}

template <class T>
std::string raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::string parse_failure(const std::string& literal, const std::string& data) {
  return message_of([&] { parse_npy(npy(literal, data)); });
}

TEST(NpyTest, EveryTypeAndRankComesBack) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.npy";
  const std::vector<std::vector<int64_t>> shapes{{}, {5}, {2, 3}, {2, 1, 4}, {2, 3, 1, 2}, {0}, {3, 0, 2}};
  for (const auto dtype : {at::kBool, at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kHalf, at::kFloat,
                           at::kDouble, at::kComplexFloat, at::kComplexDouble}) {
    for (const auto& shape : shapes) {
      const at::Tensor tensor = at::randint(0, 2, shape, at::kFloat).to(dtype);
      save_npy(path, tensor);
      const at::Tensor loaded = load_npy(path);
      EXPECT_EQ(loaded.scalar_type(), dtype);
      EXPECT_EQ(loaded.sizes(), tensor.sizes());
      EXPECT_TRUE(at::equal(loaded, tensor)) << dtype << " " << tensor.sizes();
      EXPECT_EQ(npy_info(path).shape, shape);
      EXPECT_EQ(npy_info(path).dtype, dtype);
    }
  }
}

TEST(NpyTest, StridedTensorsAreWrittenInOrder) {
  const TemporaryFolder folder;
  const at::Tensor tensor = at::arange(24, at::kInt).reshape({2, 3, 4});
  save_npy(folder / "a.npy", tensor.transpose(0, 2));
  EXPECT_TRUE(at::equal(load_npy(folder / "a.npy"), tensor.transpose(0, 2)));
  save_npy(folder / "b.npy", tensor.select(2, 1));
  EXPECT_TRUE(at::equal(load_npy(folder / "b.npy"), tensor.select(2, 1)));
  const at::Tensor complex = at::view_as_complex(at::randn({3, 2}));
  save_npy(folder / "c.npy", complex.conj());
  EXPECT_TRUE(at::equal(load_npy(folder / "c.npy"), complex.conj().resolve_conj()));
}

TEST(NpyTest, WritesTheBytesOfNumPy) {
  const TemporaryFolder folder;
  save_npy(folder / "a.npy", at::arange(6, at::kFloat).reshape({2, 3}));
  EXPECT_EQ(read_whole_file(folder / "a.npy"), read_whole_file(LOCKSTEP_FIXTURES "/numpy/c_float32.npy"));
  save_npy(folder / "b.npy", at::arange(5, at::kLong));
  EXPECT_EQ(read_whole_file(folder / "b.npy"), read_whole_file(LOCKSTEP_FIXTURES "/numpy/vector.npy"));
  save_npy(folder / "c.npy", at::scalar_tensor(2.5, at::kDouble));
  EXPECT_EQ(read_whole_file(folder / "c.npy"), read_whole_file(LOCKSTEP_FIXTURES "/numpy/scalar.npy"));
}

TEST(NpyTest, MappedTensorMayBeWrittenAndTheFileStays) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.npy";
  save_npy(path, at::zeros({1000}));
  const std::string before = read_whole_file(path);
  at::Tensor view;
  {
    at::Tensor tensor = load_npy(path);
    tensor.fill_(7);
    view = tensor.slice(0, 10, 20);
  }
  EXPECT_TRUE(at::equal(view, at::full({10}, 7.0f)));
  EXPECT_EQ(read_whole_file(path), before);
}

TEST(NpyTest, HasMemoryOfItsOwnWhereverItsBytesLie) {
  const TemporaryFolder folder;
  save_npy(folder / "a.npy", at::arange(4, at::kDouble));
  const Bytes bytes(read_whole_file(folder / "a.npy"));
  const at::Tensor parsed = parse_npy(bytes);
  const std::string before = bytes.str();
  parsed.zero_();
  EXPECT_EQ(bytes.str(), before) << "writes do not reach the bytes";
  const Bytes shifted = Bytes("x" + bytes.str()).slice(1, bytes.size());
  const at::Tensor copy = parse_npy(shifted);
  EXPECT_NE(copy.data_ptr(), shifted.data() + 128);
  EXPECT_TRUE(at::equal(copy, at::arange(4, at::kDouble)));
}

TEST(NpyTest, HeaderMayBeWrittenInAnyPythonStyle) {
  const std::string data = raw<float>({1, 2, 3, 4, 5, 6});
  for (const std::string literal : {
           "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n",
           "{'shape':(2,3),'fortran_order':False,'descr':'<f4'}",
           "  { \"shape\" : ( 2 , 3 , ) ,\n \"descr\" : \"=f4\" , \"fortran_order\" : False }   \n",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (2L, 3L), }",
           "{'descr': 'f4', 'fortran_order': False, 'shape': (2, 3)}",
       }) {
    EXPECT_TRUE(at::equal(parse_npy(npy(literal, data)), at::arange(1, 7, at::kFloat).reshape({2, 3}))) << literal;
  }
}

TEST(NpyTest, FortranOrderIsAView) {
  const Bytes bytes(
      npy("{'descr': '<i4', 'fortran_order': True, 'shape': (2, 3), }", raw<int32_t>({0, 3, 1, 4, 2, 5})));
  const at::Tensor tensor = parse_npy(bytes);
  EXPECT_EQ(tensor.strides(), (std::vector<int64_t>{1, 2}));
  EXPECT_TRUE(at::equal(tensor, at::arange(6, at::kInt).reshape({2, 3})));
}

TEST(NpyTest, BigEndianIsSwapped) {
  const std::string literal = ", 'fortran_order': False, 'shape': (2,), }";
  EXPECT_TRUE(at::equal(parse_npy(npy("{'descr': '>i2'" + literal, std::string("\x01\x02\x00\x03", 4))),
                        at::tensor({258, 3}, at::kShort)));
  EXPECT_TRUE(at::equal(parse_npy(npy("{'descr': '>u2'" + literal, std::string("\xff\xff\x00\x03", 4))),
                        at::tensor({65535, 3}, at::kInt)));
  std::string complex = raw<double>({1.5, -2.5, 3.5, 4.5});
  for (size_t i = 0; i < complex.size(); i += 8) std::reverse(complex.begin() + i, complex.begin() + i + 8);
  const at::Tensor tensor = at::view_as_real(parse_npy(npy("{'descr': '>c16'" + literal, complex)));
  EXPECT_TRUE(at::equal(tensor, at::tensor({1.5, -2.5, 3.5, 4.5}, at::kDouble).reshape({2, 2})));
}

TEST(NpyTest, UnsignedTypesAreWidened) {
  const std::string literal = ", 'fortran_order': False, 'shape': (2,), }";
  const at::Tensor narrow = parse_npy(npy("{'descr': '<u2'" + literal, raw<uint16_t>({65535, 1})));
  EXPECT_TRUE(at::equal(narrow, at::tensor({65535, 1}, at::kInt)));
  const at::Tensor middle = parse_npy(npy("{'descr': '<u4'" + literal, raw<uint32_t>({4294967295u, 1})));
  EXPECT_TRUE(at::equal(middle, at::tensor({int64_t{4294967295}, int64_t{1}}, at::kLong)));
  const at::Tensor wide = parse_npy(npy("{'descr': '<u8'" + literal, raw<uint64_t>({1, 2})));
  EXPECT_TRUE(at::equal(wide, at::tensor({1, 2}, at::kLong)));
  EXPECT_THAT(parse_failure("{'descr': '<u8'" + literal, raw<uint64_t>({1, uint64_t{1} << 63})),
              AllOf(HasSubstr("value=9223372036854775808"), HasSubstr("position=1")));
}

TEST(NpyTest, RefusesTypesThatTensorsHaveNot) {
  for (const std::string descr : {"|S5", "<U3", "|O", "<M8[ns]", "<f16", "<V2", "<c32", "", "<", "i3", "<f44"}) {
    EXPECT_THAT(parse_failure("{'descr': '" + descr + "', 'fortran_order': False, 'shape': (1,), }", "12345678"),
                HasSubstr("descr='" + descr + "'"));
  }
  EXPECT_THAT(parse_failure("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", "1234"),
              HasSubstr("arrays of records are not read"));
  const TemporaryFolder folder;
  EXPECT_THROW(save_npy(folder / "a.npy", at::zeros({2}, at::kBFloat16)), c10::ValueError);
  EXPECT_THROW(save_npy(folder / "a.npy", at::Tensor()), c10::ValueError);
  EXPECT_THROW(save_npy(folder / "none/a.npy", at::zeros({2})), DataError);
  EXPECT_FALSE(std::filesystem::exists(folder / "a.npy"));
}

TEST(NpyTest, RefusesDamagedHeaders) {
  const std::string good = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }";
  EXPECT_THAT(parse_failure("", ""), HasSubstr("'{' is missing"));
  EXPECT_THAT(parse_failure("{'descr': '<f4'", ""), HasSubstr("is missing"));
  EXPECT_THAT(parse_failure(good + "x", "1234"), HasSubstr("goes on"));
  EXPECT_THAT(parse_failure("{'descr': '<f4', 'fortran_order': 1, 'shape': (1,)}", ""), HasSubstr("True or False"));
  EXPECT_THAT(parse_failure("{'descr': '<f4', 'fortran_order': True, 'shape': (1)}", ""), HasSubstr("','"));
  EXPECT_THAT(parse_failure("{'descr': '<f4', 'fortran_order': True, 'shape': (-1,)}", ""), HasSubstr("not negative"));
  EXPECT_THAT(parse_failure("{'descr': '<f4', 'fortran_order': True}", ""), HasSubstr("must have"));
  EXPECT_THAT(parse_failure("{'descr': '<f4', 'more': True}", ""), HasSubstr("key='more'"));
  EXPECT_THAT(message_of([] { parse_npy(Bytes()); }), HasSubstr("must start with"));
  EXPECT_THAT(message_of([] { parse_npy(std::string("\x93NUMPY\x07\x00\x00\x00", 10)); }), HasSubstr("version=7"));
  EXPECT_THAT(message_of([] { parse_npy(std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff", 12)); }),
              HasSubstr("at most"));
}

TEST(NpyTest, ShapesDoNotOverflow) {
  for (const std::string shape : {"(4294967296, 4294967296)", "(9223372036854775807,)", "(0, 4294967296, 4294967296)",
                                  "(9223372036854775808,)", "(1152921504606846976, 2)"}) {
    EXPECT_THAT(parse_failure("{'descr': '<u2', 'fortran_order': False, 'shape': " + shape + "}", ""),
                HasSubstr("[parse_npy]"))
        << shape;
  }
  std::string many = "(";
  for (int i = 0; i < 65; ++i) many += "1,";
  EXPECT_THAT(parse_failure("{'descr': '<f4', 'fortran_order': False, 'shape': " + many + ")}", "1234"),
              HasSubstr("dimensions=65"));
}

TEST(NpyTest, SaysWhatIsMissing) {
  const TemporaryFolder folder;
  const std::string path = folder / "cut.npy";
  write_whole_file(path, npy("{'descr': '<f4', 'fortran_order': False, 'shape': (100, 1000), }", "12345"));
  EXPECT_THAT(message_of([&] { load_npy(path); }), AllOf(HasSubstr("[load_npy]"), HasSubstr(path),
                                                         HasSubstr("needed bytes=400000"), HasSubstr("found bytes=5")));
  EXPECT_THAT(message_of([&] { load_npy(folder / "none.npy"); }), HasSubstr("none.npy"));
  EXPECT_THAT(message_of([&] { load_npy(folder / ""); }), HasSubstr("plain file"));
}

}  // namespace
}  // namespace lockstep::data
