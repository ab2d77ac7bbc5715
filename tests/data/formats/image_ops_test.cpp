#include "lockstep/data/formats/image/image_ops.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "lockstep/base/error.h"
#include "tests/data/formats/fixtures.h"

namespace lockstep::data {
namespace {

using ::testing::HasSubstr;

// The message of the error about a wrong argument.
template <class Call>
std::string value_error_of(const Call& call) {
  return tests::message_of<c10::ValueError>(call);
}

constexpr at::ScalarType kTypes[] = {at::kByte, at::kFloat};

at::Tensor random_image(int64_t height, int64_t width, int64_t channels, at::ScalarType dtype = at::kByte) {
  const at::Tensor bytes = at::randint(0, 256, {height, width, channels}, at::kByte);
  return dtype == at::kByte ? bytes : bytes.to(at::kFloat) / 255;
}

double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

// The share of values that differ.
double differing(const at::Tensor& a, const at::Tensor& b) { return a.ne(b).to(at::kDouble).mean().item<double>(); }

// As torchvision resizes tensors: LibTorch's function on floats, rounded where they were bytes.
at::Tensor torchvision_resize(const at::Tensor& image, int64_t height, int64_t width, const ResizeOptions& options) {
  const at::Tensor planes = image.permute({2, 0, 1}).unsqueeze(0).to(at::kFloat).contiguous();
  at::Tensor result;
  if (options.interpolation == Interpolation::Nearest) {
    result = at::_upsample_nearest_exact2d(planes, {height, width});
  } else if (options.antialias) {
    result = at::_upsample_bilinear2d_aa(planes, {height, width}, false);
  } else {
    result = at::upsample_bilinear2d(planes, {height, width}, false);
  }
  result = result.squeeze(0).permute({1, 2, 0});
  return image.scalar_type() == at::kByte ? result.round().to(at::kByte) : result;
}

TEST(ImageOpsTest, ResizesAsTorchvision) {
  torch::manual_seed(1);
  const std::vector<std::pair<int64_t, int64_t>> sizes{{1, 1}, {1, 7}, {5, 1}, {8, 8}, {13, 29}, {31, 17}, {64, 48}};
  for (const auto& [height, width] : sizes) {
    for (const auto& [new_height, new_width] : sizes) {
      for (const at::ScalarType dtype : kTypes) {
        for (const ResizeOptions options : {ResizeOptions{}, ResizeOptions{.antialias = false},
                                            ResizeOptions{.interpolation = Interpolation::Nearest}}) {
          const at::Tensor image = random_image(height, width, 1 + (height + new_width) % 4, dtype);
          const at::Tensor result = resize(image, new_height, new_width, options);
          ASSERT_EQ(result.sizes(), (std::vector<int64_t>{new_height, new_width, image.size(2)}));
          ASSERT_EQ(result.scalar_type(), dtype);
          const at::Tensor expected = torchvision_resize(image, new_height, new_width, options);
          // A sum in another order may fall to the other side of a half; where a row is enlarged, many times.
          const double tolerance = dtype == at::kByte ? 1 : 1e-5;
          EXPECT_LE(largest_difference(result, expected), tolerance)
              << height << "x" << width << " to " << new_height << "x" << new_width;
          if (dtype == at::kByte && expected.numel() > 300) {
            EXPECT_LT(differing(result, expected), 0.05);
          }
          if (options.interpolation == Interpolation::Nearest) {
            EXPECT_TRUE(at::equal(result, expected));
          }
        }
      }
    }
  }
}

TEST(ImageOpsTest, ResizingKeepsConstantImagesAndExtremes) {
  for (const int64_t value : {0, 1, 127, 254, 255}) {
    const at::Tensor image = at::full({37, 23, 3}, value, at::kByte);
    for (const bool antialias : {true, false}) {
      EXPECT_TRUE(resize(image, 11, 50, {.antialias = antialias}).eq(value).all().item<bool>()) << value;
    }
  }
}

TEST(ImageOpsTest, ResizesTheShorterSide) {
  EXPECT_EQ(resize_shorter_side(random_image(100, 201, 3), 50).sizes(), (std::vector<int64_t>{50, 100, 3}));
  EXPECT_EQ(resize_shorter_side(random_image(201, 100, 3), 50).sizes(), (std::vector<int64_t>{100, 50, 3}));
  EXPECT_EQ(resize_shorter_side(random_image(3, 3, 1), 7).sizes(), (std::vector<int64_t>{7, 7, 1}));
  const at::Tensor image = random_image(10, 20, 3);
  EXPECT_TRUE(resize_shorter_side(image, 10).is_same(image)) << "nothing to do";
}

TEST(ImageOpsTest, CropsAreViews) {
  const at::Tensor image = random_image(9, 12, 3);
  const at::Tensor part = crop(image, 2, 3, 4, 5);
  EXPECT_TRUE(at::equal(part, image.slice(0, 2, 6).slice(1, 3, 8)));
  EXPECT_TRUE(part.is_alias_of(image));
  EXPECT_TRUE(at::equal(center_crop(image, 5, 6), image.slice(0, 2, 7).slice(1, 3, 9)));
  // torchvision: int(round((9 - 4) / 2)) is 2, int(round((12 - 5) / 2)) is 4.
  EXPECT_TRUE(at::equal(center_crop(image, 4, 5), image.slice(0, 2, 6).slice(1, 4, 9)));
  EXPECT_TRUE(at::equal(crop(image, 0, 0, 9, 12), image));
}

TEST(ImageOpsTest, RandomCropsAreEverywhereAndDrawAsTorchvision) {
  torch::manual_seed(5);
  const at::Tensor image = at::arange(5 * 6, at::kByte).reshape({5, 6, 1});
  std::set<int> corners;
  for (int i = 0; i < 500; ++i) {
    const at::Tensor part = random_crop(image, 3, 4);
    corners.insert(part[0][0][0].item<int>());
  }
  std::set<int> expected;
  for (int top = 0; top < 3; ++top) {
    for (int left = 0; left < 3; ++left) expected.insert(top * 6 + left);
  }
  EXPECT_EQ(corners, expected);
  torch::manual_seed(17);
  const at::Tensor part = random_crop(image, 3, 4);
  torch::manual_seed(17);
  const int64_t top = at::randint(0, 3, {1}).item<int64_t>();
  const int64_t left = at::randint(0, 3, {1}).item<int64_t>();
  EXPECT_TRUE(at::equal(part, crop(image, top, left, 3, 4)));
  EXPECT_TRUE(random_crop(image, 5, 6).is_same(image));
}

TEST(ImageOpsTest, FlipsInPlace) {
  for (const at::ScalarType dtype : kTypes) {
    for (const auto& [height, width] : {std::pair(1, 1), std::pair(1, 5), std::pair(4, 1), std::pair(6, 7)}) {
      for (const int64_t channels : {1, 3, 4}) {
        const at::Tensor image = random_image(height, width, channels, dtype);
        const at::Tensor before = image.clone();
        EXPECT_TRUE(horizontal_flip_(image).is_same(image));
        EXPECT_TRUE(at::equal(image, before.flip({1})));
        vertical_flip_(image);
        EXPECT_TRUE(at::equal(image, before.flip({0, 1})));
      }
    }
  }
}

// Crops have gaps between their rows, and transposed images other orders: nothing beside them may change.
TEST(ImageOpsTest, ChangesOnlyWhatAViewShows) {
  for (const at::ScalarType dtype : kTypes) {
    const std::vector<std::function<void(const at::Tensor&)>> changes{
        [](const at::Tensor& image) { horizontal_flip_(image); },
        [](const at::Tensor& image) { vertical_flip_(image); },
        [](const at::Tensor& image) { adjust_brightness_(image, 0.5); },
        [](const at::Tensor& image) { adjust_contrast_(image, 0.5); },
        [](const at::Tensor& image) { adjust_saturation_(image, 0.5); },
        [](const at::Tensor& image) { adjust_hue_(image, 0.25); }};
    for (const auto& change : changes) {
      const at::Tensor whole = random_image(9, 11, 3, dtype);
      const at::Tensor alone = whole.slice(0, 2, 7).slice(1, 3, 9).contiguous();
      at::Tensor expected = whole.clone();
      change(alone);
      expected.slice(0, 2, 7).slice(1, 3, 9).copy_(alone);
      change(crop(whole, 2, 3, 5, 6));
      EXPECT_TRUE(at::equal(whole, expected));

      const at::Tensor planes = random_image(7, 5, 3, dtype).permute({2, 0, 1}).contiguous();
      const at::Tensor rows = planes.permute({1, 2, 0}).contiguous();
      change(planes.permute({1, 2, 0}));
      change(rows);
      EXPECT_TRUE(at::equal(planes.permute({1, 2, 0}), rows));
    }
  }
}

TEST(ImageOpsTest, ReadsImagesWithAnyStrides) {
  const at::Tensor image = random_image(10, 12, 3).transpose(0, 1);
  EXPECT_TRUE(at::equal(resize(image, 5, 5), resize(image.contiguous(), 5, 5)));
  EXPECT_TRUE(at::equal(normalize(image), normalize(image.contiguous())));
  const at::Tensor part = crop(random_image(10, 12, 3), 1, 2, 6, 7);
  EXPECT_TRUE(at::equal(resize(part, 5, 5), resize(part.contiguous(), 5, 5)));
  EXPECT_TRUE(at::equal(normalize(part), normalize(part.contiguous())));
}

TEST(ImageOpsTest, FlipsWithAProbability) {
  torch::manual_seed(3);
  const at::Tensor image = random_image(2, 3, 1);
  const at::Tensor flipped = image.flip({1});
  int count = 0;
  for (int i = 0; i < 400; ++i) count += at::equal(random_horizontal_flip_(image.clone(), 0.25), flipped);
  EXPECT_NEAR(count, 100, 30);
  EXPECT_TRUE(at::equal(random_horizontal_flip_(image.clone(), 1), flipped));
  EXPECT_TRUE(at::equal(random_vertical_flip_(image.clone(), 0), image));
  EXPECT_TRUE(at::equal(random_vertical_flip_(image.clone(), 1), image.flip({0})));
}

TEST(ImageOpsTest, NormalizesAsTorchvision) {
  const std::vector<double> mean{0.485, 0.456, 0.406};
  const std::vector<double> deviation{0.229, 0.224, 0.225};
  for (const at::ScalarType dtype : kTypes) {
    const at::Tensor image = random_image(8, 9, 3, dtype);
    const at::Tensor unit = dtype == at::kByte ? image.to(at::kFloat).div(255) : image;
    const at::Tensor expected =
        unit.sub(torch::tensor(mean, at::kFloat)).div(torch::tensor(deviation, at::kFloat)).permute({2, 0, 1});
    const at::Tensor result = normalize(image, {.mean = mean, .std = deviation});
    EXPECT_TRUE(result.is_contiguous());
    EXPECT_TRUE(at::equal(result, expected)) << "the same bits";
    EXPECT_TRUE(at::equal(normalize(image, {.mean = mean, .std = deviation, .channels_first = false}),
                          expected.permute({1, 2, 0})));
  }
  const at::Tensor gray = random_image(3, 4, 1);
  EXPECT_TRUE(at::equal(normalize(gray), gray.to(at::kFloat).div(255).permute({2, 0, 1})));
  const at::Tensor all = random_image(3, 4, 3);
  EXPECT_TRUE(at::equal(normalize(all, {.mean = {0.5}, .std = {0.5}}),
                        normalize(all, {.mean = {0.5, 0.5, 0.5}, .std = {0.5, 0.5, 0.5}})));
}

// torchvision's functional_tensor, on [height, width, channels].
at::Tensor blend(const at::Tensor& image, const at::Tensor& other, double ratio) {
  const double bound = image.scalar_type() == at::kByte ? 255 : 1;
  return (image.to(at::kFloat) * ratio + other.to(at::kFloat) * (1 - ratio)).clamp(0, bound).to(image.scalar_type());
}

at::Tensor gray_of(const at::Tensor& image) {
  const auto channel = [&](int64_t i) { return image.select(2, i).to(at::kFloat); };
  return (channel(0) * 0.2989 + channel(1) * 0.587 + channel(2) * 0.114).to(image.scalar_type()).unsqueeze(2);
}

at::Tensor torchvision_hue(const at::Tensor& image, double shift) {
  const bool is_bytes = image.scalar_type() == at::kByte;
  const at::Tensor unit = is_bytes ? image.to(at::kFloat).div(255) : image;
  const at::Tensor r = unit.select(2, 0);
  const at::Tensor g = unit.select(2, 1);
  const at::Tensor b = unit.select(2, 2);
  const at::Tensor most = std::get<0>(unit.max(2));
  const at::Tensor least = std::get<0>(unit.min(2));
  const at::Tensor equal = most.eq(least);
  const at::Tensor range = most - least;
  const at::Tensor ones = at::ones_like(most);
  const at::Tensor s = range / at::where(equal, ones, most);
  const at::Tensor divisor = at::where(equal, ones, range);
  const at::Tensor rc = (most - r) / divisor;
  const at::Tensor gc = (most - g) / divisor;
  const at::Tensor bc = (most - b) / divisor;
  const at::Tensor hr = most.eq(r) * (bc - gc);
  const at::Tensor hg = (most.eq(g) & most.ne(r)) * (2.0 + rc - bc);
  const at::Tensor hb = (most.ne(g) & most.ne(r)) * (4.0 + gc - rc);
  const at::Tensor h = at::remainder(at::fmod((hr + hg + hb) / 6.0 + 1.0, 1.0) + shift, 1.0);
  const at::Tensor whole = at::floor(h * 6.0);
  const at::Tensor part = h * 6.0 - whole;
  const at::Tensor p = (most * (1.0 - s)).clamp(0, 1);
  const at::Tensor q = (most * (1.0 - s * part)).clamp(0, 1);
  const at::Tensor t = (most * (1.0 - s * (1.0 - part))).clamp(0, 1);
  const at::Tensor index = whole.to(at::kLong).remainder(6).unsqueeze(0);
  const auto pick = [&](const std::vector<at::Tensor>& six) { return at::stack(six).gather(0, index).squeeze(0); };
  const at::Tensor rgb =
      at::stack({pick({most, q, p, p, t, most}), pick({t, most, most, q, p, p}), pick({p, p, t, most, most, q})}, 2);
  return is_bytes ? rgb.mul(255 + 1.0 - 1e-3).to(at::kByte) : rgb;
}

TEST(ImageOpsTest, ChangesColoursAsTorchvision) {
  torch::manual_seed(2);
  for (const at::ScalarType dtype : kTypes) {
    const at::Tensor image = random_image(23, 31, 3, dtype);
    const double tolerance = dtype == at::kByte ? 0 : 1e-6;
    for (const double factor : {0.0, 0.3, 1.0, 1.7, 5.0}) {
      const at::Tensor zeros = at::zeros_like(image);
      EXPECT_LE(largest_difference(adjust_brightness_(image.clone(), factor), blend(image, zeros, factor)), tolerance);
      EXPECT_LE(largest_difference(adjust_saturation_(image.clone(), factor), blend(image, gray_of(image), factor)),
                tolerance);
      // The mean of LibTorch is a sum in float.
      const at::Tensor mean = gray_of(image).to(at::kFloat).mean().expand_as(image);
      const at::Tensor expected = blend(image, mean, factor);
      const at::Tensor contrast = adjust_contrast_(image.clone(), factor);
      EXPECT_LE(largest_difference(contrast, expected), dtype == at::kByte ? 1 : 1e-5);
      if (dtype == at::kByte) {
        EXPECT_LT(differing(contrast, expected), 0.01);
      }
    }
    for (const double shift : {-0.5, -0.2, 0.0, 0.1, 0.37, 0.5}) {
      const at::Tensor expected = torchvision_hue(image, shift);
      const at::Tensor result = adjust_hue_(image.clone(), shift);
      EXPECT_LE(largest_difference(result, expected), dtype == at::kByte ? 1 : 1e-4) << shift;
      if (dtype == at::kByte) {
        EXPECT_LT(differing(result, expected), 0.01) << shift;
      }
    }
  }
}

TEST(ImageOpsTest, FactorOneAndGrayImagesStay) {
  const at::Tensor image = random_image(5, 6, 3);
  for (const auto change : {adjust_brightness_, adjust_contrast_, adjust_saturation_}) {
    EXPECT_TRUE(at::equal(change(image.clone(), 1), image));
  }
  const at::Tensor gray = random_image(5, 6, 1);
  EXPECT_TRUE(at::equal(adjust_saturation_(gray.clone(), 0.3), gray));
  EXPECT_TRUE(at::equal(adjust_hue_(gray.clone(), 0.3), gray));
  const at::Tensor black = adjust_contrast_(gray.clone(), 0);
  EXPECT_TRUE(black.eq(black[0][0][0]).all().item<bool>()) << "all pixels are the mean";
  const at::Tensor equal_channels = gray.expand({5, 6, 3}).contiguous();
  EXPECT_LE(largest_difference(adjust_hue_(equal_channels.clone(), 0.3), equal_channels), 0);
}

TEST(ImageOpsTest, JitterDrawsAsTorchvision) {
  const at::Tensor image = random_image(6, 7, 3);
  for (int seed = 0; seed < 20; ++seed) {
    torch::manual_seed(seed);
    const at::Tensor result =
        color_jitter_(image.clone(), {.brightness = 0.4, .contrast = 1.5, .saturation = 0.3, .hue = 0.1});
    torch::manual_seed(seed);
    const at::Tensor order = at::randperm(4);
    const double brightness = at::empty({1}).uniform_(0.6, 1.4).item<double>();
    const double contrast = at::empty({1}).uniform_(0, 2.5).item<double>();
    const double saturation = at::empty({1}).uniform_(0.7, 1.3).item<double>();
    const double hue = at::empty({1}).uniform_(-0.1, 0.1).item<double>();
    const at::Tensor expected = image.clone();
    for (int64_t i = 0; i < 4; ++i) {
      const int64_t change = order[i].item<int64_t>();
      if (change == 0) adjust_brightness_(expected, brightness);
      if (change == 1) adjust_contrast_(expected, contrast);
      if (change == 2) adjust_saturation_(expected, saturation);
      if (change == 3) adjust_hue_(expected, hue);
    }
    EXPECT_TRUE(at::equal(result, expected)) << seed;
  }
  EXPECT_TRUE(at::equal(color_jitter_(image.clone(), {}), image));
}

TEST(ImageOpsTest, SaysWhatIsWrong) {
  const at::Tensor image = random_image(5, 6, 3);
  EXPECT_THAT(value_error_of([&] { resize(image, 0, 4); }), HasSubstr("[resize] the size must be positive"));
  EXPECT_THAT(value_error_of([&] { resize(image.to(at::kInt), 4, 4); }), HasSubstr("uint8 or float"));
  EXPECT_THAT(value_error_of([&] { resize(image.select(2, 0), 4, 4); }), HasSubstr("[height, width, channels]"));
  EXPECT_THAT(value_error_of([&] { resize(at::empty({0, 6, 3}, at::kByte), 4, 4); }), HasSubstr("with pixels"));
  EXPECT_THAT(value_error_of([&] { horizontal_flip_(at::Tensor()); }), HasSubstr("undefined"));
  EXPECT_THAT(value_error_of([&] { crop(image, 2, 0, 4, 6); }), HasSubstr("top=2, left=0, height=4, width=6"));
  EXPECT_THAT(value_error_of([&] { crop(image, -1, 0, 4, 6); }), HasSubstr("lie inside the image"));
  EXPECT_THAT(value_error_of([&] { crop(image, std::numeric_limits<int64_t>::max(), 0, 4, 6); }),
              HasSubstr("lie inside"));
  EXPECT_THAT(value_error_of([&] { center_crop(image, 6, 6); }), HasSubstr("lie inside the image"));
  EXPECT_THAT(value_error_of([&] { random_crop(image, 5, 7); }), HasSubstr("no larger than the image"));
  EXPECT_THAT(value_error_of([&] { random_horizontal_flip_(image, 1.5); }), HasSubstr("probability=1.5"));
  EXPECT_THAT(value_error_of([&] { normalize(image, {.mean = {1, 2}}); }), HasSubstr("one for each channel"));
  EXPECT_THAT(value_error_of([&] { normalize(image, {.std = {0}}); }), HasSubstr("not zero"));
  EXPECT_THAT(value_error_of([&] { adjust_brightness_(image, -1); }), HasSubstr("factor=-1"));
  EXPECT_THAT(value_error_of([&] { adjust_hue_(image, 0.6); }), HasSubstr("shift=0.6"));
  EXPECT_THAT(value_error_of([&] { adjust_hue_(random_image(2, 2, 4), 0.1); }), HasSubstr("channels=4"));
  EXPECT_THAT(value_error_of([&] { color_jitter_(image, {.hue = 0.7}); }), HasSubstr("hue=0.7"));
  EXPECT_THAT(value_error_of([&] { color_jitter_(image, {.contrast = -1}); }), HasSubstr("contrast=-1"));
}

}  // namespace
}  // namespace lockstep::data
