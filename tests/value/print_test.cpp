#include "lockstep/value/print.h"

#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "lockstep/base/dtype_name.h"

namespace lockstep {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

at::Tensor tensor(std::vector<double> values, at::ScalarType type = at::kFloat) {
  return at::tensor(values, at::kDouble).to(type);
}

at::Tensor scalar(double value, at::ScalarType type = at::kFloat) { return at::scalar_tensor(value, type); }

std::string scalar_str(double value, at::ScalarType type = at::kFloat) {
  const std::string text = str(scalar(value, type));
  return text.substr(10, text.find(", shape") - 10);
}

TEST(PrintTest, TensorsAsTheApiPagesPrintThem) {
  EXPECT_EQ(repr(scalar(6)), "<tf.Tensor: shape=(), dtype=float32, numpy=6.0>");
  EXPECT_EQ(repr(tensor({0}, at::kLong)), "<tf.Tensor: shape=(1,), dtype=int64, numpy=array([0])>");
  EXPECT_EQ(repr(tensor({1, 2})), "<tf.Tensor: shape=(2,), dtype=float32, numpy=array([1., 2.], dtype=float32)>");
  EXPECT_EQ(str(tensor({1, 2})), "tf.Tensor([1. 2.], shape=(2,), dtype=float32)");
  EXPECT_EQ(str(scalar(1)), "tf.Tensor(1.0, shape=(), dtype=float32)");
}

TEST(PrintTest, SeveralRowsStartOnALineOfTheirOwn) {
  const at::Tensor matrix = tensor({1, 2, 3, 4}).reshape({2, 2});
  EXPECT_EQ(repr(matrix),
            "<tf.Tensor: shape=(2, 2), dtype=float32, numpy=\n"
            "array([[1., 2.],\n"
            "       [3., 4.]], dtype=float32)>");
  EXPECT_EQ(str(matrix),
            "tf.Tensor(\n"
            "[[1. 2.]\n"
            " [3. 4.]], shape=(2, 2), dtype=float32)");
  EXPECT_EQ(numpy_repr(at::arange(8, at::kInt).reshape({2, 2, 2})),
            "array([[[0, 1],\n"
            "        [2, 3]],\n"
            "\n"
            "       [[4, 5],\n"
            "        [6, 7]]], dtype=int32)");
}

TEST(PrintTest, Scalars) {
  EXPECT_EQ(numpy_repr(scalar(0.1)), "0.1");
  EXPECT_EQ(numpy_repr(scalar(0.1, at::kDouble)), "0.1");
  EXPECT_EQ(numpy_repr(scalar(0.1, at::kHalf)), "0.1");
  EXPECT_EQ(numpy_repr(scalar(1, at::kBFloat16)), "1.0");
  EXPECT_EQ(numpy_repr(scalar(1e-7)), "1e-07");
  EXPECT_EQ(numpy_repr(scalar(1234567)), "1234567.0");
  EXPECT_EQ(numpy_repr(scalar(-3, at::kInt)), "-3");
  EXPECT_EQ(numpy_repr(scalar(1, at::kBool)), "True");
  EXPECT_EQ(numpy_repr(scalar(kNan)), "nan");
  EXPECT_EQ(numpy_repr(scalar(-kInf)), "-inf");
  EXPECT_EQ(numpy_repr(at::scalar_tensor(c10::complex<double>(1, 2), at::kComplexFloat)), "(1+2j)");
  EXPECT_EQ(numpy_repr(at::scalar_tensor(c10::complex<double>(0, -0.5), at::kComplexFloat)), "-0.5j");
}

TEST(PrintTest, ScalarsPrintedAsStrings) {
  EXPECT_EQ(scalar_str(999999), "999999.0");
  EXPECT_EQ(scalar_str(1234567), "1.234567e+06");
  EXPECT_EQ(scalar_str(1234567, at::kDouble), "1234567.0");
  EXPECT_EQ(scalar_str(65504, at::kHalf), "6.55e+04");
  EXPECT_EQ(scalar_str(0.1, at::kBFloat16), "0.100098");
}

TEST(PrintTest, FloatsAlignAtThePoint) {
  EXPECT_EQ(numpy_repr(tensor({1, 2.5, 10}, at::kDouble)), "array([ 1. ,  2.5, 10. ])");
  EXPECT_EQ(numpy_repr(tensor({-1, 0.5}, at::kDouble)), "array([-1. ,  0.5])");
  EXPECT_EQ(numpy_repr(tensor({-0.0, 0})), "array([-0.,  0.], dtype=float32)");
  EXPECT_EQ(numpy_repr(tensor({1. / 3}, at::kDouble)), "array([0.33333333])");
  EXPECT_EQ(numpy_repr(tensor({1. / 3, 2. / 3})), "array([0.33333334, 0.6666667 ], dtype=float32)");
  EXPECT_EQ(numpy_repr(tensor({1, 10}).reshape({2, 1})), "array([[ 1.],\n       [10.]], dtype=float32)");
  EXPECT_EQ(numpy_repr(tensor({1.5, kNan, -kInf}, at::kDouble)), "array([ 1.5,  nan, -inf])");
  EXPECT_EQ(numpy_repr(tensor({kNan, kInf})), "array([nan, inf], dtype=float32)");
}

TEST(PrintTest, ScientificNotationForLargeSmallAndFarApart) {
  EXPECT_EQ(numpy_repr(tensor({1e-5, 1}, at::kDouble)), "array([1.e-05, 1.e+00])");
  EXPECT_EQ(numpy_repr(tensor({1e8}, at::kDouble)), "array([1.e+08])");
  EXPECT_EQ(numpy_repr(tensor({1e-7, 1e100}, at::kDouble)), "array([1.e-007, 1.e+100])");
  EXPECT_EQ(numpy_repr(tensor({1, 1000, 1001}, at::kDouble)), "array([1.000e+00, 1.000e+03, 1.001e+03])");
  EXPECT_EQ(numpy_repr(tensor({1234567})), "array([1.234567e+06], dtype=float32)");
  EXPECT_EQ(numpy_repr(tensor({260297.438, 1e6})), "array([2.6029744e+05, 1.0000000e+06], dtype=float32)");
  EXPECT_EQ(numpy_repr(tensor({0.0001})), "array([0.0001], dtype=float32)");
}

TEST(PrintTest, OtherTypes) {
  EXPECT_EQ(numpy_repr(tensor({1, 0}, at::kBool)), "array([ True, False])");
  EXPECT_EQ(numpy_repr(tensor({-1, 100}, at::kLong)), "array([ -1, 100])");
  EXPECT_EQ(numpy_repr(tensor({-128, 127}, at::kChar)), "array([-128,  127], dtype=int8)");
  EXPECT_EQ(numpy_repr(tensor({0, 255}, at::kByte)), "array([  0, 255], dtype=uint8)");
  EXPECT_EQ(numpy_repr(tensor({7}, at::kShort)), "array([7], dtype=int16)");
  EXPECT_EQ(numpy_repr(tensor({0.1, 2}, at::kHalf)), "array([0.1, 2. ], dtype=float16)");
  EXPECT_EQ(numpy_repr(tensor({0.015625}, at::kHalf)), "array([0.01563], dtype=float16)");
  EXPECT_EQ(numpy_repr(tensor({1, 2}, at::kBFloat16)), "array([1, 2], dtype=bfloat16)");
  EXPECT_EQ(numpy_repr(tensor({0.1, kNan}, at::kBFloat16)), "array([0.100098, nan], dtype=bfloat16)");
  const at::Tensor pairs = tensor({1, 2, -0.5, -10}).reshape({2, 2});
  EXPECT_EQ(numpy_repr(at::view_as_complex(pairs)), "array([ 1.  +2.j, -0.5-10.j], dtype=complex64)");
}

TEST(PrintTest, EmptyArraysShowTheirType) {
  EXPECT_EQ(numpy_repr(at::zeros({0})), "array([], dtype=float32)");
  EXPECT_EQ(numpy_repr(at::zeros({0}, at::kDouble)), "array([], dtype=float64)");
  EXPECT_EQ(numpy_repr(at::zeros({0, 3})), "array([], shape=(0, 3), dtype=float32)");
  EXPECT_EQ(str(at::zeros({0, 3})), "tf.Tensor([], shape=(0, 3), dtype=float32)");
}

TEST(PrintTest, RowsWrapAt75Columns) {
  EXPECT_EQ(numpy_repr(at::arange(30)),
            "array([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15, 16,\n"
            "       17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29])");
  EXPECT_EQ(str(at::arange(30)),
            "tf.Tensor(\n"
            "[ 0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15 16 17 18 19 20 21 22 23\n"
            " 24 25 26 27 28 29], shape=(30,), dtype=int64)");
  EXPECT_EQ(numpy_repr(at::arange(18, at::kFloat) / 8),
            "array([0.   , 0.125, 0.25 , 0.375, 0.5  , 0.625, 0.75 , 0.875, 1.   ,\n"
            "       1.125, 1.25 , 1.375, 1.5  , 1.625, 1.75 , 1.875, 2.   , 2.125],\n"
            "      dtype=float32)");
}

TEST(PrintTest, MoreThan1000ElementsAreSummarized) {
  EXPECT_EQ(numpy_repr(at::arange(1001)), "array([   0,    1,    2, ...,  998,  999, 1000], shape=(1001,))");
  EXPECT_EQ(str(at::arange(1001)), "tf.Tensor([   0    1    2 ...  998  999 1000], shape=(1001,), dtype=int64)");
  EXPECT_EQ(numpy_repr(at::zeros({1001, 2})),
            "array([[0., 0.],\n"
            "       [0., 0.],\n"
            "       [0., 0.],\n"
            "       ...,\n"
            "       [0., 0.],\n"
            "       [0., 0.],\n"
            "       [0., 0.]], shape=(1001, 2), dtype=float32)");
  EXPECT_EQ(numpy_repr(at::arange(1000)).find("..."), std::string::npos);
}

TEST(PrintTest, ViewsAndTensorsWithGradients) {
  EXPECT_EQ(str(tensor({1, 2, 3, 4}).reshape({2, 2}).t()),
            "tf.Tensor(\n"
            "[[1. 3.]\n"
            " [2. 4.]], shape=(2, 2), dtype=float32)");
  EXPECT_EQ(numpy_repr(tensor({1}).requires_grad_()), "array([1.], dtype=float32)");
}

TEST(PrintTest, TensorsThatAreNoArrays) {
  EXPECT_EQ(repr(at::Tensor()), "<tf.Tensor: undefined>");
  EXPECT_EQ(str(at::Tensor()), "<tf.Tensor: undefined>");
  EXPECT_EQ(repr(at::eye(3).to_sparse()), "<tf.SparseTensor: shape=(3, 3), dtype=float32, nnz=3>");
  EXPECT_EQ(repr(at::empty({2}, at::TensorOptions().device(at::kMeta))),
            "<tf.Tensor: shape=(2,), dtype=float32, numpy=<unprintable>>");
}

TEST(PrintTest, NumbersAsPythonPrintsThem) {
  EXPECT_EQ(number_text(6), "6.0");
  EXPECT_EQ(number_text(2.5), "2.5");
  EXPECT_EQ(number_text(-0.0), "-0.0");
  EXPECT_EQ(number_text(1e-7), "1e-07");
  EXPECT_EQ(number_text(1e15), "1000000000000000.0");
  EXPECT_EQ(number_text(1e16), "1e+16");
  EXPECT_EQ(number_text(0.1 + 0.2), "0.30000000000000004");
  EXPECT_EQ(number_text(kInf), "inf");
  EXPECT_EQ(number_text(kNan), "nan");
}

TEST(PrintTest, Components) {
  std::ostringstream out;
  detail::print_components(out, "PerReplica", {"1", "2.5"});
  EXPECT_EQ(out.str(), "PerReplica:{\n  0: 1,\n  1: 2.5\n}");
  std::ostringstream empty;
  detail::print_components(empty, "PerReplica", {});
  EXPECT_EQ(empty.str(), "PerReplica:{\n\n}");
}

TEST(PrintTest, NamesOfTypesAndShapes) {
  EXPECT_EQ(dtype_name(at::kFloat), "float32");
  EXPECT_EQ(dtype_name(at::kBFloat16), "bfloat16");
  EXPECT_EQ(dtype_name(at::kBool), "bool");
  EXPECT_EQ(dtype_name(at::kQInt8), "qint8");
  EXPECT_EQ(shape_text({}), "()");
  EXPECT_EQ(shape_text({2}), "(2,)");
  EXPECT_EQ(shape_text({2, 3}), "(2, 3)");
}

}  // namespace
}  // namespace lockstep
