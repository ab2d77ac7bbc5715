#include "lockstep/data/formats/image/image.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "lockstep/base/error.h"
#include "tests/data/formats/fixtures.h"

namespace lockstep::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using tests::fixture;
using tests::from_hex;
using tests::message_of;

at::Tensor noise(int64_t height, int64_t width, int64_t channels) {
  return at::randint(0, 256, {height, width, channels}, at::kByte);
}

// Smooth, as JPEG expects pictures to be.
at::Tensor gradient(int64_t height, int64_t width, int64_t channels) {
  const at::Tensor rows = at::arange(height, at::kFloat).reshape({height, 1, 1}) * 2;
  const at::Tensor columns = at::arange(width, at::kFloat).reshape({1, width, 1}) * 3;
  const at::Tensor colors = at::arange(channels, at::kFloat).reshape({1, 1, channels}) * 20;
  return (rows + columns + colors).clamp(0, 255).to(at::kByte);
}

double mean_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kFloat) - b.to(at::kFloat)).abs().mean().item<double>();
}

// Gives 4 pixels of 2 bits, 2 x 2, with a palette of 4 colours whose second is half transparent.
std::string palette_png() {
  return from_hex(
      "89504e470d0a1a0a0000000d49484452000000020000000202030000000fd8e5b70000000c504c5445ff000000ff000000ff0a14"
      "1e228829040000000274524e53ff80080fb36a0000000c4944415478da631060d8000000e400c119553bfb0000000049454e44ae"
      "426082");
}

TEST(ImageTest, PngComesBackExactly) {
  for (const int64_t channels : {1, 2, 3, 4}) {
    const at::Tensor picture = noise(17, 31, channels);
    const Bytes file = encode_png(picture);
    EXPECT_TRUE(at::equal(decode_image(file), picture)) << channels;
    EXPECT_EQ(image_size(file), (ImageSize{17, 31, channels}));
  }
  const at::Tensor strided = noise(8, 9, 3).transpose(0, 1);
  EXPECT_TRUE(at::equal(decode_png(encode_png(strided)), strided));
}

TEST(ImageTest, PngOf16Bits) {
  const at::Tensor picture = at::randint(0, 65536, {5, 6, 3}, at::kInt);
  const Bytes file = encode_png(picture);
  EXPECT_TRUE(at::equal(decode_png(file, {.dtype = at::kInt}), picture));
  EXPECT_TRUE(at::equal(decode_png(file), picture.div(256, "floor").to(at::kByte)));
  const at::Tensor narrow = noise(4, 4, 1);
  EXPECT_TRUE(at::equal(decode_png(encode_png(narrow), {.dtype = at::kInt}), narrow.to(at::kInt) * 257));
  EXPECT_THROW(encode_png(at::full({1, 1, 1}, 65536, at::kInt)), c10::ValueError);
}

TEST(ImageTest, PngChannelsAreConverted) {
  const at::Tensor gray = noise(3, 4, 1);
  EXPECT_TRUE(at::equal(decode_png(encode_png(gray), {.channels = 3}), gray.expand({3, 4, 3})));
  const at::Tensor opaque = at::full({3, 4, 1}, 255, at::kByte);
  EXPECT_TRUE(at::equal(decode_png(encode_png(gray), {.channels = 4}), at::cat({gray.expand({3, 4, 3}), opaque}, 2)));
  const at::Tensor color = noise(3, 4, 4);
  EXPECT_TRUE(at::equal(decode_png(encode_png(color), {.channels = 3}), color.slice(2, 0, 3)));
  const at::Tensor weights = at::tensor({0.299f, 0.587f, 0.114f});
  const at::Tensor expected = (color.slice(2, 0, 3).to(at::kFloat) * weights).sum(2, true);
  EXPECT_LE((decode_png(encode_png(color), {.channels = 1}).to(at::kFloat) - expected).abs().max().item<double>(),
            0.51);
  const at::Tensor rgb = noise(3, 4, 3);
  EXPECT_TRUE(at::equal(decode_png(encode_png(rgb), {.channels = 4}), at::cat({rgb, opaque}, 2)));
}

TEST(ImageTest, JpegComesBackNearly) {
  for (const int64_t channels : {1, 3}) {
    const at::Tensor picture = gradient(40, 60, channels);
    const Bytes file = encode_jpeg(picture);
    const at::Tensor decoded = decode_image(file);
    ASSERT_EQ(decoded.sizes(), picture.sizes());
    EXPECT_LT(mean_difference(decoded, picture), 1.5);
    EXPECT_EQ(image_size(file), (ImageSize{40, 60, channels}));
    EXPECT_LT(encode_jpeg(picture, {.quality = 20}).size(), file.size());
  }
}

TEST(ImageTest, JpegChannelsAreConverted) {
  const at::Tensor picture = gradient(40, 60, 3);
  const Bytes file = encode_jpeg(picture);
  const at::Tensor rgb = decode_jpeg(file);
  const at::Tensor gray = decode_jpeg(file, {.channels = 1});
  EXPECT_EQ(gray.size(2), 1);
  EXPECT_LT(mean_difference(gray, (rgb.to(at::kFloat) * at::tensor({0.299f, 0.587f, 0.114f})).sum(2, true)), 1.5);
  const at::Tensor alpha = decode_jpeg(file, {.channels = 4});
  EXPECT_TRUE(at::equal(alpha.slice(2, 0, 3), rgb));
  EXPECT_TRUE(alpha.select(2, 3).eq(255).all().item<bool>());
  EXPECT_TRUE(at::equal(decode_jpeg(file, {.dtype = at::kInt}), rgb.to(at::kInt) * 257));
  EXPECT_EQ(decode_jpeg(encode_jpeg(gradient(8, 8, 1)), {.channels = 3}).size(2), 3);
}

TEST(ImageTest, CutFilesAreErrors) {
  const at::Tensor picture = gradient(64, 64, 3);
  for (const Bytes& file : {encode_png(picture), encode_jpeg(picture)}) {
    for (size_t size = 0; size + 3 < file.size(); size += 7) {
      EXPECT_THROW(decode_image(file.slice(0, size)), DataError) << size << " of " << file.size();
    }
  }
  EXPECT_THAT(message_of([&] { decode_image(encode_jpeg(picture).slice(0, 700)); }), HasSubstr("libjpeg says"));
  EXPECT_THAT(message_of([&] { decode_image(encode_png(picture).slice(0, 60)); }), HasSubstr("libpng says"));
}

TEST(ImageTest, DamagedFilesAreErrorsAndPrintNothing) {
  const at::Tensor picture = noise(20, 20, 3);
  ::testing::internal::CaptureStderr();
  for (const Bytes& file : {encode_png(picture), encode_jpeg(picture)}) {
    for (size_t i = 0; i < file.size(); ++i) {
      std::string bad = file.str();
      bad[i] = static_cast<char>(bad[i] ^ 0x55);
      try {
        decode_image(bad, {.max_pixels = 1 << 16});
        image_size(bad);
      } catch (const DataError&) {  // anything else is a failure
      }
    }
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST(ImageTest, OtherFormatsAreNamed) {
  for (const char* text : {"", "GIF89a..", "no picture"}) {
    EXPECT_THAT(message_of([&] { decode_image(text); }), AllOf(HasSubstr("[decode_image]"), HasSubstr("JPEG or PNG")));
    EXPECT_THAT(message_of([&] { image_size(text); }), HasSubstr("[image_size]"));
  }
  EXPECT_THROW(decode_png(encode_jpeg(noise(4, 4, 3))), DataError);
  EXPECT_THROW(decode_jpeg(encode_png(noise(4, 4, 3))), DataError);
}

TEST(ImageTest, LimitsAreKept) {
  const at::Tensor picture = noise(20, 30, 3);
  for (const Bytes& file : {encode_png(picture), encode_jpeg(picture)}) {
    EXPECT_THAT(message_of([&] { decode_image(file, {.max_pixels = 599}); }),
                AllOf(HasSubstr("height=20"), HasSubstr("width=30"), HasSubstr("max_pixels=599")));
    EXPECT_NO_THROW(decode_image(file, {.max_pixels = 600}));
    EXPECT_THROW(decode_image(file, {.channels = 2}), c10::ValueError);
    EXPECT_THROW(decode_image(file, {.dtype = at::kFloat}), c10::ValueError);
    EXPECT_THROW(decode_image(file, {.max_pixels = 0}), c10::ValueError);
  }
}

TEST(ImageTest, OnlyPicturesAreEncoded) {
  EXPECT_THROW(encode_png(at::Tensor()), c10::ValueError);
  EXPECT_THROW(encode_png(noise(0, 3, 3)), c10::ValueError);
  EXPECT_THROW(encode_png(noise(3, 3, 5)), c10::ValueError);
  EXPECT_THROW(encode_png(noise(3, 3, 1).select(2, 0)), c10::ValueError);
  EXPECT_THROW(encode_png(noise(3, 3, 3).to(at::kFloat)), c10::ValueError);
  EXPECT_THROW(encode_jpeg(noise(3, 3, 2)), c10::ValueError);
  EXPECT_THROW(encode_jpeg(noise(3, 3, 4)), c10::ValueError);
  EXPECT_THROW(encode_jpeg(noise(70000, 1, 1)), c10::ValueError);
  EXPECT_THROW(encode_jpeg(noise(3, 3, 3), {.quality = 0}), c10::ValueError);
}

TEST(ImageTest, PalettesBecomeColors) {
  const Bytes file(palette_png());
  EXPECT_EQ(image_size(file), (ImageSize{2, 2, 4}));
  const at::Tensor expected =
      at::tensor({255, 0, 0, 255, 0, 255, 0, 128, 0, 0, 255, 255, 10, 20, 30, 255}, at::kByte).reshape({2, 2, 4});
  EXPECT_TRUE(at::equal(decode_png(file), expected));
  EXPECT_TRUE(at::equal(decode_png(file, {.channels = 3}), expected.slice(2, 0, 3)));
}

TEST(ImageTest, ErrorsNameTheFile) {
  const std::string name = "train/cat/7.jpg";
  const at::Tensor picture = gradient(20, 30, 3);
  const std::vector<Bytes> damaged{Bytes("no image"), encode_jpeg(picture).slice(0, 300),
                                   encode_png(picture).slice(0, 60)};
  for (const Bytes& file : damaged) {
    EXPECT_THAT(message_of([&] { decode_image(file, {.name = name}); }), HasSubstr("file=\"train/cat/7.jpg\""));
  }
  const Bytes jpeg = encode_jpeg(picture);
  EXPECT_THAT(message_of([&] { decode_jpeg(jpeg, {.max_pixels = 10, .name = name}); }), HasSubstr(name));
  EXPECT_THAT(message_of([&] { decode_png(jpeg, {.name = name}); }), AllOf(HasSubstr("[decode_png]"), HasSubstr(name)));
  const std::string message = message_of([&] { decode_png(jpeg); });
  EXPECT_EQ(message.find("file="), std::string::npos) << message;
}

}  // namespace
}  // namespace lockstep::data
